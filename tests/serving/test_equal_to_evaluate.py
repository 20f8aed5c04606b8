"""Serving equals evaluating: the list that HTTP answers is the ranking that `ecoc evaluate` measures."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from server_case import ECOC, Server, serving
from serving_case import some_requests

import ecoc
from ecoc.data.sequences import open_data
from ecoc.storage.checkpoint import load_checkpoint

CASES = 1000
CLIENTS = 12
MODES: dict[str, dict[str, Any]] = {
    "policy": {"rank_by": "policy"},
    "blend": {"rank_by": "blend", "w": 2.0},
    "rerank": {"rank_by": "rerank", "m": 20},
}
EXCLUDING = {"blend"}
Body = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A run, its bundle, and histories of its test split with the item that followed."""

    run: Path
    bundle: Path
    events: NDArray[np.int64]
    histories: list[list[Body]]
    targets: list[str]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    base = tmp_path_factory.mktemp("study")
    data = ecoc.prepare("world:small", base / "data", events=8000, threads=1)
    config = {"encoder": {"dim": 16, "length": 20}, "train": {"max_steps": 60, "threads": 1, "counts": 0.5}}
    ecoc.train(data, base / "run", method="ecoc", config=config)
    ecoc.export(base / "run", base / "bundle", onnx=True)
    command = [ECOC, "evaluate", base / "run", "--no-untrained", "--keep-seen", "--max-cases", CASES]
    run([*map(str, command), "--rank-by", "policy"], check=True, capture_output=True, timeout=120)
    for mode in ("blend", "rerank"):  # as the command does, without the seconds of its start
        ecoc.evaluate(base / "run", max_cases=CASES, untrained=False, exclude_seen=mode in EXCLUDING, **MODES[mode])
    saved = sorted((base / "run" / "evaluations").glob("*.json"))
    assert len(saved) == len(MODES)
    tensors = load_checkpoint(base / "run" / "evaluations", saved[0].stem).tensors
    events, sequences = tensors["event"].numpy(), tensors["sequence"].numpy()
    return Study(base / "run", base / "bundle", events, *read_histories(base / "data", events, sequences))


def read_histories(
    path: Path, events: NDArray[np.int64], sequences: NDArray[np.int64]
) -> tuple[list[list[Body]], list[str]]:
    data, names = open_data(path), ecoc.load(path.parent / "run").feedback
    ids = data.vocab.all_ids()
    histories, targets = [], []
    for event, sequence in zip(events.tolist(), sequences.tolist(), strict=True):
        past = range(int(data.offsets[sequence]), int(data.history_end(np.array([event]))[0]))
        histories.append(
            [{"item": ids[data.items[place] - 1], "feedback": names[data.feedback[place]]} for place in past]
        )
        targets.append(ids[data.items[event] - 1])
    return histories, targets


def evaluated_ranks(study: Study, mode: str, *, exclude_seen: bool) -> NDArray[np.float64]:
    """The ranks that `ecoc evaluate` wrote."""
    shown = ecoc.load(study.run).ranked_by(**{"mode" if k == "rank_by" else k: v for k, v in MODES[mode].items()})
    name = f"test-max-{CASES}-seed-0" + "-exclude-seen" * exclude_seen
    name += "" if mode == "policy" else f"-{shown.policy.ranking_mode}"
    checkpoint = load_checkpoint(study.run / "evaluations", name)
    assert np.array_equal(checkpoint.tensors["event"].numpy(), study.events)
    ranks: NDArray[np.float64] = checkpoint.tensors["rank"].numpy()
    return ranks


class Expected:
    """The list that a model gives by itself, and how far apart its items are.

    The sums of a matrix product depend on the size of the batch in their last bit, so two items whose scores differ by
    less than `near` may change places. Everything else must be equal.
    """

    def __init__(
        self, items: list[str], scores: list[float], values: list[float] | None, mode: str, near: float
    ) -> None:
        first = MODES[mode].get("m", 0)  # these are in the order of their values
        self.items, self.near = items, near
        self.keys = dict(zip(items, scores, strict=True))
        self.keys.update(zip(items[:first], (values or [])[:first], strict=True))

    def are_near(self, item: str, other: str) -> bool:
        return abs(self.keys[item] - self.keys[other]) <= self.near * max(1.0, abs(self.keys[item]))

    def allows(self, listed: list[str]) -> bool:
        """Whether a list is the same but for items that are near each other."""
        return sorted(listed) == sorted(self.items) and all(map(self.are_near, self.items, listed))

    def distance(self, listed: list[str], target: str, rank: float) -> float:
        """By how many ranks an item is away from `rank`, beyond what items near it explain."""
        neighbours = sum(self.are_near(target, other) for other in self.items) - 1
        return max(0.0, abs(listed.index(target) + 1 - rank) - neighbours)


