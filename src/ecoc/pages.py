"""Results for people: the tables that commands print."""

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ecoc.data.schema import ITEMS
from ecoc.errors import ArtifactError
from ecoc.evaluation.ranks import REPEATS
from ecoc.model import Model, Recommendations
from ecoc.runs.folder import BEST, Run
from ecoc.storage.atomic import file_sha256

_COLUMNS = ("hr@5", "hr@10", "hr@20", "mrr@10", "ndcg@5", "ndcg@10", "ndcg@20")
_LISTS = {"coverage@10": "coverage", "popularity_lift@10": "pop. lift", "diversity@10": "diversity"}


def train_page(facts: dict[str, Any], *, profile: bool = False) -> str:
    """What came of a run."""
    lines = [f"{facts['run']}: {_kind(facts)} on {facts['items']:,} items"]
    if facts["steps"]:
        memory = facts["peak_rss_bytes"] / 2**20
        lines += [
            f"  trained    {facts['steps']:,} steps, {facts['epochs']:.3g} epochs, {facts['transitions']:,} targets in "
            f"{facts['seconds']:.1f} s ({facts['transitions_per_second']:,.0f} a second), peak memory {memory:,.0f} MB",
            f"  best       {_best(facts)}",
        ]
        if profile:
            lines += ["", *_profile(facts["parts"], facts["steps"])]
    else:
        lines.append("  counted, not trained")
    return "\n".join([*lines, "", f"  judge it   ecoc evaluate {facts['run']}"])


def _kind(facts: dict[str, Any]) -> str:
    return f"{facts['method']} {facts['encoder']}" if facts["encoder"] else str(facts["method"])


def _best(facts: dict[str, Any]) -> str:
    if facts["validation"] is None:
        return "the last weights; nothing was held out for validation"
    shown = ", ".join(f"{name} {facts['validation'][name]:.4f}" for name in ("hr@10", "ndcg@10", "ndcg@20"))
    averaged = ", averaged weights" if facts["best_weights"] == "ema" else ""
    return f"epoch {facts['best_epoch']:.3g}: validation {shown}{averaged}"


def _profile(parts: dict[str, float], steps: int) -> list[str]:
    """Where the time went, the largest part first."""
    total = sum(parts.values())
    lines = [f"  {'part of a step':<18}{'ms a step':>12}{'share':>9}"]
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        lines.append(f"  {name:<18}{1000 * seconds / max(steps, 1):>12.3f}{seconds / max(total, 1e-9):>9.1%}")
    return lines


def evaluate_page(facts: dict[str, Any]) -> str:
    """A run beside what needs no training."""
    name = Path(facts["run"]).name
    seen = "left out of the ranking" if facts["exclude_seen"] else "stay in the ranking"
    rows = [{"name": name, **facts}, *facts["untrained"]]
    interval = "  ".join(f"{key} {low:.4f} to {high:.4f}" for key, (low, high) in _chosen(facts["intervals"]))
    lines = [
        f"{facts['run']} on {facts['data']}, {facts['split']} split: {facts['cases']:,} cases of "
        f"{facts['users']:,} users, all {facts['items']:,} items ranked, items of the past {seen}",
        "",
        *_table(rows, lambda row: row["metrics"]),
        "",
        f"  95 % intervals over users for {name}: {interval}",
    ]
    if facts["acting"] != "policy":
        lines.append(
            f"  {name} acts by {facts['acting']}: it gives up likeness to the log for long-term reward;"
            " --rank-by policy ranks as its cloned policy does"
        )
    if not facts["exclude_seen"] and facts["seen"]["cases"] < REPEATS * facts["cases"]:
        lines.append(
            "  few targets are items of the user's past, yet those stay in the ranking, as in the paper; --exclude-seen"
            " leaves them out"
        )
    for kind, what in (("seen", "already in the user's past"), ("new", "not in the user's past")):
        if facts[kind]["cases"]:
            share = facts[kind]["cases"] / facts["cases"]
            lines += ["", f"  {kind} targets: {what} ({facts[kind]['cases']:,} cases, {share:.1%})"]
            lines += _table(rows, lambda row, kind=kind: row[kind]["metrics"], lists=False)
    return "\n".join(lines)


def _chosen(intervals: dict[str, list[float]]) -> list[tuple[str, list[float]]]:
    return [(key, intervals[key]) for key in ("hr@10", "ndcg@10", "ndcg@20")]


def _table(rows: Sequence[dict[str, Any]], metrics: Any, *, lists: bool = True) -> list[str]:
    """One row a run; the best of each metric is marked."""
    width = max([12, *(len(row["name"]) + 2 for row in rows)])
    best = {column: max(metrics(row)[column] for row in rows) for column in _COLUMNS}
    extra = list(_LISTS) if lists else []
    head = "".join(f"{column:>10}" for column in _COLUMNS) + "".join(f"{_LISTS[name]:>12}" for name in extra)
    lines = [f"  {'':<{width}}{head}"]
    for row in rows:
        found = metrics(row)
        cells = "".join(f"{f'{found[c]:.4f}' + ('*' if found[c] == best[c] > 0 else ' '):>10}" for c in _COLUMNS)
        shown = "".join(f"{_list_value(name, row):>12}" for name in extra)
        lines.append(f"  {row['name']:<{width}}{cells}{shown}".rstrip())
    return lines


