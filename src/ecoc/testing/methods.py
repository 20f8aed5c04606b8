"""The contract of a method, on a toy that is learned in a moment: users walk a circle of items."""

import json
import math
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from ecoc.batch import PAD, History
from ecoc.data.prepare import prepare
from ecoc.data.sequences import Dataset
from ecoc.errors import EcocError
from ecoc.evaluation.evaluate import evaluate
from ecoc.methods import METHODS, Method
from ecoc.model import Event, Model, load
from ecoc.runs.folder import Run
from ecoc.testing.suite import require, run_checks, titled
from ecoc.training.train import train

ITEMS, USERS, EVENTS = 30, 60, 16
SETTINGS: dict[str, dict[str, Any]] = {
    "encoder": {"dim": 16, "length": 12, "dropout": 0.0},
    "train": {
        "batch": 16,
        "max_steps": 50,
        "lr": 0.02,
        "warmup": 5,
        "validate_every": 1000,
        "log_every": 25,
        "counts": "off",
    },
}
"""Settings with which 50 steps learn the toy."""
HISTORIES: list[list[Event]] = [
    ["i1", "i2", "i3"],
    ["i7"],
    [("i3", "buy"), "i4"],
    [f"i{i % ITEMS}" for i in range(40)],
    ["i5", "i5"],
    [],
]
_CLEAR = 1.1  # how many times the NDCG of popularity is clearly above it
_SPLITS = ("validation", "test")


@dataclass(frozen=True)
class MethodCase:
    """A registered method to check: trained when it is first needed, on data in a folder for its runs."""

    name: str
    data: Dataset
    folder: Path
    encoder: str = "sasrec"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def run(self) -> Run:
        """The run that most checks look at."""
        return self.train("first")

    @cached_property
    def model(self) -> Model:
        """The model of that run."""
        return load(self.run.path)

    def train(self, name: str, **sections: Mapping[str, Any]) -> Run:
        """Another run; `sections` go before the case's own settings."""
        config: dict[str, dict[str, Any]] = {}
        for layer in (SETTINGS, self.settings, sections):
            for section, values in layer.items():
                config[section] = {**config.get(section, {}), **values}
        out = self.folder / f"{self.name}-{self.encoder}-{name}"
        try:
            return train(self.data, out, method=self.name, encoder=self.encoder, config=config)
        except EcocError as error:
            raise AssertionError(f"training failed: {error}") from error

    @property
    def is_trained(self) -> bool:
        """Whether the method learns by steps."""
        return METHODS[self.name].is_trained


