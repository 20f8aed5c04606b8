"""A run folder: what training and evaluation left in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoc.config import load_toml
from ecoc.errors import ArtifactError, InputError
from ecoc.policies.value_policy import LARGEST_W
from ecoc.runs.config import RunConfig
from ecoc.storage.atomic import json_bytes, write_whole

CONFIG, RESULT, METRICS, LOG = "config.toml", "result.json", "metrics.jsonl", "log.txt"
CHECKPOINTS, EVALUATIONS, FINGERPRINT = "checkpoints", "evaluations", "data.sha256"
ACTING = "acting.json"
BEST = "best"
"""Name of the checkpoint that a finished run acts with."""
_LARGEST_RESULT = 8 << 20


@dataclass(frozen=True)
class Run:
    """A run folder."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where its weights are."""
        return self.path / CHECKPOINTS

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.path.name

    def config(self) -> RunConfig:
        """Its effective settings."""
        path = self.path / CONFIG
        if not path.is_file():
            raise InputError(f"{self.path}: no {CONFIG} in it, so it is no run; make one with ecoc train")
        return RunConfig.build(load_toml(path), where=str(path))

    def result(self) -> dict[str, Any]:
        """What came of it; a run that never ended has none."""
        path = self.path / RESULT
        if not path.is_file():
            raise InputError(f"{self.path}: not finished; go on with ecoc train --resume")
        try:
            if path.stat().st_size > _LARGEST_RESULT:
                raise ArtifactError(f"{path}: larger than {_LARGEST_RESULT} bytes; train again")
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            raise ArtifactError(f"{path}: not readable; train again") from None
        if not isinstance(found, dict):
            raise ArtifactError(f"{path}: not the result of a run; train again")
        return found

    def chosen_ranking(self) -> tuple[str, float] | None:
        """How it was chosen to act, and with which weight; none if nothing was chosen for these weights."""
        path = self.path / ACTING
        if not path.is_file():
            return None
        try:
            if path.stat().st_size > _LARGEST_RESULT:
                raise ValueError("too large")
            found = json.loads(path.read_bytes())
            if found["weights_sha256"] != self.result().get("weights_sha256"):
                return None
            w = float(found["w"])
            if not (0 <= w <= LARGEST_W and found["rank_by"] == "blend"):
                raise ValueError("not a way to act")
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise ArtifactError(f"{path}: not readable ({str(error)[:80]}); choose again, or remove it") from None
        return "blend", w


def save_acting(run: Run, rank_by: str, w: float, evidence: Mapping[str, Any]) -> None:
    """Let a run act in a chosen way from now on, and keep why."""
    chosen = {"rank_by": rank_by, "w": w, "weights_sha256": run.result().get("weights_sha256"), "evidence": evidence}
    write_whole(run.path / ACTING, [json_bytes(chosen)])


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / CONFIG).is_file()
