"""What `simulate` found, as a table and bars: the roll-out, the paper's ratio, and the truth where it is known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ecoc.ope.simulate import LOGGED
from ecoc.report.document import Axis, Cell, Column, Figure, Number, Point, Series, Table

CAVEATS = (
    "The simulators know only what the log shows. Where the logging policy acted on something that is not in the log,"
    " they credit items with it, and every figure is too high alike; ranks suffer less than levels.",
    "The one-step ratio asks what a single recommendation at a logged state would earn. It rewards what pays now and"
    " wears off later, and in the built-in worlds its ranking says nothing of the truth, or the reverse (see ecoc"
    " reproduce ope-truth).",
    "Figures marked as not trusted rest on what the log hardly holds: states, items, refusals; do not choose by them.",
)
_LONGEST = 20_000

Facts = Mapping[str, Any]


def explained(facts: Facts) -> list[str]:
    """How the figures came about, and how good the simulators are."""
    quality, settings = facts["simulator"], facts["settings"]
    return [
        "Each policy is played step after step, from logged test histories, in an ensemble of user simulators fitted on"
        " the log; the log's own policy, estimated, is played in the same simulators and is 1. A policy is charged"
        f" {settings['penalty']:g} × what the simulators disagree about its steps more than about the log's own.",
        f"The simulators on {quality['events']:,} held-out events: log-loss {quality['log_loss']:.4f} against"
        f" {quality['log_loss_of_shares']:.4f} of the feedback's shares alone, calibration error"
        f" {quality['calibration_error']:.4f}, reward error {quality['reward_error']:+.1%}.",
    ]


def reward_table(facts: Sequence[Facts], earned: Mapping[str, Sequence[float]], *, name: str, title: str) -> Table:
    """One row a policy; `facts` are of one seed each, `earned` the true rewards of each seed, if known."""
    columns = [
        Column(name="policy"),
        Column(name="roll-out, log = 1", better="high", digits=3),
        Column(name="trusted"),  # beside what it is about, where a narrow page still shows it
        Column(name="uncharged", digits=3),
        Column(name="one-step ratio (the paper's)", digits=3),
        Column(name="items shown", digits=0),
        *[Column(name="true reward a step", better="high", digits=3)] * bool(earned),
    ]
    base = [one["policies"][0]["reward"] for one in facts]
    body: list[list[Cell]] = []
    common = _common(facts)
    doubts = []
    for policy, rows in _by_policy(facts).items():
        reasons = list(dict.fromkeys(text for row in rows for text in row["reasons"]))
        own = [text for text in reasons if text not in common]
        doubts += [f"{policy}: {'; '.join(own)}."] if own else []
        truth = earned.get(policy, [])
        spread = float(np.std(truth, ddof=1)) if len(truth) > 1 else None
        really: Cell = Number(value=float(np.mean(truth)), sd=spread) if len(truth) else None
        body.append(
            [
                policy,
                _ratio(rows),
                "no" if reasons else "yes",
                _mean([row["unpenalised"] / unit for row, unit in zip(rows, base, strict=True)]),
                _mean([row["one_step"]["conditional"]["ratio"] for row in rows]),
                _mean([row["items_shown"] for row in rows]),
                *[really] * bool(earned),
            ]
        )
    note = f"{facts[0]['starts']:,} users, {facts[0]['steps']:.1f} steps each; intervals over users and simulators"
    note += f" and {len(facts)} seeds." if len(facts) > 1 else "."
    note += f" No figure can be trusted: {'; '.join(common)}." if common else ""
    note += " Not trusted: " + " ".join(doubts) if doubts else ""
    return Table(id=name, title=title, columns=columns, rows=body, note=note[:_LONGEST])


def reward_finding(facts: Sequence[Facts], title: str) -> str:
    """What the roll-outs say of the learned policies, the best that can be trusted first."""
    learned = {name: rows for name, rows in _by_policy(facts).items() if rows[0]["kind"] == "run"}
    trusted = [name for name, rows in learned.items() if not any(row["reasons"] for row in rows)]
    common = _common(facts)
    if not trusted:
        return f"{title}: no figure of a learned policy can be trusted{': ' * bool(common)}{'; '.join(common)}."
    ratio = {name: _ratio(learned[name]).value for name in trusted}
    first, *others = sorted(ratio, key=lambda name: -ratio[name])
    told = "".join(f"; {name} {ratio[name]:.2f}" for name in others[:3])
    return f"{title}: {first} earns {ratio[first]:.2f} times what the log's policy earns, by roll-outs{told}."


def reward_figures(facts: Sequence[Facts], *, name: str, title: str) -> list[Figure]:
    """Bars of the roll-out and of the paper's ratio, with the log as a line at 1."""
    rows = {policy: found for policy, found in _by_policy(facts).items() if policy != LOGGED}
    rolled = [_ratio(found) for found in rows.values()]
    stepped = [_mean([row["one_step"]["conditional"]["ratio"] for row in found]) for found in rows.values()]
    doubted = [policy for policy, one in zip(rows, rolled, strict=True) if not one.is_compared]
    note = f"Not to be trusted: {', '.join(doubted)}." if doubted else ""
    if common := _common(facts):
        note = f"No figure can be trusted: {'; '.join(common)}."
    bars = _bars(f"{name}-rollout", f"Roll-out reward{title}", "roll-out reward, log = 1", list(rows), rolled)
    return [
        bars.model_copy(update={"note": note}),
        _bars(f"{name}-one-step", f"One-step reward ratio{title}", "one-step ratio, log = 1", list(rows), stepped),
    ]


def _bars(name: str, title: str, label: str, policies: list[str], values: Sequence[Number]) -> Figure:
    points = [Point(x=place, y=one.value, low=one.low, high=one.high) for place, one in enumerate(values)]
    return Figure(
        id=name,
        title=title,
        kind="bars",
        x=Axis(label="policy", names=policies),
        y=Axis(label=label, line=1.0),
        series=[Series(name="ratio", points=points)],
    )


def _common(facts: Sequence[Facts]) -> list[str]:
    """What speaks against every figure of some seed."""
    return list(dict.fromkeys(reason for one in facts for reason in one["reasons"]))


def _by_policy(facts: Sequence[Facts]) -> dict[str, list[Facts]]:
    """What each policy got, a seed each."""
    found: dict[str, list[Facts]] = {}
    for one in facts:
        for row in one["policies"]:
            found.setdefault(row["name"], []).append(row)
    return found


def _mean(values: Sequence[float]) -> Number:
    return Number(value=float(np.mean(values)))


def _ratio(rows: Sequence[Facts]) -> Number:
    """Mean over seeds; its interval joins those of the seeds with how much the seeds differ."""
    ratios = np.array([row["ratio"] for row in rows])
    half = np.mean([(row["high"] - row["low"]) / 2 for row in rows]) / len(rows) ** 0.5
    spread = 1.96 * ratios.std(ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else 0.0
    mean, reach = float(ratios.mean()), float(np.hypot(half, spread))
    return Number(value=mean, low=mean - reach, high=mean + reach, is_compared=not any(row["reasons"] for row in rows))
