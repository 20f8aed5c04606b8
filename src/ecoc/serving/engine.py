"""Engine: one thread answers the requests of many callers. It takes whatever waits as one batch.

A batch may hold requests of different length, k, filters, ranking mode and weight w. One pass encodes all histories;
the rows of one ranking mode then share one pass over the item matrix. A model can be exchanged while requests wait:
each batch, hence each answer, comes from one model.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, History
from ecoc.errors import EcocError, InputError
from ecoc.model import Event, Model, ReadHistory, as_history, padded
from ecoc.policies.base import Policy, RankBy
from ecoc.policies.ranking import Query
from ecoc.policies.value_policy import LARGEST_W
from ecoc.serving.index import ItemIndex

LARGEST_BATCH = 64
MOST_WAITING = 1024
_MEAN_OF = 8  # batches


class OverloadedError(EcocError):
    """So many requests wait that another one is not accepted."""


class StoppedError(EcocError):
    """The engine stops and accepts no further request."""


@dataclass(frozen=True)
class Request:
    """What a caller wants: the best items to follow a history. Ranking is the model's own if nothing is given."""

    history: Sequence[Event] = ()
    k: int = 10
    exclude_seen: bool = True
    exclude: Sequence[str] = ()
    only: Sequence[str] | None = None
    rank_by: RankBy | None = None
    w: float | None = None
    m: int | None = None


@dataclass(frozen=True)
class Answer:
    """The listed items, best first. `values` are the critic's long-term estimates, none without a critic."""

    items: list[str]
    titles: list[str | None]
    scores: list[float]
    values: list[float] | None
    unknown: list[str]
    unknown_feedback: list[str]
    served: "Served" = field(repr=False)


class _Mode(NamedTuple):
    """Requests with the same mode share a pass over the item matrix."""

    rank_by: RankBy | None
    m: int | None
    has_w: bool


def _mode_of(request: Request) -> _Mode:
    return _Mode(request.rank_by, request.m, request.w is not None)


class Served:
    """A model with what answers need at once: names of items, views by ranking mode."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._views: dict[_Mode, Policy] = {}
        self._index = ItemIndex.open(model)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    @property
    def version(self) -> str:
        """Names the weights: another export of another training has another version."""
        return self.model.version

    @cached_property
    def ids(self) -> list[str]:
        """Outside id of each item; the first is that of item 1."""
        return self.model.vocab.all_ids()

    @cached_property
    def titles(self) -> list[str | None]:
        """Title of each item; the first is that of item 1."""
        return self.model.vocab.all_titles()

    def view(self, mode: "_Mode") -> Policy:
        """The policy with a ranking mode. The weights are given with the query."""
        if mode not in self._views:
            w = 1.0 if mode.has_w else None
            self._views[mode] = self.model.policy.ranked_by(mode.rank_by, w=w, m=mode.m)
        return self._views[mode]

    def topk(
        self, policy: Policy, query: Query, k: int, exclude: Tensor | None, only: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The best items and their scores: by the bundle's index if it has one and can give them, else exactly."""
        if self._index is not None and only is None:
            return self._index.topk(policy, query, k, exclude=exclude)
        return policy.topk(query, k, exclude=exclude, only=only)

    def check(self, request: Request) -> None:
        """Refuse a ranking mode or weight that the model does not have."""
        has_usual_weight = request.w is None or 0 <= request.w <= LARGEST_W
        if _mode_of(request) not in self._views or not has_usual_weight:  # a view costs more than all other checks
            self.model.policy.ranked_by(request.rank_by, w=request.w, m=request.m)

    def warm_up(self) -> None:
        """Compute what is computed once, before the first request waits for it."""
        run_batch(self, [self.read(Request(history=self.ids[:1], k=1)), self.read(Request(k=1))])

    def read(self, request: Request) -> "ReadRequest":
        """A request in indices; refuses what cannot be answered."""
        self.check(request)
        history = self.model.read(request.history)
        banned = self.model.known(request.exclude, "exclude") if request.exclude else _NONE
        only = None
        if request.only is not None:
            only = self.model.known(request.only, "only")
            if not len(only):
                raise InputError("only: none of these items is in the catalogue")
        left_out = np.concatenate([history.seen, banned]) if request.exclude_seen else banned
        return ReadRequest(request, history, left_out, only)


_NONE: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(frozen=True)
class ReadRequest:
    """A request in indices."""

    request: Request
    history: ReadHistory
    left_out: NDArray[np.int64]
    only: NDArray[np.int64] | None


