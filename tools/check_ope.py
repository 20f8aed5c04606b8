"""Estimate what policies earn from real logs, where what they really earn is known, and compare.

    python tools/check_ope.py FOLDER

FOLDER holds open-bandit-small/, jester-dense/, coat/. A set that is not there is named as not checked. Exit code 1 if
an estimate does not keep what it promises: see each check.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecoc.ope.estimators import Decisions, Estimate, one_step

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEED = 0
CAMPAIGNS = ("all", "men", "women")
TRUST = 50.0  # events of its own that weigh as much as all items' mean in an item's
LOGS, USERS, EACH = 40, 300, 5  # fresh logs of jester, people in each, jokes each is shown
HELD = 35  # of so many logs an interval of 95 % holds the truth in fewer than this once in seventy times


@dataclass(frozen=True)
class Outcome:
    """Estimates of one policy, beside what it really earns, and what is wrong with them."""

    name: str
    estimates: list[Estimate]
    truth: float
    wrong: list[str]
    note: str = ""

    def __str__(self) -> str:
        digits = 2 if abs(self.truth) > 0.1 else 5
        lines = [f"{self.name}: truth {self.truth:.{digits}f}{self.note}"]
        for one in self.estimates:
            inside = "inside" if holds(one, self.truth) else "outside"
            interval = f"{one.low:.{digits}f} .. {one.high:.{digits}f}"
            lines.append(f"  {one.estimator:8}{one.value:10.{digits}f}  {interval:20}  {inside:8} ess {one.ess:7.0f}")
        return "\n".join(lines + [f"  WRONG: {one}" for one in self.wrong])


def holds(one: Estimate, truth: float) -> bool:
    """Whether an interval does."""
    return one.low <= truth <= one.high


@dataclass(frozen=True)
class Banner:
    """A log of Open Bandit: [N] each."""

    item: Ints
    position: Ints
    click: Floats
    chance: Floats

    def shares(self, items: int) -> Floats:
        """How often each item was shown at each position, as a share of the position, [items, 4]."""
        table = np.zeros((items, 4))
        np.add.at(table, (self.item, self.position), 1)
        found: Floats = table / np.maximum(table.sum(0), 1)
        return found


def read_banner(path: Path) -> Banner:
    """One policy's log of one campaign."""
    rows = pd.read_csv(path, usecols=["item_id", "position", "click", "propensity_score"])
    return Banner(
        rows.item_id.to_numpy(np.int64),
        rows.position.to_numpy(np.int64),
        rows.click.to_numpy(np.float64),
        rows.propensity_score.to_numpy(np.float64),
    )


def across(log: Banner, other: Banner) -> list[Estimate]:
    """What the policy of the other log earns, by this one: its shares by position, this log's true propensities.

    The log names no users, so each decision is one.
    """
    items = int(max(log.item.max(), other.item.max())) + 1
    shares = other.shares(items)
    model = shrunk_means(log.item, log.click, items)
    decisions = Decisions(
        log.click,
        shares[log.item, log.position] / log.chance,
        model[log.item],
        (shares * model[:, None]).sum(0)[log.position],
        np.arange(len(log.item)),
    )
    return one_step(decisions, seed=SEED)


def shrunk_means(item: Ints, reward: Floats, items: int) -> Floats:
    """Mean reward of each item, drawn to the mean of all."""
    total, count = np.bincount(item, reward, items), np.bincount(item, minlength=items)
    found: Floats = (total + TRUST * reward.mean()) / (count + TRUST)
    return found


def open_bandit(folder: Path) -> Iterator[Outcome]:
    """The uniform log says what Thompson sampling (bts) earns; the other way round, weights are wild: only printed."""
    for campaign in CAMPAIGNS:
        logs = {policy: read_banner(folder / policy / campaign / f"{campaign}.csv.gz") for policy in ("random", "bts")}
        truth, found = float(logs["bts"].click.mean()), across(logs["random"], logs["bts"])
        missed = [one.estimator for one in found if one.estimator != "dm" and not holds(one, truth)]
        wrong = [f"{name} does not hold the truth" for name in missed]
        yield Outcome(f"open bandit, {campaign}, bts by the random log", found, truth, wrong)
        truth, found = float(logs["random"].click.mean()), across(logs["bts"], logs["random"])
        yield Outcome(f"open bandit, {campaign}, random by the bts log", found, truth, [], " (for information)")