OPTIONS = {"torch, two workers": ("--workers", "2"), "onnx": ("--runtime", "onnx")}
NEAR = {"torch, two workers": 2e-6, "onnx": 2e-5}


@pytest.fixture(scope="module", params=OPTIONS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, study: Study) -> Iterator[Server]:
    with serving(study.bundle, *OPTIONS[kind]) as server:
        yield server


def ask(client: httpx.Client, body: Body | list[Body]) -> Any:
    response = client.post("/v1/recommend", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def noise(ids: list[str], seed: int) -> list[Body]:
    """Requests of all kinds, which fill the batches between those that are compared."""
    return [
        {
            "history": list(wanted.history),
            "k": min(wanted.k, 30),
            "exclude_seen": wanted.exclude_seen,
            "exclude": list(wanted.exclude),
            "only": wanted.only,
            "rank_by": wanted.rank_by,
            "w": wanted.w,
            "m": wanted.m,
        }
        for wanted in some_requests(ids, 300, has_critic=True, seed=seed)
    ]


def ask_all(server: Server, bodies: list[Body], beside: list[Body]) -> list[Body]:
    """The answers to some requests, asked by many clients at once with others in between, alone and as lists."""
    answers: list[Body] = [{} for _ in bodies]

    def work(client_number: int) -> None:
        rng = random.Random(client_number)
        with server.client() as client:
            places = list(range(client_number, len(bodies), CLIENTS))
            while places:
                part, places = places[: (width := rng.choice([1, 1, 3]))], places[width:]
                between = [rng.choice(beside) for _ in range(rng.choice([0, 1]))]
                if width == 1:
                    for body in between:
                        ask(client, body)
                    answers[part[0]] = ask(client, bodies[part[0]])
                else:
                    results = ask(client, [*(bodies[place] for place in part), *between])
                    for place, result in zip(part, results, strict=False):
                        answers[place] = result

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, range(CLIENTS)))
    return answers


def batch_sizes(server: Server) -> tuple[float, float]:
    """Number of batches and of requests in them."""
    with server.client() as client:
        lines = dict(line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line[0] != "#")
    return float(lines["ecoc_batch_size_count"]), float(lines["ecoc_batch_size_sum"])


@pytest.mark.parametrize("mode", MODES)
def test_http_answers_are_the_ranking_of_evaluate(server: Server, study: Study, kind: str, mode: str) -> None:
    exclude_seen = mode in EXCLUDING
    model = ecoc.load(study.bundle)
    body = {"k": 1000, "exclude_seen": exclude_seen, **MODES[mode]}
    answers = ask_all(
        server, [{"history": history, **body} for history in study.histories], noise(model.vocab.all_ids(), len(mode))
    )
    listed = [[item["item"] for item in answer["items"]] for answer in answers]

    view = model.ranked_by(MODES[mode]["rank_by"], w=MODES[mode].get("w"), m=MODES[mode].get("m"))
    pairs = [[(event["item"], event["feedback"]) for event in history] for history in study.histories]
    direct = view.recommend(pairs, 1000, exclude_seen=exclude_seen)
    expected = [
        Expected(*lists, mode, NEAR[kind]) for lists in zip(direct.items, direct.scores, direct.values, strict=True)
    ]
    assert len(listed) == CASES
    assert [place for place in range(CASES) if not expected[place].allows(listed[place])] == []
    assert sum(listed[place] == direct.items[place] for place in range(CASES)) >= 0.98 * CASES

    ranks = evaluated_ranks(study, mode, exclude_seen=exclude_seen)
    compared = [place for place in range(CASES) if study.targets[place] in listed[place]]
    assert len(compared) >= (0.5 if exclude_seen else 1) * CASES
    distances = {
        place: expected[place].distance(listed[place], study.targets[place], ranks[place]) for place in compared
    }
    assert {place: distance for place, distance in distances.items() if distance} == {}
    equal = sum(listed[place].index(study.targets[place]) + 1 == ranks[place] for place in compared)
    assert equal >= 0.98 * len(compared)


def test_another_list_would_be_noticed(study: Study) -> None:
    model = ecoc.load(study.bundle)
    history = [event["item"] for event in study.histories[0]]
    direct = model.recommend([history], 50)
    items, scores, values = direct.items[0], direct.scores[0], direct.values[0]
    expected = Expected(items, scores, values, "policy", NEAR["onnx"])
    assert expected.allows(items)
    assert not expected.allows([items[1], items[0], *items[2:]])
    assert not expected.allows([*items[:-1], "another"])
    assert expected.distance(items, items[4], 5.0) == 0
    assert expected.distance(items, items[4], 7.0) > 0


def test_requests_shared_batches(server: Server) -> None:
    batches, requests = batch_sizes(server)
    assert requests > 3 * CASES
    assert requests / batches > 1.2