def _list_value(name: str, row: dict[str, Any]) -> str:
    return f"{row[name]:+.2f}" if name.startswith("popularity") else f"{row[name]:.3f}"


def ranking_page(facts: dict[str, Any]) -> str:
    """Runs side by side."""
    return "\n".join(
        [
            f"  {facts['split']} split: {facts['cases']:,} cases of {facts['users']:,} users",
            *_table(_acting(facts["runs"]), lambda row: row["metrics"]),
        ]
    )


def _acting(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose names say how a run acts, where it could act otherwise."""
    return [
        row if row["acting"] == "policy" else {**row, "name": f"{row['name']} ({row['acting'].replace('-', ', ')})"}
        for row in runs
    ]


def compare_page(facts: dict[str, Any]) -> str:
    """Runs side by side, then every two of them."""
    width = max(len(f"{pair['a']} - {pair['b']}") for pair in facts["pairs"]) + 2 if facts["pairs"] else 12
    lines = [
        f"{facts['data']}, {facts['split']} split: {facts['cases']:,} cases of {facts['users']:,} users",
        "",
        *_table(_acting(facts["runs"]), lambda row: row["metrics"]),
        "",
        f"  {'difference':<{width}}{'metric':<10}{'':>9}{'95 % interval':>22}{'p':>9}{'p (Holm)':>10}",
    ]
    for pair in facts["pairs"]:
        interval = f"{pair['low']:+.4f} to {pair['high']:+.4f}"
        mark = " *" if pair["p_holm"] < 0.05 else ""
        lines.append(
            f"  {pair['a'] + ' - ' + pair['b']:<{width}}{pair['metric']:<10}{pair['difference']:>+9.4f}{interval:>22}"
            f"{pair['p']:>9.4f}{pair['p_holm']:>10.4f}{mark}"
        )
    return "\n".join([*lines, "", "  * below .05 after Holm's correction for all the comparisons above"])


def recommended(model: Model, found: Recommendations) -> dict[str, Any]:
    """What `ecoc recommend --json` answers."""
    results = []
    for items, scores, unknown, values in zip(found.items, found.scores, found.unknown, found.values, strict=True):
        listed = [
            {"item": item, "title": model.vocab.item(item).title, "score": score, "value": value}
            for item, score, value in zip_longest(items, scores, values or [])
        ]
        results.append({"items": listed, "unknown": unknown})
    return {"results": results}


def recommend_page(facts: dict[str, Any], asked: Sequence[str]) -> str:
    """Lists, each under what was asked."""
    lines = []
    for text, result in zip(asked, facts["results"], strict=True):
        lines.append(f"after {text}" if text.strip() else "without a history: what is popular")
        lines += [f"  unknown, ignored: {', '.join(result['unknown'])}"] if result["unknown"] else []
        for place, entry in enumerate(result["items"], 1):
            title = f"   {entry['title']}" if entry["title"] else ""
            value = "" if entry["value"] is None else f"   worth {entry['value']:.3f}"
            lines.append(f"  {place:>3}. {entry['item']:<16}{entry['score']:>10.4f}{value}{title}")
    return "\n".join(lines)


def run_facts(path: Path, *, verify: bool) -> dict[str, Any]:
    """What `ecoc info RUN` answers."""
    run = Run(path)
    config, result = run.config(), run.result()
    for file, key in ((run.checkpoints / f"{BEST}.safetensors", "weights_sha256"), (path / ITEMS, "items_sha256")):
        if verify and (not file.is_file() or file_sha256(file) != result.get(key)):
            raise ArtifactError(f"{file}: changed since the run ended; train again")
    facts = {"kind": "run", **result, "config": config.values(), "is_verified": verify}
    try:
        run_page(facts)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ArtifactError(f"{path}: result.json is not the result of a run; train again") from None
    return facts


def run_page(facts: dict[str, Any]) -> str:
    """A run in words."""
    lines = [train_page(facts), "", f"  data       {facts['data']['path']} ({facts['data']['checksum'][:16]}…)"]
    lines += [f"  weights    {facts['weights_sha256']}"]
    lines += ["             as they were when the run ended"] if facts["is_verified"] else []
    for section, values in facts["config"].items():
        told = ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
        lines.append(f"  {section:<11}{told}")
    return "\n".join(lines)


def simulate_page(facts: dict[str, Any]) -> str:
    """The roll-outs first, then the paper's ratio beside them, then what weighs logged decisions."""
    quality, settings = facts["simulator"], facts["settings"]
    width = _widest(facts)
    lines = [
        f"{facts['data']}: {facts['starts']:,} users, {facts['steps']:.1f} steps each, in {quality['members']}"
        f" simulators fitted on the {quality['fit_on']}; the log's own policy is 1",
        *_simulator_lines(facts),
        "",
        "  Roll-out: played step after step, less a charge for where the simulators disagree. The figure to act on.",
        rollout_lines(facts),
        "",
        "  One-step reward ratio at logged states, the paper's figure. It favours what pays now and wears off later.",
    ]
    for kind in facts["policies"][0]["one_step"]:
        lines.append(f"  {kind + ' simulator of the test split':<{width}}")
        for row in facts["policies"]:
            one = row["one_step"][kind]
            lines.append(f"    {row['name']:<{width}}{one['ratio']:>6.2f}   {one['low']:.2f} to {one['high']:.2f}")
    lines += [
        "",
        f"  Weighing logged decisions by an estimated propensity: one decision of the policy, or sessions with"
        f" {settings['mix']:.0%} of its decisions",
        f"  {'':<{width}}{'of':<18}{'estimator':<10}{'value':>8}{'95 % interval':>18}{'rests on':>10}",
    ]
    for row in facts["estimators"]:
        named = f"  {row['policy']:<{width}}{row['of']:<18}{row['estimator']:<10}"
        if row["value"] is None:
            lines.append(f"{named}{'':>8}{'nothing logged':>18}")
            continue
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        lines.append(f"{named}{row['value']:>8.3f}{interval:>18}{row['ess']:>10,.0f}")
    return "\n".join(lines)


def rollout_lines(facts: dict[str, Any]) -> str:
    """The headline of `simulate`: a line a policy."""
    width = _widest(facts)
    head = f"{'reward a step':>14}{'ratio':>8}{'95 % interval':>18}{'uncharged':>11}{'items':>8}   can it be trusted"
    lines = [*(f"  No figure can be trusted: {reason}." for reason in facts["reasons"]), f"  {'':<{width}}{head}"]
    for row in facts["policies"]:
        interval = f"{row['low']:.2f} to {row['high']:.2f}"
        own = [reason for reason in row["reasons"] if reason not in facts["reasons"]]
        trust = "nothing speaks against it" if row["trusted"] else ": ".join(["no", *["; ".join(own)] * bool(own)])
        lines.append(
            f"  {row['name']:<{width}}{row['reward']:>14.3f}{row['ratio']:>8.2f}{interval:>18}"
            f"{row['unpenalised']:>11.3f}{row['items_shown']:>8,}   {trust}"
        )
    return "\n".join(lines)


def _widest(facts: dict[str, Any]) -> int:
    return max([12, *(len(row["name"]) + 2 for row in facts["policies"])])


def _simulator_lines(facts: dict[str, Any]) -> list[str]:
    quality = facts["simulator"]
    return [
        f"  simulator  log-loss {quality['log_loss']:.4f} (shares alone {quality['log_loss_of_shares']:.4f}),"
        f" calibration error {quality['calibration_error']:.4f}, reward error {quality['reward_error']:+.1%}"
        f" on {quality['events']:,} events it never saw; logged reward {facts['logged_reward']:.3f} a step",
        f"  policies   {'never show an item twice' if facts['exclude_seen'] else 'may repeat items, as the log does'}"
        + (f"; {quality['negatives']} items at random stand for what was not taken up" if quality["negatives"] else ""),
    ]


def choose_page(facts: dict[str, Any]) -> str:
    """Reward and ranking over the weight, and which was chosen."""
    points = facts["points"]
    lines = [
        f"{facts['run']}: how much the critic has a say, played from validation histories in simulators of the training"
        " part",
        "",
        *curve_lines(points, "reward", marked=facts["w"]),
        "",
    ]
    if facts["w"] is None:
        return "\n".join([*lines, f"  not chosen, the run acts as before: {'; '.join(facts['reasons'])}"])
    lines.append(
        f"  chosen: w = {facts['w']:g}, the smallest whose reward is within 2 % of the best that can be trusted;"
        " written into the run, which acts by it from now on"
    )
    for point in points:
        lines += [f"  w = {point['w']:g} is not trusted: {'; '.join(point['reasons'])}"] * bool(point["reasons"])
    return "\n".join(lines)


def curve_lines(points: Sequence[dict[str, Any]], reward: str, marked: float | None = None) -> list[str]:
    """Reward, ranking quality and breadth over the blend's weight, as bars."""
    best = max(point[reward] for point in points)
    lines = [f"  {'w':>5}{'reward a step':>15}{'NDCG@10':>10}{'items shown':>13}"]
    for point in points:
        bar = "█" * round(30 * max(point[reward], 0.0) / max(best, 1e-9))
        numbers = f"{point[reward]:>15.3f}{point['ndcg@10']:>10.4f}{point['items_shown']:>13,.0f}"
        lines.append(f"  {point['w']:>5g}{numbers}  {bar}{'  <- chosen' * (point['w'] == marked)}")
    return lines