def jester(folder: Path) -> Iterator[Outcome]:
    """People who rated every joke: whatever a policy shows, the answer is known.

    Means and tastes are learnt from one half of the people. To the other half a softmax shows jokes, and logs its
    chances. A policy's truth is its mean over all answers of that half; the table is of the first log.
    """
    table = pd.read_csv(folder / "jester-data-1.csv.gz", header=None).to_numpy(np.float64)
    ratings = table[table[:, 0] == 100, 1:]  # [7200, 100]
    random = np.random.default_rng(SEED)
    others, people = np.split(random.permutation(ratings), 2)
    means, liked = np.tile(others.mean(0), (len(people), 1)), tastes(others, people)
    logging = softmax(means / 3)
    for name, target, model in (
        ("a softmax of means", softmax(means), means),
        ("a softmax of each one's taste", softmax(liked / 2), liked),
    ):
        truth = float((target * people).sum(1).mean())
        logs = [one_step(logged(people, logging, target, model, random), seed=SEED) for _ in range(LOGS)]
        held = {one.estimator: sum(holds(log[k], truth) for log in logs) for k, one in enumerate(logs[0])}
        width = {
            one.estimator: float(np.mean([log[k].high - log[k].low for log in logs])) for k, one in enumerate(logs[0])
        }
        wrong = [f"{one} holds the truth too rarely" for one in ("ips", "snips", "dr") if held[one] < HELD]
        wrong += ["dr is wider than ips"] * (width["dr"] > width["ips"])
        note = f"; of {LOGS} logs held by " + ", ".join(f"{one} {count}" for one, count in held.items())
        note += f"; mean width of ips {width['ips']:.2f}, of dr {width['dr']:.2f}"
        yield Outcome(f"jester, {name}", logs[0], truth, wrong, note)


def logged(people: Floats, logging: Floats, target: Floats, model: Floats, random: np.random.Generator) -> Decisions:
    """Some people, each shown a few jokes by the logging policy; all tables [people, jokes]."""
    user = np.repeat(random.choice(len(people), USERS, replace=False), EACH)
    shown = (logging[user].cumsum(1) < random.random((len(user), 1))).sum(1)
    weight = target[user, shown] / logging[user, shown]
    return Decisions(people[user, shown], weight, model[user, shown], (target * model).sum(1)[user], user)


def tastes(others: Floats, people: Floats) -> Floats:
    """Ratings of all jokes as ridge regression predicts them from the first eight, learnt from other people."""
    known = np.column_stack([others[:, :8], np.ones(len(others))])
    solved = np.linalg.solve(known.T @ known + 10 * np.eye(9), known.T @ others)
    found: Floats = np.column_stack([people[:, :8], np.ones(len(people))]) @ solved
    return found


def softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    grown = np.exp(scores - scores.max(-1, keepdims=True))
    found: Floats = grown / grown.sum(-1, keepdims=True)
    return found


def coat(folder: Path) -> Iterator[Outcome]:
    """Ratings of coats that people chose themselves, corrected by propensities, against those of coats at random.

    The propensities are estimates, so intervals promise nothing; but corrected values have to be nearer to the truth.
    """
    train, test = np.loadtxt(folder / "train.ascii"), np.loadtxt(folder / "test.ascii")  # [290, 300]
    seen = np.loadtxt(folder / "propensities.ascii.gz")
    user, item = np.nonzero(train)
    reward, chance = train[user, item], (seen / seen.sum(1, keepdims=True))[user, item]
    model = shrunk_means(item, reward, train.shape[1])
    for name, scores in (("any coat", np.zeros_like(model)), ("a softmax of means", model)):
        target = softmax(scores)
        rated = (test > 0) * target
        truth, naive = float((rated * test).sum() / rated.sum()), float(np.average(reward, weights=target[item]))
        value = np.full(len(user), target @ model)
        found = one_step(Decisions(reward, target[item] / chance, model[item], value, user), seed=SEED)
        near = {one.estimator: abs(one.value - truth) for one in found}
        wrong = [
            f"{one} is no nearer than the naive mean" for one in ("snips", "dr") if near[one] >= abs(naive - truth)
        ]
        yield Outcome(f"coat, {name}", found, truth, wrong, f"; naive {naive:.2f}, propensities estimated")


CHECKS: dict[str, Callable[[Path], Iterator[Outcome]]] = {
    "open-bandit-small": open_bandit,
    "jester-dense": jester,
    "coat": coat,
}


def main(folder: Path) -> int:
    """Check whatever is in `folder`."""
    if not folder.is_dir():
        print(f"off-policy estimates: not checked, no folder {folder} (set ECOC_SHARED_DATA)")
        return 0
    failures = 0
    for name, check in CHECKS.items():
        if not (folder / name).is_dir():
            print(f"{name}: not checked, no {folder / name}")
            continue
        for outcome in check(folder / name):
            failures += bool(outcome.wrong)
            print(outcome)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
