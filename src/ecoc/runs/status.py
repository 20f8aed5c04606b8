"""How far a run got, and the command that resumes it."""

import shlex

from pydantic import Field

from ecoc.config import Config
from ecoc.runs.folder import RESULT, Run
from ecoc.storage.checkpoint import latest_state
from ecoc.storage.trusted import is_there, printable


class RunStatus(Config):
    """How far a run got. Everything is as of its newest checkpoint."""

    run: str
    method: str
    encoder: str
    is_finished: bool
    step: int = Field(description="steps saved; 0 before the first checkpoint")
    steps: int | None = Field(description="planned; none before the first checkpoint")
    seconds: float = Field(description="spent training")
    best_step: int | None = Field(description="step of the best weights; none before the first validation")
    validation: dict[str, float] | None = Field(description="ranking metrics of the best weights")
    monitor: str = Field(description="metric that chooses the best weights")
    resume: str | None = Field(description="command that resumes it; none if it is finished")

    def __str__(self) -> str:
        name = f"{self.run}: {self.method}, {self.encoder}"
        if self.is_finished:
            return printable(f"{name}, finished")
        lines = [f"{name}, not finished", f"  {'saved':<11}{self.saved}"]
        if self.validation is not None and self.monitor in self.validation:
            value = f"{self.monitor} {self.validation[self.monitor]:.4f}"
            lines.append(f"  {'best':<11}{value} in validation, at step {self.best_step or 0:,}")
        return "\n".join(map(printable, [*lines, f"  {'resume':<11}{self.resume}"]))

    @property
    def saved(self) -> str:
        """What a resumed run starts from, in words."""
        if not self.step:
            return "no step yet, its settings only"
        planned = f" of {self.steps:,}" if self.steps else ""
        return f"step {self.step:,}{planned}, after {self.seconds:,.0f} s of training"


def run_status(run: Run) -> RunStatus:
    """How far a run got, finished or not."""
    config, state = run.config(), latest_state(run.checkpoints) or {}
    is_finished = is_there(run.path / RESULT)
    data = str(state.get("data") or "DATA")
    return RunStatus.build(
        {
            "run": str(run.path),
            "method": config.method_name,
            "encoder": config.encoder_name,
            "is_finished": is_finished,
            "step": state.get("step", 0),
            "steps": state.get("steps") or None,
            "seconds": state.get("seconds", 0.0),
            "best_step": state.get("best_step") if state.get("best") else None,
            "validation": state.get("best"),
            "monitor": config.train.monitor,
            "resume": None if is_finished else resume_command(run, data),
        },
        where=str(run.checkpoints),
    )


def resume_command(run: Run, data: str) -> str:
    """The command that resumes a run on the dataset at `data`."""
    return shlex.join(["ecoc", "train", data, "--out", str(run.path), "--resume"])