def run_batch(served: Served, requests: Sequence[ReadRequest]) -> list[Answer]:
    """Answer requests of any kind together: each as if it were alone."""
    model, lists = served.model, _Lists(served, requests)
    with torch.inference_mode():
        known = [i for i, read in enumerate(requests) if len(read.history.items)]
        if len(known) < len(requests):
            unknown = [i for i, read in enumerate(requests) if not len(read.history.items)]
            history = as_history([requests[i].history for i in unknown], model.policy.length)
            lists.add(unknown, model.popular, model.popular.query(history), history)
        if known:
            history = as_history([requests[i].history for i in known], model.policy.length)
            encoded = model.policy.encoded(history)
            for mode, places in _by_mode([requests[i].request for i in known]).items():
                rows = torch.tensor(places)
                given = [requests[known[place]].request.w for place in places]
                w = torch.tensor(given) if mode.has_w else None
                view = served.view(mode)
                query = view.query_of(encoded if len(places) == len(known) else encoded[rows], w)
                own_history = history if len(places) == len(known) else history.rows(rows)
                lists.add([known[place] for place in places], view, query, own_history)
    return lists.answers()


def _by_mode(requests: Sequence[Request]) -> "dict[_Mode, list[int]]":
    groups: dict[_Mode, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(_mode_of(request), []).append(place)
    return groups


class _Lists:
    """The lists of a batch, filled group by group."""

    def __init__(self, served: Served, requests: Sequence[ReadRequest]) -> None:
        self.served, self.requests = served, requests
        self._listed: list[tuple[list[int], list[float], list[float] | None]] = [([], [], None)] * len(requests)

    def add(self, rows: list[int], policy: Policy, query: Query, history: History) -> None:
        """List items for the given requests, whose queries and histories are given."""
        free = [place for place, i in enumerate(rows) if self.requests[i].only is None]
        if len(free) == len(rows):
            self._list(rows, policy, query, history, None)
            return
        if free:
            chosen = torch.tensor(free)
            self._list([rows[place] for place in free], policy, query[chosen], history.rows(chosen), None)
        for place, i in enumerate(rows):  # each has candidates of its own
            only, row = self.requests[i].only, torch.tensor([place])
            if only is not None:
                self._list([i], policy, query[row], history.rows(row), torch.from_numpy(only))

    def _list(self, rows: list[int], policy: Policy, query: Query, history: History, only: Tensor | None) -> None:
        exclude = padded([self.requests[i].left_out for i in rows])
        k = max(self.requests[i].request.k for i in rows)
        items, scores = self.served.topk(policy, query, k, exclude if exclude.shape[1] else None, only)
        values = policy.values(query, items, history)
        worth = [None] * len(rows) if values is None else (values * self.served.model.reward_unit).tolist()
        for i, listed, points, value in zip(rows, items.tolist(), scores.tolist(), worth, strict=True):
            wanted = listed[: self.requests[i].request.k]
            count = wanted.index(PAD) if PAD in wanted else len(wanted)
            self._listed[i] = wanted[:count], points[:count], None if value is None else value[:count]

    def answers(self) -> list[Answer]:
        """One per request, in order."""
        ids, titles = self.served.ids, self.served.titles
        return [
            Answer(
                [ids[item - 1] for item in items],
                [titles[item - 1] for item in items],
                scores,
                values,
                read.history.unknown,
                read.history.unknown_feedback,
                self.served,
            )
            for read, (items, scores, values) in zip(self.requests, self._listed, strict=True)
        ]


@dataclass(slots=True)
class _Waiting:
    read: ReadRequest
    served: Served  # whose indices the request holds
    done: Callable[[Answer | BaseException], None]

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller has given up: an answer that took too long would only delay the others."""
        return isinstance(self.done, _Resolve) and self.done.future.done()


class Engine:
    """Answers requests on a thread of its own."""

    def __init__(
        self,
        served: Served,
        *,
        largest_batch: int = LARGEST_BATCH,
        most_waiting: int = MOST_WAITING,
        longest_wait: float = math.inf,
        threads: int = 1,
    ) -> None:
        self.served = served
        self.largest_batch, self.most_waiting, self.threads = largest_batch, most_waiting, threads
        self.longest_wait = longest_wait  # seconds; a request that would wait longer is refused at once
        self._batch_seconds = 0.0  # mean of the last batches
        self.on_batch: Callable[[int, float], None] | None = None  # told the size and seconds of each batch
        self._queue: deque[_Waiting] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._work, name="ecoc-engine", daemon=True)

    def start(self) -> "Engine":
        """Warm the model up and begin to answer."""
        self.served.warm_up()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Accept no more requests, answer those that wait, end the thread."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._queue)

    def swap(self, served: Served) -> None:
        """Exchange the model. Requests that wait are answered by the one they were read with."""
        served.warm_up()
        self.served = served

    def ask(self, request: Request) -> Answer:
        """The answer, once it is there."""
        future: Future[Answer] = Future()

        def done(result: Answer | BaseException) -> None:
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        self._submit(request, done)
        return future.result()

    async def answer(self, request: Request) -> Answer:
        """The answer, for a caller in an event loop."""
        return (await self.answer_all([request]))[0]

    async def answer_all(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers to several requests, by one model; all are accepted or none."""
        self._check_room(len(requests))  # reading costs more than refusing
        loop = asyncio.get_running_loop()
        served = self.served
        futures: list[asyncio.Future[Answer]] = [loop.create_future() for _ in requests]
        waiting = [
            _Waiting(served.read(request), served, _Resolve(loop, future))
            for request, future in zip(requests, futures, strict=True)
        ]
        self._accept(waiting)
        return [await future for future in futures] if len(futures) == 1 else list(await asyncio.gather(*futures))

    def _submit(self, request: Request, done: Callable[[Answer | BaseException], None]) -> None:
        served = self.served
        self._accept([_Waiting(served.read(request), served, done)])

    def _accept(self, waiting: list[_Waiting]) -> None:
        with self._wake:
            self._check_room(len(waiting))
            self._queue.extend(waiting)
            self._wake.notify()

    def _check_room(self, count: int) -> None:
        if self._is_stopping:
            raise StoppedError("the server is stopping")
        ahead = len(self._queue)
        wait = ahead / self.largest_batch * self._batch_seconds
        if ahead + count > self.most_waiting or wait > self.longest_wait:
            raise OverloadedError(f"{ahead} requests are waiting; try again later")

    def _work(self) -> None:
        torch.set_num_threads(self.threads)
        while batch := self._take():
            start = time.perf_counter()
            try:
                results: Sequence[Answer | BaseException] = run_batch(
                    batch[0].served, [waiting.read for waiting in batch]
                )
            except Exception as error:
                results = [error] if len(batch) == 1 else self._one_by_one(batch)
            _deliver(batch, results)
            spent = time.perf_counter() - start
            self._batch_seconds += (spent - self._batch_seconds) / _MEAN_OF
            if self.on_batch is not None:
                self.on_batch(len(batch), spent)

    def _one_by_one(self, batch: list[_Waiting]) -> list[Answer | BaseException]:
        """So that one request cannot fail those beside it."""
        results: list[Answer | BaseException] = []
        for waiting in batch:
            try:
                results += run_batch(waiting.served, [waiting.read])
            except Exception as error:
                results.append(error)
        return results

    def _take(self) -> list[_Waiting]:
        """What waits, for one model, at most a batch; empty when the engine stops and nothing waits."""
        batch: list[_Waiting] = []
        with self._wake:
            while not batch:
                while not self._queue and not self._is_stopping:
                    self._wake.wait()
                if not self._queue:
                    break
                served = self._queue[0].served
                while self._queue and self._queue[0].served is served and len(batch) < self.largest_batch:
                    waiting = self._queue.popleft()
                    if not waiting.is_abandoned:
                        batch.append(waiting)
        return batch


class _Resolve:
    """Resolves a future of an event loop; those of one loop are resolved by one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Answer]") -> None:
        self.loop, self.future = loop, future

    def __call__(self, result: Answer | BaseException) -> None:
        if self.future.done():  # the caller has gone
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


def _deliver(batch: list[_Waiting], results: Sequence[Answer | BaseException]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[tuple[_Resolve, Answer | BaseException]]] = {}
    for waiting, result in zip(batch, results, strict=True):
        if isinstance(waiting.done, _Resolve):
            loops.setdefault(waiting.done.loop, []).append((waiting.done, result))
        else:
            waiting.done(result)
    for loop, pairs in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_resolve_all, pairs)


def _resolve_all(pairs: list[tuple[_Resolve, Answer | BaseException]]) -> None:
    for resolve, result in pairs:
        resolve(result)
