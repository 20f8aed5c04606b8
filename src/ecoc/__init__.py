"""ecoc: next-item recommenders that optimise long-term reward, learned from logs alone.

Data
    prepare         turn a raw log, a data frame or an Arrow table into a prepared dataset
    open_data       open a prepared dataset
    Dataset         a prepared dataset: arrays, sequences, items, users

Training
    train           train a policy on a prepared dataset
    Run             a run folder: settings, metrics, weights, results
    TrainResult     what training resulted in
    Callback        base of callbacks for steps, validations and the end of training
    StepResult      what one training step measured
    ValidationResult  what one validation during training measured

Recommending
    load            open the model of a finished run
    Model           recommends items by their ids
    Recommendations  lists of items with scores and values

Judging
    evaluate        ranking quality on the test split, with intervals
    compare         paired differences between runs, with p-values
    simulate        estimate from the log what each policy would earn
    RolloutConfig   how simulators are fitted and policies are rolled out in them
    choose_weight   choose the weight w of the long-term value on validation roll-outs
    normtest        test whether angles or norms of item vectors decide the ranking

Serving
    export          write a run as a bundle, the folder that `ecoc serve` opens

Reporting
    report          write what is known about runs as one HTML page with its tables
    reproduce       compute the tables and figures of the paper on any dataset

Errors
    EcocError       base of all errors that ecoc explains itself
    InputError      an argument, a setting or a data file is wrong
    ArtifactError   a prepared dataset or a run is broken or was changed
    TrainingError   training diverged
    ResourceError   disk or memory ran out

Own encoders, methods, sources and metrics: see `ecoc.encoders`, `ecoc.methods`, `ecoc.data.sources` and
`ecoc.testing`. Importing `ecoc` is light: each name is loaded when it is first used.
"""

import logging
import sys
from importlib import import_module
from importlib.metadata import version as _version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ecoc.data.prepare import prepare
    from ecoc.data.sequences import Dataset, open_data
    from ecoc.errors import ArtifactError, EcocError, InputError, ResourceError, TrainingError
    from ecoc.evaluation.compare import compare
    from ecoc.evaluation.evaluate import evaluate
    from ecoc.evaluation.norm_test import normtest
    from ecoc.experiment.reproduce import reproduce
    from ecoc.model import Model, Recommendations, load
    from ecoc.ope.choose_weight import choose_weight
    from ecoc.ope.results import RolloutConfig
    from ecoc.ope.simulate import simulate
    from ecoc.progress import Callback, StepResult, ValidationResult
    from ecoc.reporting.write import report
    from ecoc.runs.folder import Run
    from ecoc.runs.result import TrainResult
    from ecoc.serving.export import export
    from ecoc.training.train import train

if sys.platform != "linux":  # locks, signals and memory limits are those of Linux; the command needs no traceback
    _refusal = f"ecoc runs on Linux only; this system is {sys.platform}"
    raise SystemExit(_refusal) if Path("".join(sys.argv[:1])).stem == "ecoc" else ImportError(_refusal)

__version__ = _version("ecoc")
logging.getLogger("ecoc").addHandler(logging.NullHandler())

_HOMES = {
    "prepare": "ecoc.data.prepare",
    "open_data": "ecoc.data.sequences",
    "Dataset": "ecoc.data.sequences",
    "train": "ecoc.training.train",
    "Run": "ecoc.runs.folder",
    "TrainResult": "ecoc.runs.result",
    "Callback": "ecoc.progress",
    "StepResult": "ecoc.progress",
    "ValidationResult": "ecoc.progress",
    "load": "ecoc.model",
    "Model": "ecoc.model",
    "Recommendations": "ecoc.model",
    "evaluate": "ecoc.evaluation.evaluate",
    "compare": "ecoc.evaluation.compare",
    "simulate": "ecoc.ope.simulate",
    "RolloutConfig": "ecoc.ope.results",
    "choose_weight": "ecoc.ope.choose_weight",
    "normtest": "ecoc.evaluation.norm_test",
    "reproduce": "ecoc.experiment.reproduce",
    "report": "ecoc.reporting.write",
    "export": "ecoc.serving.export",
    "EcocError": "ecoc.errors",
    "InputError": "ecoc.errors",
    "ArtifactError": "ecoc.errors",
    "TrainingError": "ecoc.errors",
    "ResourceError": "ecoc.errors",
}

_RENAMED = {"choose_w": "choose_weight"}  # old name -> new name; each warns for one release

__all__ = [
    "ArtifactError",
    "Callback",
    "Dataset",
    "EcocError",
    "InputError",
    "Model",
    "Recommendations",
    "ResourceError",
    "RolloutConfig",
    "Run",
    "StepResult",
    "TrainResult",
    "TrainingError",
    "ValidationResult",
    "choose_weight",
    "compare",
    "evaluate",
    "export",
    "load",
    "normtest",
    "open_data",
    "prepare",
    "report",
    "reproduce",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        warnings.warn(f"ecoc.{name} is now ecoc.{new}; the old name ends in 0.3", DeprecationWarning, stacklevel=2)
        name = new
    if name not in _HOMES:
        raise AttributeError(f"module 'ecoc' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
