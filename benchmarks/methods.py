"""Speed of the methods, as ratios measured in one run. One thread; seconds are process CPU seconds.

    python benchmarks/methods.py layout    # ECoC against the layout of the authors' released code, and supervised
    python benchmarks/methods.py growth    # step time and memory of ECoC, SQN and SA2C as the catalogue grows

The authors' layout is built here from the same encoders: one row per prefix, an actor and two critic encoders with
lagged copies of all three, nine encoder passes a step, multinomial sampling of 500 items, and h on all B x 500 gathered
rows. Batches are random: the cost of a step does not depend on what the items are.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize

from ecoc.batch import Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS
from ecoc.methods.build import build_method
from ecoc.runs.config import RunConfig
from ecoc.training.step import TrainStep

LENGTH, DIM, N1 = 50, 64, 500
_STRETCHES = 6
_PLANNED = 100_000  # steps that the learning rate is planned for


class Ours:
    """Training steps of a method on random windows."""

    def __init__(self, items: int, encoder: str, windows: int, method: dict[str, Any], *, sparse: bool = False) -> None:
        config = RunConfig.build({"encoder": {"name": encoder, "dim": DIM, "length": LENGTH}, "method": method})
        torch.manual_seed(0)
        self.items, self.windows = items, windows
        self.method = build_method(config, Dims(items, windows, 4))
        random = np.random.default_rng(0)
        logged = random.integers(1, items + 1, 200_000)
        self.method.fit_statistics(
            TrainSequences(logged, np.arange(0, len(logged) + 1, 50), np.ones(len(logged), np.float32))
        )
        self.train_step = TrainStep(self.method, config.train, steps=_PLANNED, sparse=sparse)
        self.steps = 0

    def __call__(self) -> int:
        """One step; returns the transitions learnt from."""
        events = torch.randint(1, self.items + 1, (self.windows, LENGTH + 1))
        feedback = torch.randint(1, 5, (self.windows, LENGTH))
        done = torch.zeros(self.windows, LENGTH)
        history = History(events[:, :-1], feedback, torch.arange(self.windows) + 1)
        batch = Batch(history, events[:, 1:], torch.rand(self.windows, LENGTH), done)
        self.steps += 1
        return self.train_step(batch, self.steps - 1).transitions


class Authors:
    """Training steps in the layout of the released code."""

    def __init__(self, items: int, encoder: str, rows: int = 256) -> None:
        torch.manual_seed(0)
        kind, dims = ENCODERS[encoder], Dims(items)
        config = kind.Config.build({"dim": DIM, "length": LENGTH, "dropout": 0.25})
        self.items, self.rows = items, rows
        self.actor = nn.ModuleDict({"table": nn.Embedding(items + 1, DIM), "encoder": kind(config, dims)})
        self.critic = nn.ModuleDict(
            {
                "one": kind(config, dims),
                "two": kind(config, dims),
                "h": nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.Linear(256, DIM)),
            }
        )
        self.actor_behind, self.critic_behind = deepcopy(self.actor), deepcopy(self.critic)
        self.optimisers = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (self.actor, self.critic)]

    def __call__(self) -> int:
        """One step; returns the transitions learnt from."""
        events = torch.randint(1, self.items + 1, (self.rows, LENGTH + 1))
        now, then, item = History(events[:, :-1]), History(events[:, 1:]), events[:, -1]
        reward = torch.rand(self.rows)
        self._critic_step(now, then, item, reward)
        self._actor_step(now, item)
        for behind, net in ((self.actor_behind, self.actor), (self.critic_behind, self.critic)):
            with torch.no_grad():
                for lagged, live in zip(behind.parameters(), net.parameters(), strict=True):
                    lagged.mul_(0.995).add_(live, alpha=0.005)
        return self.rows

    @staticmethod
    def _mu(actor: nn.ModuleDict, history: History) -> tuple[Tensor, Tensor]:
        embedded = actor["encoder"].embed(actor["table"].weight, history)  # type: ignore[operator]
        return actor["encoder"](embedded, history)[:, -1], embedded.detach()

    def _critic_step(self, now: History, then: History, item: Tensor, reward: Tensor) -> None:
        with torch.no_grad():
            mu, embedded = self._mu(self.actor_behind, then)
            table = self.actor_behind["table"].weight
            drawn = torch.multinomial((mu @ table.T).softmax(1), 1).squeeze(1)  # type: ignore[operator]
            action = self.critic_behind["h"](normalize(table[drawn], dim=1))  # type: ignore[index]
            pair = [self.critic_behind[name](embedded, then)[:, -1] for name in ("one", "two")]
            aim = reward + 0.5 * (torch.minimum(*pair) * action).sum(1)
            mu, embedded = self._mu(self.actor, now)
            table = self.actor["table"].weight
            explored = torch.multinomial((mu @ table.T).softmax(1), N1)  # type: ignore[operator]
            near = normalize(table[explored], dim=2)  # type: ignore[index]
            taken = normalize(table[item], dim=1)  # type: ignore[index]
        loss = torch.zeros(())
        for name in ("one", "two"):
            state = self.critic[name](embedded, now)[:, -1]
            q = (state * self.critic["h"](taken)).sum(1)
            others = (state[:, None] * self.critic["h"](near)).sum(2)  # h on B x N1 rows
            loss = loss + mse_loss(q, aim) + 5 * ((others.softmax(1) * others).sum(1) - q).mean()
        self._descend(loss, 1)

    def _actor_step(self, now: History, item: Tensor) -> None:
        mu, embedded = self._mu(self.actor, now)
        with torch.no_grad():
            pair = [self.critic[name](embedded, now)[:, -1] for name in ("one", "two")]
        direction = -(torch.minimum(*pair) * self.critic["h"](normalize(mu, dim=1))).sum(1).mean()
        self._descend(cross_entropy(mu @ self.actor["table"].weight.T, item) + direction, 0)  # type: ignore[operator]

    def _descend(self, loss: Tensor, number: int) -> None:
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimisers[number].step()


def rates(walks: dict[str, tuple[Callable[[], int], int]]) -> dict[str, float]:
    """Transitions a CPU second: the best of a few stretches of so many steps each, in turn, after a warm-up."""
    best = dict.fromkeys(walks, 0.0)
    for step, _ in walks.values():
        step()
    for _ in range(_STRETCHES):
        for name, (step, steps) in walks.items():
            started = time.process_time()
            count = sum(step() for _ in range(steps))
            best[name] = max(best[name], count / (time.process_time() - started))
    return best


PAPER = {
    "critic": "shared",
    "dc": 1.0,
    "alpha": 5.0,
    "gamma": 0.5,
    "trace": 0.0,
    "dueling": False,
    "hidden": 256,
    "next_from": "target",
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "supervised, shared negatives": {"name": "supervised", "loss": "sampled"},
    "supervised, full softmax": {"name": "supervised", "loss": "full"},
    "ECoC default, pooled xi": {"name": "ecoc", "loss": "sampled", "xi": "pool"},
    "ECoC default, exact xi": {"name": "ecoc", "loss": "full", "xi": "gumbel", "n1": N1, "backup": "sample"},
    "ECoC paper, pooled xi": {"name": "ecoc", "loss": "sampled", "xi": "pool", "backup": "sample", **PAPER},
    "ECoC paper, exact xi": {"name": "ecoc", "loss": "full", "xi": "gumbel", "n1": N1, "backup": "sample", **PAPER},
}


def layout(arguments: argparse.Namespace) -> None:
    """Transitions a second of every layout, and their ratios to the authors' and to supervised training."""
    for encoder in arguments.encoders.split(","):
        walks: dict[str, tuple[Callable[[], int], int]] = {"authors layout": (Authors(arguments.items, encoder), 2)}
        for name, method in LAYOUTS.items():
            walks[name] = Ours(arguments.items, encoder, arguments.windows, method), arguments.steps
        found = rates(walks)
        slow = found.pop("authors layout")
        print(f"\n{encoder}, {arguments.items:,} items, d {DIM}, length {LENGTH}, {arguments.windows} windows a step")
        print(f"{'':<32}{'transitions/core-s':>20}{'x authors':>11}{'cost / supervised':>19}")
        print(f"{'authors layout':<32}{slow:>20,.0f}{1:>11}")
        base: dict[str, float] = {}
        for name, fast in found.items():
            cost = base.setdefault(LAYOUTS[name]["loss"], fast) / fast
            print(f"{name:<32}{fast:>20,.0f}{fast / slow:>11.0f}{cost:>19.2f}", flush=True)


