"""How a run trained: its settings and result, and the curves of its losses, validation and Q values."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ecoc.errors import ArtifactError, InputError
from ecoc.reporting.document import Axis, Figure, Point, Section, Series, Table
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import METRICS, RESULT, Run, is_run
from ecoc.runs.metrics import load_lines
from ecoc.runs.result import TrainResult
from ecoc.storage.trusted import is_there

_MOST_POINTS, _MOST_SERIES, _LONGEST_NAME = 2000, 12, 300
_MONITOR = "ndcg@20"
_AMOUNTS = ("items", "parameters", "steps", "epochs", "best_epoch")  # of a result

Lines = list[dict[str, Any]]


def training_section(path: str | Path) -> Section:
    """The section of a run folder; lines of metrics.jsonl that cannot be read are left out and counted."""
    folder = Path(path)
    if not is_run(folder):
        raise InputError(f"{folder}: no run; give a folder that ecoc train made")
    run = Run(folder)
    config = run.config()
    result = run.result if is_there(folder / RESULT) else None
    lines, broken = _load_lines(folder / METRICS)
    figures = _figures(lines)
    caveats = ["The run has not finished; this is its state so far."] if result is None else []
    caveats += [f"{broken:,} lines of {METRICS} could not be read and are left out."] if broken else []
    caveats += [] if figures else [f"There is no curve: {METRICS} holds no training step; the method only counts."]
    if figures:
        caveats.append(
            "Curves of one run show how it trained, not whether its policy is better: validation measures likeness to"
            " the log, and this is one seed."
        )
    return Section(
        id=run.name or "run",
        title=f"Run {run.name}: {config.method_name}" + (f" {config.encoder_name}" if lines else ""),
        tables=[_summary(run, config, result)],
        figures=figures,
        caveats=caveats,
        commands=[f"ecoc train DATA -o RUN --config {folder.name}/config.toml"],
    )


def _load_lines(path: Path) -> tuple[Lines, int]:
    """The lines that hold a step number, in its order, and the number of all other lines."""
    every = load_lines(path) if is_there(path) else []
    lines = [line for line in every if line is not None and _finite(line.get("step")) is not None]
    if every and not lines:
        raise ArtifactError(f"{path}: no line of it is a line of metrics; it was changed or damaged, train again")
    return sorted(lines, key=lambda line: float(line["step"])), len(every) - len(lines)


def _finite(value: object) -> float | None:
    """A finite number or none; a file from elsewhere may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _series(lines: Lines, name: str, key: str, within: str | None = None) -> Series | None:
    """One key over the steps; a later line of the same step replaces the earlier."""
    values: dict[float, float] = {}
    for line in lines:
        holder = line.get(within) if within else line
        value = _finite(holder.get(key)) if isinstance(holder, Mapping) else None
        if value is not None:
            values[float(line["step"])] = value
    points = [Point(x=step, y=value) for step, value in values.items()]
    stride = math.ceil(len(points) / _MOST_POINTS)
    kept = points if stride <= 1 else [*points[:-1:stride], points[-1]]
    return Series(name=name[:_LONGEST_NAME], points=kept) if kept else None


def _figures(lines: Lines) -> list[Figure]:
    """Curves of the losses, of validation and of the critic's values, each if there are any."""
    parts = sorted({key for line in lines for key in line if key.startswith("loss/")})
    keys = ["loss", *parts] if len(parts) != 1 else parts
    names = {"loss": "total" if parts else "loss"}
    losses = [_series(lines, names.get(key, key.removeprefix("loss/")), key) for key in keys[:_MOST_SERIES]]
    validation = [
        _series(lines, "online weights", _MONITOR, "validation"),
        _series(lines, "averaged weights", _MONITOR, "validation_ema"),
    ]
    names = {"q/logged": "logged items", "q/explored": "explored items", "q/policy": "the policy's first item"}
    values = [_series(lines, name, key) for key, name in names.items()]
    loss_note = "Means since the previous point; each part is weighted as it enters the total."
    value_note = "At the last step before each point. Values above 2 r_max / (1 − γ) would mean divergence."
    return [
        *_figure("loss", "Training loss and its parts", "loss", losses, loss_note),
        *_figure("validation", "Validation during training", f"validation {_MONITOR.upper()}", validation),
        *_figure("q", "Mean Q of the critic", "mean Q", values, value_note),
    ]


def _figure(name: str, title: str, label: str, series: Iterable[Series | None], note: str = "") -> list[Figure]:
    known = [line for line in series if line is not None][:_MOST_SERIES]
    if not known:
        return []
    values = [point.y for line in known for point in line.points]
    is_log = min(values) > 0 and max(values) / min(values) > 100
    axis = Axis(label=label, log=is_log)
    return [Figure(id=name, title=title, kind="lines", x=Axis(label="step"), y=axis, series=known, note=note)]


def _summary(run: Run, config: RunConfig, result: TrainResult | None) -> Table:
    """The run in a few rows."""
    rows = [("method", config.method_name), ("encoder", config.encoder_name)]
    if result is not None and result.data is not None:
        rows.append(("data", f"{Path(result.data.path).name} ({result.data.checksum[:16]})"))
    rows.append(("seed", str(config.train.seed)))
    amounts = {} if result is None else result.values()
    rows += [(key.replace("_", " "), _amount(amounts[key])) for key in _AMOUNTS if key in amounts]
    if result is not None and _MONITOR in (result.validation or {}):
        rows.append((f"best validation {_MONITOR.upper()}", f"{amounts['validation'][_MONITOR]:.4f}"))
    if result is not None:
        rows.append(("seconds", _amount(result.seconds)))
    if "peak_rss_bytes" in amounts:
        rows.append(("peak memory, MB", f"{amounts['peak_rss_bytes'] / 2**20:,.0f}"))
    shown = [(name, value[:_LONGEST_NAME]) for name, value in rows]
    return Table.of(f"{run.name}-run"[:_LONGEST_NAME], "The run", ["", ""], shown)


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) or number >= 1000 else f"{number:.4g}"
