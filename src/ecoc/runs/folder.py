"""A run folder: what training and evaluation left in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ecoc.arguments import StrPath, as_path
from ecoc.errors import ArtifactError, InputError
from ecoc.policies.value_policy import LARGEST_W
from ecoc.result import as_pandas
from ecoc.runs.config import RunConfig
from ecoc.runs.metrics import metrics_table
from ecoc.runs.result import TrainResult
from ecoc.storage.atomic import json_bytes, write_whole
from ecoc.storage.trusted import is_there, load_json, load_toml, own_folder

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ecoc.model import Model

CONFIG, RESULT, METRICS, LOG = "config.toml", "result.json", "metrics.jsonl", "log.txt"
CHECKPOINTS, EVALUATIONS, FINGERPRINT = "checkpoints", "evaluations", "data.sha256"
ACTING = "acting.json"
BEST = "best"
"""Name of the checkpoint that a finished run acts with."""
COUNTS = "counts"
"""Name of the checkpoint with the counts term of that policy, if it has one."""
_CHOOSE_AGAIN = "choose again, or remove it"


@dataclass(frozen=True, init=False)
class Run:
    """A run folder."""

    path: Path

    def __init__(self, path: StrPath) -> None:
        object.__setattr__(self, "path", as_path(path, "path"))

    @property
    def checkpoints(self) -> Path:
        """Folder of its weights."""
        return own_folder(self.path / CHECKPOINTS)

    @property
    def evaluations(self) -> Path:
        """Folder of the ranks that its evaluations keep."""
        return own_folder(self.path / EVALUATIONS)

    @property
    def name(self) -> str:
        """Its name in tables: the last part of the path."""
        return self.path.name

    def config(self) -> RunConfig:
        """Its effective settings."""
        path = self._file(CONFIG, f"no {CONFIG} in it, so it is no run; make one with ecoc train")
        return RunConfig.build(load_toml(path, folder=self.path), where=str(path))

    @property
    def result(self) -> TrainResult:
        """What training resulted in; an unfinished run has no result."""
        path = self._file(RESULT, "not finished; resume it with ecoc train --resume")
        try:
            return TrainResult.model_validate(load_json(path, remedy="train again"))
        except ValidationError as error:
            key = ".".join(str(step) for step in error.errors()[0]["loc"])
            raise ArtifactError(f"{path}: not the result of a run ('{key}' is missing or wrong); train again") from None

    @property
    def model(self) -> "Model":
        """The model it was trained to; the run must be finished."""
        from ecoc.model import load

        return load(self.path)

    def metrics(self) -> "pd.DataFrame":
        """The metrics of training as a pandas frame: one row per line of metrics.jsonl, also of an unfinished run."""
        return as_pandas(self.metrics_table(), "Run.metrics_table()")

    def metrics_table(self) -> "pa.Table":
        """The metrics of training as an Arrow table: one row per line of metrics.jsonl, also of an unfinished run."""
        return metrics_table(self._file(METRICS, f"no {METRICS} in it, so it is no run; make one with ecoc train"))

    def chosen_ranking(self) -> tuple[str, float] | None:
        """How it was chosen to rank, and with which weight; none if nothing was chosen for these weights."""
        path = self.path / ACTING
        if not is_there(path):
            return None
        try:
            choice = load_json(path, remedy=_CHOOSE_AGAIN)
            if choice["weights_sha256"] != self.result.weights_sha256:
                return None
            w = float(choice["w"])
            if not (0 <= w <= LARGEST_W and choice["rank_by"] == "blend"):
                raise ValueError("not a way to rank")
        except (ValueError, TypeError, KeyError) as error:
            raise ArtifactError(f"{path}: not readable ({str(error)[:80]}); {_CHOOSE_AGAIN}") from None
        return "blend", w

    def _file(self, name: str, without: str) -> Path:
        """Path of a file of the run; `without` says what its absence means."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such folder; give the folder of a run")
        if not is_there(self.path / name):
            raise InputError(f"{self.path}: {without}")
        return self.path / name


def save_acting(run: Run, rank_by: str, w: float, evidence: Mapping[str, Any]) -> None:
    """Let a run rank in a chosen way from now on, and keep the evidence."""
    chosen = {"rank_by": rank_by, "w": w, "weights_sha256": run.result.weights_sha256, "evidence": evidence}
    write_whole(run.path / ACTING, [json_bytes(chosen)])


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return is_there(folder / CONFIG)