GROWING: dict[str, dict[str, Any]] = {
    "ecoc": {"name": "ecoc"},
    "sqn": {"name": "sqn"},
    "sa2c": {"name": "sa2c"},
}


def growth(arguments: argparse.Namespace) -> None:
    """The same step with ever more items, each in a process of its own."""
    print(f"{'method':<8}{'items':>10}{'ms a step':>12}{'ratio':>8}{'peak RSS MB':>13}")
    for name in GROWING:
        first = 0.0
        for items in (int(text) for text in arguments.catalogues.split(",")):
            command = [sys.executable, __file__, "one", name, str(items), "--windows", str(arguments.windows)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.strip().splitlines()[-1])
            first = first or found["ms"]
            print(
                f"{name:<8}{items:>10,}{found['ms']:>12.1f}{found['ms'] / first:>8.2f}{found['rss']:>13,.0f}",
                flush=True,
            )


def one(arguments: argparse.Namespace) -> None:
    """One cell of `growth`."""
    step = Ours(arguments.items, "sasrec", arguments.windows, GROWING[arguments.name], sparse=arguments.name == "ecoc")
    best = rates({"step": (step, 3)})["step"]
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": 1000 * arguments.windows * LENGTH / best, "rss": rss}))


def main() -> None:
    """Choose a part."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("layout")
    part.add_argument("--encoders", default="sasrec,nextitnet")
    part.add_argument("--items", type=int, default=3400)
    part.add_argument("--steps", type=int, default=15)
    part.set_defaults(work=layout)
    other = parts.add_parser("growth")
    other.add_argument("--catalogues", default="50000,500000")
    other.set_defaults(work=growth)
    cell = parts.add_parser("one")
    cell.add_argument("name")
    cell.add_argument("items", type=int)
    cell.set_defaults(work=one)
    for each in (part, other, cell):
        each.add_argument("--windows", type=int, default=14)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
