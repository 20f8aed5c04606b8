"""The engine: answers in a batch are those that each request would get alone, and no request is lost."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from serving_case import RUNS, WITH_CRITIC, some_requests

import ecoc
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.serving import engine as engine_module
from ecoc.serving.engine import Answer, Engine, OverloadedError, Request, Served, StoppedError, run_batch


def alone(model: Model, request: Request) -> tuple[list[str], list[float], list[float] | None]:
    view = model.ranked_by(request.rank_by, w=request.w, m=request.m)
    found = view.recommend(
        [request.history],
        request.k,
        exclude_seen=request.exclude_seen,
        exclude=request.exclude,
        only=request.only,
    )
    return found.items[0], found.scores[0], found.values[0]


def check(model: Model, request: Request, answer: Answer) -> None:
    items, scores, values = alone(model, request)
    assert answer.items == items
    np.testing.assert_allclose(answer.scores, scores, rtol=1e-5, atol=1e-6)
    assert (answer.values is None) == (values is None)
    if values is not None:
        np.testing.assert_allclose(answer.values or [], values, rtol=1e-4, atol=1e-5)
    titles = {item: model.vocab.item(item).title for item in items}
    assert answer.titles == [titles[item] for item in items]


@pytest.mark.parametrize("kind", ["", "-bundle"])
@pytest.mark.parametrize("name", RUNS)
def test_a_batch_of_any_mix_answers_each_request_as_if_alone(models: Path, name: str, kind: str) -> None:
    model = ecoc.load(models / f"{name}{kind}")
    served = Served(model)
    requests = some_requests(served.ids, 120, has_critic=name in WITH_CRITIC)
    for size in (1, 7, 120):
        for first in range(0, len(requests), size):
            part = requests[first : first + size]
            for request, answer in zip(part, run_batch(served, [served.read(one) for one in part]), strict=True):
                check(model, request, answer)


def test_many_callers_at_once_get_their_own_answers(models: Path) -> None:
    model = ecoc.load(models / "ecoc-bundle")
    engine = Engine(Served(model), most_waiting=500).start()
    sizes: list[int] = []
    engine.on_batch = lambda size, seconds: sizes.append(size)
    requests = some_requests(engine.served.ids, 300, has_critic=True, seed=1)
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(engine.ask, requests))
    engine.stop()
    for request, answer in zip(requests, answers, strict=True):
        check(model, request, answer)
    assert max(sizes) > 1
    assert sum(sizes) == len(requests)


def test_an_unknown_item_and_an_unknown_feedback_are_named_and_the_item_of_the_latter_counts(models: Path) -> None:
    served = Served(ecoc.load(models / "ecoc-bundle"))
    item = served.ids[3]
    given = Request(history=["nowhere", (item, "teleported")])
    with_it, plain = run_batch(served, [served.read(given), served.read(Request(history=[item]))])
    assert (with_it.unknown, with_it.unknown_feedback) == (["nowhere"], ["teleported"])
    assert with_it.items == plain.items


@pytest.mark.parametrize(
    "request_",
    [
        Request(only=["nowhere"]),
        Request(only=[]),
        Request(rank_by="blend", w=-1.0),
        Request(rank_by="policy", w=1.0),
        Request(rank_by="blend", m=3),
        Request(rank_by="sideways"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_answered_is_refused_before_it_waits(models: Path, request_: Request) -> None:
    served = Served(ecoc.load(models / "ecoc-bundle"))
    with pytest.raises(InputError):
        served.read(request_)


class Gate:
    """Holds the engine's thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        real = run_batch

        def held(*arguments: object) -> list[Answer]:
            self.entered.set()
            assert self.open.wait(30)
            return real(*arguments)  # type: ignore[arg-type]

        self._monkeypatch, self._held = monkeypatch, held

    def close(self) -> None:
        self._monkeypatch.setattr(engine_module, "run_batch", self._held)


