"""Wrong arguments of every public function: each is refused by an InputError of one line that names the argument."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.ope.results import RolloutConfig
from ecoc.testing.methods import SETTINGS, prepare_walks

pytestmark = pytest.mark.usefixtures("one_thread")


class Made(NamedTuple):
    """Something right to combine with what is wrong."""

    data: Dataset
    model: Model
    out: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("misuse")
    data = prepare_walks(folder / "data")
    short = {**SETTINGS, "train": {**SETTINGS["train"], "max_steps": 5}}
    return Made(data, ecoc.load(ecoc.train(data, folder / "run", config=short).path), folder / "out")


Misuse = Callable[[Any], Any]
api: Any = ecoc  # what a type checker would refuse is the point
rollouts: Any = RolloutConfig
COLUMNS: dict[str, Any] = {"user": "u", "item": "i", "time": "t"}
MISUSES: dict[str, tuple[Misuse, str]] = {
    "prepare None": (lambda m: api.prepare(None, m.out), "source: expected a path"),
    "prepare a number": (lambda m: api.prepare(3, m.out), "source: expected a path"),
    "prepare bytes": (lambda m: api.prepare(b"log.csv", m.out), "source: expected a path"),
    "prepare a list with None": (lambda m: api.prepare(["log.csv", None], m.out), r"source\[1\]: expected a path"),
    "prepare a dictionary": (lambda m: api.prepare({"u": ["a"]}, m.out), "source: expected a path"),
    "prepare into None": (lambda m: api.prepare("world:small", None), "out: expected a path"),
    "prepare a null character": (lambda m: api.prepare("a\0b", m.out), "source: expected a path without null"),
    "prepare format number": (lambda m: api.prepare("log.csv", m.out, format=3), "format: expected text"),
    "prepare format unknown": (lambda m: api.prepare("log.csv", m.out, format="lgo"), "did you mean 'log'"),
    "prepare threads": (lambda m: api.prepare("world:small", m.out, threads=1.5), "threads: expected a whole"),
    "prepare memory": (lambda m: api.prepare("world:small", m.out, memory=4), "memory: expected text"),
    "prepare overwrite": (lambda m: api.prepare("world:small", m.out, overwrite="no"), "overwrite: expected True"),
    "prepare an unknown option": (lambda m: api.prepare("world:small", m.out, evnts=3), "did you mean 'events'"),
    "prepare no column": (lambda m: api.prepare(pd.DataFrame({"x": [1]}), m.out, **COLUMNS), "no column 'u'"),
    "open_data None": (lambda m: api.open_data(None), "path: expected a path"),
    "open_data a number": (lambda m: api.open_data(7), "path: expected a path"),
    "open_data verify": (lambda m: api.open_data(m.data.path, verify="yes"), "verify: expected True or False"),
    "Dataset.user None": (lambda m: m.data.user(None), "user: expected an id"),
    "Dataset.item None": (lambda m: m.data.item(None), "item: expected an id"),
    "Dataset.sequence text": (lambda m: m.data.sequence("1"), "number: expected a whole number"),
    "Dataset.to_frame split": (lambda m: m.data.to_frame(3), "split: unknown value 3"),
    "train None": (lambda m: api.train(None, m.out), "data: expected|path: expected"),
    "train into a number": (lambda m: api.train(m.data, 5), "out: expected a path|path: expected a path"),
    "train method number": (lambda m: api.train(m.data, m.out, method=3), "method"),
    "train method unknown": (lambda m: api.train(m.data, m.out, method="sqm"), "did you mean 'sqn'"),
    "train encoder unknown": (lambda m: api.train(m.data, m.out, encoder="sasrek"), "did you mean 'sasrec'"),
    "train preset number": (lambda m: api.train(m.data, m.out, preset=1), "preset"),
    "train config number": (lambda m: api.train(m.data, m.out, config=4), "config"),
    "load None": (lambda m: api.load(None), "path: expected a path"),
    "load a number": (lambda m: api.load(5), "path: expected a path"),
    "load what is missing": (lambda m: api.load("nosuch"), "nosuch: no such folder"),
    "evaluate None": (lambda m: api.evaluate(None), "expected a path"),
    "evaluate data number": (lambda m: api.evaluate(m.model, 3), "path: expected a path"),
    "evaluate split": (lambda m: api.evaluate(m.model, m.data, split="tset"), "split: unknown value 'tset'"),
    "evaluate split None": (lambda m: api.evaluate(m.model, m.data, split=None), "split: unknown value None"),
    "evaluate cases": (lambda m: api.evaluate(m.model, m.data, max_cases="10"), "max_cases: expected a whole"),
    "evaluate seed": (lambda m: api.evaluate(m.model, m.data, seed=1.5), "seed: expected a whole number"),
    "evaluate metric": (lambda m: api.evaluate(m.model, m.data, metrics=["ndgc@10"]), "unknown metric"),
    "evaluate mode": (lambda m: api.evaluate(m.model, m.data, rank_by="belnd"), "did you mean 'blend'"),
    "compare None": (lambda m: api.compare(None), "runs: expected a list"),
    "compare numbers": (lambda m: api.compare([1, 2]), "path: expected a path"),
    "compare nothing": (lambda m: api.compare([]), "no run given"),
    "simulate None": (lambda m: api.simulate(None), "runs: expected a list"),
    "simulate config": (lambda m: api.simulate([m.model], m.data, config=5), "config: expected a RolloutConfig"),
    "simulate users": (lambda m: rollouts(users="many"), "users: expected a whole number"),
    "simulate mix": (lambda m: rollouts(mix=2), "mix: expected a finite number, from 0 to 1"),
    "choose_weight None": (lambda m: api.choose_weight(None), "expected a path"),
    "choose_weight without critic": (lambda m: api.choose_weight(m.model), "has no critic"),
    "normtest None": (lambda m: api.normtest(None), "runs: expected a list"),
    "normtest samples": (lambda m: api.normtest([m.model], samples="5"), "samples: expected a whole number"),
    "report None": (lambda m: api.report(None), "paths: expected a path"),
    "report a number": (lambda m: api.report([5]), "paths: expected a path"),
    "report title": (lambda m: api.report(m.model.run.path, title=5), "title: expected text"),
    "report what is missing": (lambda m: api.report("nosuch"), "nosuch: no such folder"),
    "reproduce None": (lambda m: api.reproduce(None, m.data, m.out), "experiment: expected text"),
    "reproduce unknown": (lambda m: api.reproduce("abaltion", m.data, m.out), "did you mean 'ablation'"),
    "reproduce into None": (lambda m: api.reproduce("imitation", m.data, None), "out: expected a path"),
    "reproduce seeds": (lambda m: api.reproduce("imitation", m.data, m.out, seeds="3"), "seeds: expected a whole"),
    "export None": (lambda m: api.export(None, m.out), "path: expected a path"),
    "export into a number": (lambda m: api.export(m.model.run.path, 5), "out: expected a path"),
    "export overwrite": (lambda m: api.export(m.model.run.path, m.out, overwrite=1), "overwrite: expected True"),
    "export what is missing": (lambda m: api.export("nosuch", m.out), "nosuch: no such folder"),
    "load runtime": (lambda m: api.load(m.model.run.path, runtime="tensorflow"), "runtime: unknown value"),
    "recommend flat ids": (lambda m: m.model.recommend(["i1", "i2"]), "histories: expected a list of histories"),
    "recommend flat numbers": (lambda m: m.model.recommend([1, 2]), "histories: expected a list of histories"),
    "recommend a flat array": (lambda m: m.model.recommend(np.array(["i1"])), "histories: expected a list of"),
    "recommend a flat series": (lambda m: m.model.recommend(pd.Series(["i1"])), "histories: expected a list of"),
    "recommend a set": (lambda m: m.model.recommend([{"i1", "i2"}]), "histories: expected a list of histories"),
    "recommend a frame": (lambda m: m.model.recommend(pd.DataFrame({"a": ["i1"]})), "histories: expected a list of"),
    "recommend k True": (lambda m: m.model.recommend([["i1"]], k=True), "k: expected a whole number, 1 or more"),
    "recommend k 2.5": (lambda m: m.model.recommend([["i1"]], k=2.5), "k: expected a whole number, 1 or more"),
    "recommend exclude_seen": (lambda m: m.model.recommend([["i1"]], exclude_seen=1), "exclude_seen: expected True"),
    "recommend time text": (lambda m: m.model.recommend([["1"]], time="now"), "time: expected a number"),
    "recommend time in ms": (lambda m: m.model.recommend([["1"]], time=1.7e12), "time: expected a finite number, from"),
    "recommend event time": (lambda m: m.model.recommend([[("1", None, float("nan"))]]), "time of an event: expected"),
    "recommend_users None": (lambda m: m.model.recommend_users(m.data, None), "users: expected a list of user ids"),
    "recommend_users text": (lambda m: m.model.recommend_users(m.data, "u1"), "users: expected a list of user ids"),
    "recommend_users data": (lambda m: m.model.recommend_users(None, ["u1"]), "path: expected a path"),
    "recommend_users unknown": (lambda m: m.model.recommend_users(m.data, ["nobody"]), "no user 'nobody'"),
    "ranked_by w": (lambda m: m.model.ranked_by(w="a"), "w: expected a number; found 'a'"),
    "ranked_by w NaN": (lambda m: m.model.ranked_by(w=float("nan")), "w: expected a finite number"),
    "ranked_by m": (lambda m: m.model.ranked_by(m=2.5), "m: expected a whole number"),
    "ranked_by mode": (lambda m: m.model.ranked_by("value"), "mode: unknown value 'value'"),
    "ranked_by mode number": (lambda m: m.model.ranked_by(3), "mode: unknown value 3"),
    "similar None": (lambda m: m.model.similar(None), "items: expected a list of item ids"),
    "parse_history None": (lambda m: m.model.parse_history(None), "text: expected text"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_wrong_argument_is_refused_in_one_line(name: str, made: Made) -> None:
    use, message = MISUSES[name]
    with pytest.raises(InputError, match=message) as refused:
        use(made)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300
    assert not made.out.exists(), "nothing was written"


def test_every_public_function_is_misused() -> None:
    functions = [name for name in ecoc.__all__ if name[0].islower()]
    assert all(any(misuse.startswith(f"{name} ") for misuse in MISUSES) for name in functions)
