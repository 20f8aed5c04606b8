"""Description of a prepared dataset: the JSON of `ecoc info` and the text it prints."""

from typing import Any

from ecoc.data.schema import PROVENANCE
from ecoc.data.sequences import Dataset
from ecoc.errors import ArtifactError
from ecoc.storage.trusted import is_there, load_json, printable

_STEPS_SHOWN = 8


def summary(data: Dataset) -> dict[str, Any]:
    """Answer of `ecoc prepare --json` and `ecoc info --json`; keys may be added, never renamed."""
    manifest = data.manifest
    dumped = manifest.model_dump(mode="json")
    return {
        "kind": "dataset",
        "path": str(data.path),
        "source": manifest.source,
        "version": manifest.version,
        "counts": dumped["counts"],
        "steps": dumped["steps"],
        "rows_in": manifest.rows_in,
        "dropped": dumped["dropped"],
        "split": manifest.settings.get("split"),
        "cut": manifest.cut,
        "cut_time": None if manifest.cut is None else data.readable_time(manifest.cut),
        "time_unit": manifest.time_unit,
        "feedback": dumped["feedback"],
        "statistics": data.statistics(),
        "reference": dumped["reference"],
        "alternative": dumped["alternative"],
        "settings": dumped["settings"],
        **_provenance(data),
        "checksum": manifest.checksum,
    }


def page(info: dict[str, Any]) -> str:
    """The summary as text for a terminal."""
    info = _printable_values(info)
    counts, statistics = info["counts"], info["statistics"]
    lengths, popularity, reward = (statistics[key] for key in ("sequence_length", "events_per_item", "reward"))
    lines = [
        f"{info['path']}: a prepared dataset from source '{info['source']}' (format version {info['version']})",
        "",
        f"  interactions  {counts['interactions']:>12,}   of {info['rows_in']:,} rows in the log",
        f"  users         {counts['users']:>12,}",
        f"  sequences     {counts['sequences']:>12,}   length: median {lengths['median']:g}, 90 % up to "
        f"{lengths['p90']:g}, longest {lengths['max']:g}",
        f"  items         {counts['items']:>12,}   events: median {popularity['median']:g}, 90 % up to "
        f"{popularity['p90']:g}, most {popularity['max']:g}",
        f"  times         {statistics['first_time']} to {statistics['last_time']}",
        f"  reward        mean {reward['mean']:.4g}, from {reward['min']:g} to {reward['max']:g}"
        + (f"; {reward['negative']:,} events have a negative reward" if reward["negative"] else ""),
        "  feedback      " + _feedback(info),
        "",
        f"  split         {info['split']}"
        + (f", cut at {info['cut_time']} ({info['cut']})" if info["cut"] is not None else ""),
        f"  train         {counts['train']:>12,}   events in {counts['train_sequences']:,} sequences",
        f"  validation    {counts['validation']:>12,}   events in {counts['validation_sequences']:,} sequences",
        f"  test          {counts['test']:>12,}   events in {counts['test_sequences']:,} sequences, "
        f"{counts['test_targets']:,} of them targets",
        "",
        *_steps(info),
        *_dropped(info),
        *_paper(info),
        *(f"  warning       {warning}" for warning in info["warnings"]),
        f"  checksum      {info['checksum']}",
    ]
    return "\n".join(lines)


def _printable_values(value: Any) -> Any:
    """The same values; a name or a line of a log in them stays on its line and cannot steer the terminal."""
    if isinstance(value, dict):
        return {_printable_values(key): _printable_values(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [_printable_values(content) for content in value]
    return printable(value) if isinstance(value, str) else value


def _feedback(info: dict[str, Any]) -> str:
    names, rewards = info["feedback"]["names"], info["feedback"]["rewards"]
    counted = info["statistics"]["feedback"]
    shown_rewards = [f" (reward {value:g})" for value in rewards] if rewards else [""] * len(names)
    return ", ".join(f"{name}{reward} {counted[name]:,}" for name, reward in zip(names, shown_rewards, strict=True))


def _steps(info: dict[str, Any]) -> list[str]:
    rows = info["steps"]
    shown = rows if len(rows) <= _STEPS_SHOWN else [*rows[:3], None, *rows[-3:]]
    lines = [f"  {'step':<28}{'interactions':>14}{'sequences':>12}{'items':>12}"]
    for row in shown:
        if row is None:
            lines.append(f"  … {len(rows) - 6} more steps")
        else:
            lines.append(f"  {row['name']:<28}{row['interactions']:>14,}{row['sequences']:>12,}{row['items']:>12,}")
    return [*lines, ""]


def _dropped(info: dict[str, Any]) -> list[str]:
    if not info["dropped"]:
        return ["  dropped       nothing", ""]
    kept, total = info["counts"]["interactions"], sum(info["dropped"].values())
    reasons = ", ".join(f"{reason} {rows:,}" for reason, rows in info["dropped"].items())
    where = info["settings"].get("where")
    lines = [
        *([f"  where         {where}"] if where else []),
        f"  dropped       {reasons}",
        f"                {kept:,} kept + {total:,} dropped = {info['rows_in']:,} rows",
    ]
    if info["bad_rows"]:
        lines += ["  first bad rows", *(f"    {example}" for example in info["bad_rows"])]
    return [*lines, ""]


def _paper(info: dict[str, Any]) -> list[str]:
    """Comparison with the paper's table of statistics, for its three datasets."""
    if not info["reference"]:
        return []
    filtered = info["steps"][-2] if len(info["steps"]) > 1 else info["steps"][-1]
    rows = [
        ("this dataset, filtered", {**filtered, "users": info["counts"]["users"]}),
        ("with the other filter rule", info["alternative"]),
        ("the paper's table", info["reference"]),
    ]
    lines = [f"  {'statistics':<28}{'interactions':>14}{'users':>12}{'items':>12}"]
    lines += [f"  {name:<28}{row['interactions']:>14,}{row['users']:>12,}{row['items']:>12,}" for name, row in rows]
    return [*lines, ""]


def _provenance(data: Dataset) -> dict[str, list[str]]:
    """Bad rows and warnings, as `provenance.json` holds them; it is informative only, so it may be missing."""
    path = data.path / PROVENANCE
    content = load_json(path, folder=data.path, remedy="remove it") if is_there(path) else {}
    notes = {key: content.get(key, []) for key in ("bad_rows", "warnings")}
    if not all(isinstance(lines, list) and all(isinstance(line, str) for line in lines) for lines in notes.values()):
        raise ArtifactError(f"{path}: not the provenance of a dataset; remove it")
    return notes
