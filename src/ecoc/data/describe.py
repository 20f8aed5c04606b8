"""A prepared dataset in words: the JSON of `ecoc info` and the page it prints."""

import json
from typing import Any

from ecoc.data.schema import PROVENANCE
from ecoc.data.sequences import Dataset

_STEPS_SHOWN = 8


def summary(data: Dataset) -> dict[str, Any]:
    """What `ecoc prepare --json` and `ecoc info --json` answer; keys may be added, never renamed."""
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
        "bad_rows": _provenance(data).get("bad_rows", []),
        "checksum": manifest.checksum,
    }


def page(facts: dict[str, Any]) -> str:
    """The summary for a person."""
    counts, statistics = facts["counts"], facts["statistics"]
    lengths, popularity, reward = (statistics[key] for key in ("sequence_length", "events_per_item", "reward"))
    lines = [
        f"{facts['path']}: a prepared dataset from source '{facts['source']}' (format version {facts['version']})",
        "",
        f"  interactions  {counts['interactions']:>12,}   of {facts['rows_in']:,} rows in the log",
        f"  users         {counts['users']:>12,}",
        f"  sequences     {counts['sequences']:>12,}   length: median {lengths['median']:g}, 90 % up to "
        f"{lengths['p90']:g}, longest {lengths['max']:g}",
        f"  items         {counts['items']:>12,}   events: median {popularity['median']:g}, 90 % up to "
        f"{popularity['p90']:g}, most {popularity['max']:g}",
        f"  times         {statistics['first_time']} to {statistics['last_time']}",
        f"  reward        mean {reward['mean']:.4g}, from {reward['min']:g} to {reward['max']:g}",
        "  feedback      " + _feedback(facts),
        "",
        f"  split         {facts['split']}"
        + (f", cut at {facts['cut_time']} ({facts['cut']})" if facts["cut"] is not None else ""),
        f"  train         {counts['train']:>12,}   events in {counts['train_sequences']:,} sequences",
        f"  validation    {counts['validation']:>12,}   events in {counts['validation_sequences']:,} sequences",
        f"  test          {counts['test']:>12,}   events in {counts['test_sequences']:,} sequences, "
        f"{counts['test_targets']:,} of them targets",
        "",
        *_steps(facts),
        *_dropped(facts),
        *_paper(facts),
        f"  checksum      {facts['checksum']}",
    ]
    return "\n".join(lines)


def _feedback(facts: dict[str, Any]) -> str:
    names, rewards = facts["feedback"]["names"], facts["feedback"]["rewards"]
    counted = facts["statistics"]["feedback"]
    worth = [f" (reward {value:g})" for value in rewards] if rewards else [""] * len(names)
    return ", ".join(f"{name}{what} {counted[name]:,}" for name, what in zip(names, worth, strict=True))


def _steps(facts: dict[str, Any]) -> list[str]:
    rows = facts["steps"]
    shown = rows if len(rows) <= _STEPS_SHOWN else [*rows[:3], None, *rows[-3:]]
    lines = [f"  {'step':<28}{'interactions':>14}{'sequences':>12}{'items':>12}"]
    for row in shown:
        if row is None:
            lines.append(f"  … {len(rows) - 6} more steps")
        else:
            lines.append(f"  {row['name']:<28}{row['interactions']:>14,}{row['sequences']:>12,}{row['items']:>12,}")
    return [*lines, ""]


def _dropped(facts: dict[str, Any]) -> list[str]:
    if not facts["dropped"]:
        return ["  dropped       nothing", ""]
    kept, total = facts["counts"]["interactions"], sum(facts["dropped"].values())
    reasons = ", ".join(f"{reason} {rows:,}" for reason, rows in facts["dropped"].items())
    lines = [
        f"  dropped       {reasons}",
        f"                {kept:,} kept + {total:,} dropped = {facts['rows_in']:,} rows",
    ]
    if facts["bad_rows"]:
        lines += ["  first bad rows", *(f"    {example}" for example in facts["bad_rows"])]
    return [*lines, ""]


def _paper(facts: dict[str, Any]) -> list[str]:
    """Next to the paper's table of statistics, for its three datasets."""
    if not facts["reference"]:
        return []
    filtered = facts["steps"][-2] if len(facts["steps"]) > 1 else facts["steps"][-1]
    rows = [
        ("this dataset, filtered", {**filtered, "users": facts["counts"]["users"]}),
        ("with the other filter rule", facts["alternative"]),
        ("the paper's table", facts["reference"]),
    ]
    lines = [f"  {'statistics':<28}{'interactions':>14}{'users':>12}{'items':>12}"]
    lines += [f"  {name:<28}{row['interactions']:>14,}{row['users']:>12,}{row['items']:>12,}" for name, row in rows]
    return [*lines, ""]


def _provenance(data: Dataset) -> dict[str, Any]:
    """Where the data came from; it is for people only, so a missing or broken one is no error."""
    try:
        found = json.loads((data.path / PROVENANCE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