def test_a_full_queue_refuses_at_once_and_recovers(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle")), most_waiting=3).start()
    gate = Gate(monkeypatch)
    gate.close()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(engine.ask, Request())
        assert gate.entered.wait(30)
        waiting = [pool.submit(engine.ask, Request(k=2)) for _ in range(3)]
        while engine.waiting < 3:
            pass
        with pytest.raises(OverloadedError):
            engine.ask(Request())
        gate.open.set()
        assert len(first.result(30).items) == 10
        assert [len(one.result(30).items) for one in waiting] == [2, 2, 2]
    assert len(engine.ask(Request(k=4)).items) == 4
    engine.stop()


def test_stopping_answers_what_waits_and_refuses_the_rest(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle"))).start()
    gate = Gate(monkeypatch)
    gate.close()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(engine.ask, Request(k=2))]
        assert gate.entered.wait(30)  # the first request is a batch of its own
        waiting += [pool.submit(engine.ask, Request(k=2)) for _ in range(4)]
        while engine.waiting < 4:
            pass
        stopping = pool.submit(engine.stop)
        while not engine._is_stopping:
            pass
        with pytest.raises(StoppedError):
            engine.ask(Request())
        gate.open.set()
        stopping.result(30)
        assert [len(one.result(30).items) for one in waiting] == [2] * 5


def test_a_request_that_fails_does_not_fail_those_beside_it(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle"))).start()
    real = run_batch

    def failing(served: Served, requests: list[engine_module.ReadRequest]) -> list[Answer]:
        if any(one.request.k == 7 for one in requests):
            raise RuntimeError("broken")
        return real(served, requests)

    monkeypatch.setattr(engine_module, "run_batch", failing)

    async def ask() -> list[object]:
        wanted = [Request(k=k) for k in (3, 7, 4)]
        return list(await asyncio.gather(*map(engine.answer, wanted), return_exceptions=True))

    first, second, third = asyncio.run(ask())
    engine.stop()
    assert isinstance(second, RuntimeError)
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    assert (len(first.items), len(third.items)) == (3, 4)


def test_models_are_exchanged_under_load_and_each_answer_is_of_one(models: Path) -> None:
    both = [Served(ecoc.load(models / f"{name}-bundle")) for name in ("ecoc", "supervised")]
    engine = Engine(both[0]).start()
    request = Request(history=both[0].ids[:3], k=5)
    expected = {served.version: alone(served.model, request)[0] for served in both}
    stop = threading.Event()
    found: list[Answer] = []

    def ask() -> None:
        while not stop.is_set():
            found.append(engine.ask(request))

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        for turn in range(20):
            engine.swap(both[(turn + 1) % 2])
        stop.set()
        for one in asking:
            one.result(30)
    engine.stop()
    assert {answer.served.version for answer in found} == set(expected)
    assert all(answer.items == expected[answer.served.version] for answer in found)


def test_several_requests_of_one_caller_are_answered_by_one_model_or_not_at_all(models: Path) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle")), most_waiting=4).start()

    async def ask(count: int) -> list[Answer]:
        return await engine.answer_all([Request(k=k) for k in range(1, count + 1)])

    assert [len(answer.items) for answer in asyncio.run(ask(4))] == [1, 2, 3, 4]
    with pytest.raises(OverloadedError):
        asyncio.run(ask(5))
    assert engine.waiting == 0
    engine.stop()


def test_a_request_whose_caller_has_gone_is_not_computed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle"))).start()
    sizes: list[int] = []
    engine.on_batch = lambda size, seconds: sizes.append(size)
    gate = Gate(monkeypatch)
    gate.close()

    async def ask() -> list[Answer]:
        first = asyncio.ensure_future(engine.answer(Request(k=1)))
        await asyncio.to_thread(gate.entered.wait, 30)
        patient, *impatient = [asyncio.ensure_future(engine.answer(Request(k=k))) for k in (2, 3, 4)]
        while engine.waiting < 3:
            await asyncio.sleep(0.01)
        for task in impatient:
            task.cancel()
        await asyncio.gather(*impatient, return_exceptions=True)
        gate.open.set()
        return [await first, await patient]

    answers = asyncio.run(ask())
    engine.stop()
    assert [len(answer.items) for answer in answers] == [1, 2]
    assert sizes == [1, 1]


def test_a_request_that_would_wait_too_long_is_refused_at_once(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Served(ecoc.load(models / "supervised-bundle")), largest_batch=1, longest_wait=0.5).start()
    real = run_batch

    def slow(served: Served, requests: list[engine_module.ReadRequest]) -> list[Answer]:
        threading.Event().wait(0.1)
        return real(served, requests)

    monkeypatch.setattr(engine_module, "run_batch", slow)

    async def ask(count: int) -> list[object]:
        tasks = [engine.answer(Request(k=1)) for _ in range(count)]
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    assert all(isinstance(answer, Answer) for answer in asyncio.run(ask(3)))  # nothing is known about the pace yet
    for _ in range(20):
        engine.ask(Request(k=1))
    results = asyncio.run(ask(40))
    engine.stop()
    assert 1 <= sum(isinstance(result, Answer) for result in results) <= 10
    assert all(isinstance(result, Answer | OverloadedError) for result in results)