def check_method(
    kind: type[Method], *, encoder: str = "sasrec", settings: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Check that a method class keeps the contract; AssertionError says which part of it is broken.

    It is trained several times for 50 steps on a toy of 30 items, which takes some seconds. `settings` are sections
    encoder, method and train, if the method needs others: `{"train": {"max_steps": 150}}`.
    """
    name = f"checked_{kind.__name__.lower()}"
    with tempfile.TemporaryDirectory() as path, METHODS.registered(name, kind):
        folder = Path(path)
        data = prepare_walks(folder / "data")
        run_checks(kind.__name__, METHOD_CHECKS, MethodCase(name, data, folder, encoder, settings or {}))


def walks() -> pa.Table:
    """A log: users walk a circle of items, every tenth event strays, every third item is bought when it is met."""
    draw = random.Random(0)  # noqa: S311 - a toy
    rows = []
    for user in range(USERS):
        place = draw.randrange(ITEMS)
        for time in range(EVENTS):
            item = (place + time) % ITEMS if draw.random() < 0.9 else draw.randrange(ITEMS)
            event = "buy" if item % 3 == 0 else "click"
            rows.append({"user": f"u{user}", "item": f"i{item}", "ts": time, "event": event})
    return pa.Table.from_pylist(rows)


def prepare_walks(out: Path) -> Dataset:
    """The toy as a prepared dataset."""
    columns: dict[str, Any] = {
        "user": "user",
        "item": "item",
        "time": "ts",
        "feedback": "event",
        "reward": "click=1,buy=3",
    }
    return prepare(walks(), out, split="per-user:0.8", validation=0.2, threads=1, **columns)


def _lines(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def _result(run: Run) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run.path / "result.json").read_bytes())
    return content


def logs_finite_losses(case: MethodCase) -> None:
    """Training logs finite losses and gradients, and the loss falls."""
    if not case.is_trained:
        require(_result(case.run)["steps"] == 0, "is_trained is False, but steps were trained")
        return
    lines = [line for line in _lines(case.run) if "loss" in line]
    require(len(lines) > 1, "metrics.jsonl has no two lines with a loss")
    for line in lines:
        for key, value in line.items():
            is_number = isinstance(value, int | float) and math.isfinite(value)
            require(
                is_number or isinstance(value, dict), f"{key} is {value!r:.40} in metrics.jsonl, not a finite number"
            )
        require(any(key.startswith("loss/") for key in line), "the loss has no named part")
        require(line["norm"] > 0, "the gradient is zero: the loss does not depend on any parameter")
    require(lines[-1]["loss"] < lines[0]["loss"], f"the loss rose from {lines[0]['loss']} to {lines[-1]['loss']}")


def beats_popularity(case: MethodCase) -> None:
    """A trained policy ranks clearly better than popularity."""
    if not case.is_trained:
        return
    for split in _SPLITS:
        result = evaluate(case.model, case.data, split=split)
        popular = next(row.metrics["ndcg@10"] for row in result.untrained if row.name == "popular")
        reached = result.metrics["ndcg@10"]
        message = f"NDCG@10 on the {split} split is {reached:.3f}, popularity has {popular:.3f}"
        require(reached > _CLEAR * popular, message)


def recommends_best_first(case: MethodCase) -> None:
    """A loaded model recommends known items, best first, with finite scores."""
    model = case.model
    lists = model.recommend(HISTORIES, k=10)
    for items, scores in zip(lists.items, lists.scores, strict=True):
        require(len(items) == len(set(items)) == len(scores) == 10, f"a list is not of ten different items: {items}")
        require(all(item in model.vocab for item in items), f"a list holds unknown items: {items}")
        require(all(math.isfinite(score) for score in scores), f"a score is not finite: {scores}")
        require(scores == sorted(scores, reverse=True), f"scores do not fall: {scores}")
    for values in lists.values[:-1]:
        require((values is not None) == model.policy.has_critic, "values and has_critic do not agree")
        require(values is None or all(map(math.isfinite, values)), f"a value is not finite: {values}")
    require(lists.values[-1] is None, "an empty history has a value")


def answers_alone_as_in_a_batch(case: MethodCase) -> None:
    """A history is answered alone as in a batch."""
    together = case.model.recommend(HISTORIES, k=10)
    for place, history in enumerate(HISTORIES):
        alone = case.model.recommend([history], k=10)
        require(alone.items[0] == together.items[place], f"other items for {history!r:.60} alone than in a batch")
        for given, expected in ((alone.scores, together.scores), (alone.values, together.values)):
            pairs = zip(given[0] or [], expected[place] or [], strict=True)
            near = all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for a, b in pairs)
            require(near, f"other scores for {history!r:.60} alone than in a batch")


def never_recommends_padding(case: MethodCase) -> None:
    """Padding is never recommended, not even if its rows score higher than all others."""
    model = load(case.run.path)
    rows = {
        name: tensor
        for name, tensor in model.policy.state_dict().items()
        if len(tensor.shape) > 0 and len(tensor) == ITEMS + 1
    }
    with torch.no_grad():
        for name, tensor in rows.items():
            if "encoder" not in name:
                tensor[PAD] = 100 * tensor[1:].abs().amax()
    for sign in (1, -1):
        with torch.no_grad():
            for tensor in rows.values():
                tensor[PAD] *= sign
        lists = model.recommend(HISTORIES, k=ITEMS + 5)
        for items in lists.items:
            require(len(set(items)) == ITEMS and "" not in items, f"not all {ITEMS} items are listed: {items!r:.60}")
        with torch.inference_mode():
            query = model.policy.query(History(torch.tensor([[1, 2], [3, PAD]])))
            require(model.policy.topk(query, ITEMS)[0].amin() > PAD, "topk lists padding")


def repeats_with_the_config(case: MethodCase) -> None:
    """The config of a run gives the same bits again."""
    torch.seed()
    again = train(case.data, case.folder / f"{case.name}-{case.encoder}-again", config=case.run.path / "config.toml")
    first, second = _result(case.run), _result(again)
    message = "training twice gives other weights; draw from torch's default generator"
    require(first["weights_sha256"] == second["weights_sha256"], message)
    require(first["validation"] == second["validation"], "training twice gives other figures of validation")
    require(_without_times(_lines(again)) == _without_times(_lines(case.run)), "training twice logs other figures")
    require((again.path / "config.toml").read_text() == (case.run.path / "config.toml").read_text(), "settings differ")


def _without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "time")} for line in lines]


def depends_on_the_seed(case: MethodCase) -> None:
    """Another seed gives other weights."""
    if case.is_trained:
        other = case.train("seed", train={"seed": 1})
        message = "another seed gives the same weights"
        require(_result(other)["weights_sha256"] != _result(case.run)["weights_sha256"], message)


METHOD_CHECKS: dict[str, Callable[[MethodCase], None]] = titled(
    logs_finite_losses,
    recommends_best_first,
    answers_alone_as_in_a_batch,
    never_recommends_padding,
    beats_popularity,
    repeats_with_the_config,
    depends_on_the_seed,
)
"""Every part of the contract, by what it states."""
