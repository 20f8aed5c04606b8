"""ecoc: next-item recommenders that optimise long-term reward, learned from logs alone.

Importing this is light: each public name is loaded when it is first used.
"""

import sys
from importlib import import_module
from importlib.metadata import version as _version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoc.gymnasium_entry import register_when_imported

if TYPE_CHECKING:
    from ecoc.data.prepare import prepare
    from ecoc.data.sequences import Dataset, open_data
    from ecoc.errors import ArtifactError, EcocError, InputError, ResourceError, TrainingError
    from ecoc.evaluation.evaluate import compare, evaluate
    from ecoc.evaluation.norm_test import normtest
    from ecoc.experiment.reproduce import reproduce
    from ecoc.model import Model, load
    from ecoc.ope.choose_weight import choose_w, choose_weight
    from ecoc.ope.simulate import simulate
    from ecoc.reporting.write import report
    from ecoc.runs.folder import Run
    from ecoc.training.train import train

if sys.platform != "linux":  # locks, signals and memory limits are those of Linux; the command needs no traceback
    _refusal = f"ecoc runs on Linux only; this system is {sys.platform}"
    raise SystemExit(_refusal) if Path("".join(sys.argv[:1])).stem == "ecoc" else ImportError(_refusal)

__version__ = _version("ecoc")

_HOMES = {
    "prepare": "ecoc.data.prepare",
    "open_data": "ecoc.data.sequences",
    "Dataset": "ecoc.data.sequences",
    "train": "ecoc.training.train",
    "Run": "ecoc.runs.folder",
    "load": "ecoc.model",
    "Model": "ecoc.model",
    "evaluate": "ecoc.evaluation.evaluate",
    "compare": "ecoc.evaluation.evaluate",
    "simulate": "ecoc.ope.simulate",
    "choose_w": "ecoc.ope.choose_weight",
    "choose_weight": "ecoc.ope.choose_weight",
    "normtest": "ecoc.evaluation.norm_test",
    "reproduce": "ecoc.experiment.reproduce",
    "report": "ecoc.reporting.write",
    "EcocError": "ecoc.errors",
    "InputError": "ecoc.errors",
    "ArtifactError": "ecoc.errors",
    "TrainingError": "ecoc.errors",
    "ResourceError": "ecoc.errors",
}

__all__ = [
    "ArtifactError",
    "Dataset",
    "EcocError",
    "InputError",
    "Model",
    "ResourceError",
    "Run",
    "TrainingError",
    "choose_w",
    "choose_weight",
    "compare",
    "evaluate",
    "load",
    "normtest",
    "open_data",
    "prepare",
    "report",
    "reproduce",
    "simulate",
    "train",
]

register_when_imported()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecoc' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
