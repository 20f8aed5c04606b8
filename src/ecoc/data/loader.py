"""Batches of a prepared dataset: training windows, determined by seed and step, and histories for evaluation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.data.baskets import TrainPart, next_start, tile
from ecoc.data.rewards import RewardScaler, training_events
from ecoc.data.sequences import Dataset
from ecoc.data.times import in_seconds
from ecoc.errors import InputError

Mode = Literal["random", "tile", "shifted", "prefix"]
Ints = NDArray[np.int64]

_BUCKET = 50  # batches whose windows are sorted by length as one group


@dataclass(frozen=True)
class _Plan:
    """The windows of an epoch, in batch order."""

    first: Ints  # first event of each window
    size: Ints  # its number of events; the last one is only a target
    sequence: Ints
    target: Ints | None = None  # last event of each window, where it is not the one after the others

    def part(self, rows: slice | Ints) -> "_Plan":
        """The windows at `rows`."""
        target = None if self.target is None else self.target[rows]
        return _Plan(self.first[rows], self.size[rows], self.sequence[rows], target)


class Windows:
    """Training windows of at most `length` + 1 events.

    `random`: one window per sequence and epoch, at a random position. `tile`: adjacent windows from the end of each
    sequence backwards, so every event but the first is a target exactly once per epoch. `shifted`: the same, with
    borders that move from epoch to epoch. `prefix`: one window per event, and only its last event is a target, as in
    most published code. With `next_states` a prefix window also reads its target, so that the state after it is known.
    If the dataset has baskets, the state before a basket predicts each of its items, and `shifted` is `tile`.
    """

    def __init__(  # noqa: PLR0913 - one parameter per setting
        self,
        data: Dataset,
        length: int,
        *,
        batch: int,
        targets: int,
        mode: Mode,
        min_history: int,
        seed: int,
        reward_scaler: RewardScaler | None = None,
        terminal_every: int = 0,
        returns: bool = False,
        next_states: bool = False,
    ) -> None:
        self._reads_target = next_states and mode == "prefix"
        if self._reads_target and length < 2:
            raise InputError(
                "train.windows = prefix: this method reads what follows a target; it needs encoder.length > 1"
            )
        if self._reads_target and data.baskets is not None:
            raise InputError(
                f"{data.path}: train.windows = prefix with this method reads the state after a target alone, but the"
                " dataset has baskets; use --set train.windows=tile"
            )
        self.reward_scaler, self.terminal_every = reward_scaler or RewardScaler(1.0), terminal_every
        self._returns = _returns(data, self.reward_scaler) if returns else None
        self.data, self.length, self.mode, self.min_history, self.seed = data, length, mode, min_history, seed
        lengths = np.asarray(data.train_lengths)
        begin = np.asarray(data.offsets)[:-1]
        can_train = ~np.asarray(data.is_validation) & (lengths > min_history)
        first_target = np.where(can_train, begin + min_history, 0)
        if data.baskets is not None:
            first_target = next_start(data.baskets, first_target)
            can_train &= first_target < begin + lengths
        self._sequences = np.flatnonzero(can_train)
        if not len(self._sequences):
            raise InputError(
                f"{data.path}: no training sequence has more than {min_history} events, so no transition can be learnt"
            )
        self._firsts = begin[self._sequences]
        self._first_targets = first_target[self._sequences] - self._firsts
        self._lengths = lengths[self._sequences]
        self._fixed = {"tile": self._tiles, "prefix": self._prefixes}[mode]() if mode in ("tile", "prefix") else None
        plan = self._fixed or self._drawn(np.random.default_rng(0))
        self.windows = len(plan.first)
        self.targets = self._targets(plan)
        self.batch = batch or int(np.clip(round(targets * self.windows / self.targets), 1, self.windows))
        self.steps = -(-self.windows // self.batch)
        self._epoch, self._batches = -1, plan

    def _targets(self, plan: _Plan) -> int:
        """Number of transitions per epoch."""
        if self.mode == "prefix":
            return len(plan.first)
        begin = np.asarray(self.data.offsets)[plan.sequence]
        first = np.maximum(plan.first + 1, begin + self.min_history)
        if self.data.baskets is not None:
            first = next_start(self.data.baskets, np.minimum(first, len(self.data.items) - 1))
        return int(np.maximum(plan.first + plan.size - first, 0).sum())

    def _drawn(self, random: np.random.Generator) -> _Plan:
        return self._random(random) if self.mode == "random" else self._shifted(random)

    def _random(self, random: np.random.Generator) -> _Plan:
        size = np.minimum(self._lengths, self.length + 1)
        earliest = np.maximum(self._first_targets + 1 - size, 0)  # so that the last event, at least, is a target
        first = self._firsts + random.integers(earliest, self._lengths - size + 1)
        if self.data.baskets is not None:  # a target's basket begins with the second event
            start = self.data.baskets.first[first + 1]
            first = np.where(start >= self._firsts + self._first_targets, start - 1, first)
        return _Plan(first, size, self._sequences)

    def _tiles(self) -> _Plan:
        if self.data.baskets is not None:
            part = TrainPart(self._firsts, self._firsts + self._lengths, self._firsts + self._first_targets)
            row, first, size = tile(self.data.baskets, part, self.length)
            return _Plan(first, size, self._sequences[row])
        counts = -(-(self._lengths - 1) // self.length)
        row, number = _numbered(counts)  # 0 is the last window
        stop = self._lengths[row] - number * self.length
        kept = stop > self.min_history  # others hold no target
        row, stop = row[kept], stop[kept]
        size = np.minimum(stop, self.length + 1)
        return _Plan(self._firsts[row] + stop - size, size, self._sequences[row])

    def _shifted(self, random: np.random.Generator) -> _Plan:
        """Tiles whose last window is shorter by a random number of targets, as many as fit without another window.

        So each epoch has the same number of windows, and every target is in exactly one of them.
        """
        if self.data.baskets is not None:  # a border inside a basket would separate items from the state before it
            return self._tiles()
        targets = self._lengths - self.min_history
        counts = -(-targets // self.length)
        shift = random.integers(0, counts * self.length - targets + 1)
        row, number = _numbered(counts)  # 0 is the last window
        stop = self._lengths[row] - np.where(number > 0, number * self.length - shift[row], 0)
        size = np.minimum(stop, self.length + 1)
        size -= np.where((number == 0) & (counts[row] > 1), shift[row], 0)
        return _Plan(self._firsts[row] + stop - size, size, self._sequences[row])

    def _prefixes(self) -> _Plan:
        row, number = _numbered(self._lengths - self._first_targets)
        target = self._firsts[row] + number + self._first_targets[row]
        end = self.data.history_end(target)
        size = np.minimum(end - self._firsts[row], self.length - self._reads_target) + 1
        return _Plan(end + 1 - size, size, self._sequences[row], target)

    def _shuffled(self, epoch: int) -> _Plan:
        """The windows of an epoch: shuffled, grouped by length to reduce padding, then shuffled batch by batch."""
        random = np.random.default_rng([self.seed, epoch] if epoch >= 0 else [self.seed, 0, 1])
        plan = self._fixed or self._drawn(random)
        order = random.permutation(len(plan.first))
        group = np.arange(len(order)) // (_BUCKET * self.batch)
        order = order[np.lexsort((plan.size[order], group))]
        whole = len(order) // self.batch * self.batch
        batches = order[:whole].reshape(-1, self.batch)
        order = np.concatenate([random.permutation(batches).reshape(-1), order[whole:]])
        return plan.part(order)

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, number = divmod(step, self.steps)
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, self._shuffled(epoch)
        rows = slice(number * self.batch, (number + 1) * self.batch)
        return self._read(self._batches.part(rows))

    def sample(self, most: int) -> Iterator[Batch]:
        """Batches of an epoch that training never uses, up to `most` windows in total; 0: all windows."""
        plan = self._shuffled(-1)
        stop = len(plan.first) if not most else min(most, len(plan.first))
        for begin in range(0, stop, self.batch):
            rows = slice(begin, min(begin + self.batch, stop))
            yield self._read(plan.part(rows))

    def _read(self, plan: _Plan) -> Batch:
        first, size, sequence = plan.first, plan.size, plan.sequence
        data, read = self.data, size + self._reads_target
        steps = np.arange(read.max())
        inside = steps < read[:, None]  # [B, L + 1]
        events = np.where(inside, first[:, None] + np.minimum(steps, size[:, None] - 1), 0)
        if plan.target is not None:
            events[np.arange(len(size)), size - 1] = plan.target
        items = np.where(inside, data.items[events], PAD).astype(np.int64)
        is_input = inside[:, 1:]  # an event is read if another follows it in the window
        begin, history_end = np.asarray(data.offsets)[sequence][:, None], data.history_end(events[:, 1:])
        place = history_end - begin  # events before the target
        wanted = is_input & (place >= self.min_history) & (history_end > first[:, None])
        if self.mode == "prefix":
            wanted &= steps[1:] == size[:, None] - 1
        history = History(
            torch.from_numpy(np.where(is_input, items[:, :-1], PAD)),
            torch.from_numpy(np.where(is_input, data.feedback[events[:, :-1]].astype(np.int64) + 1, 0)),
            torch.from_numpy(sequence + 1),
            *_times(data, events[:, :-1], events[:, 1:], is_input),
        )
        after = events[:, 1:] + 1 if data.baskets is None else data.baskets.stop[events[:, 1:]]
        is_last = after == np.asarray(data.offsets)[sequence + 1][:, None]
        if self.terminal_every:
            is_last |= (after - begin) // self.terminal_every > place // self.terminal_every
        returns = None if self._returns is None else np.where(wanted, self._returns[history_end], np.float32(0))
        states: list[Tensor] = []
        if data.baskets is not None:
            states.append(torch.from_numpy(np.where(wanted, history_end - 1 - first[:, None], 0)))
            states.append(torch.from_numpy(np.where(wanted, after - 1 - first[:, None], 0).clip(max=len(steps) - 1)))
        return Batch(
            history,
            torch.from_numpy(np.where(wanted, items[:, 1:], PAD)),
            torch.from_numpy(np.where(wanted, self.reward_scaler.of(data, events[:, 1:]), np.float32(0))),
            torch.from_numpy((wanted & is_last).astype(np.float32)),
            torch.from_numpy(np.where(wanted, place, 0)),
            None if returns is None else torch.from_numpy(returns),
            *states,
        )


@dataclass(frozen=True)
class Cases:
    """Events to predict, each from all earlier events of its sequence; those of its basket are not earlier."""

    event: Ints
    sequence: Ints
    min_history: int = 1  # sequences with this many training events or fewer were not trained on

    def __len__(self) -> int:
        return len(self.event)

    def part(self, rows: slice | Ints) -> "Cases":
        """The cases at `rows`."""
        return Cases(self.event[rows], self.sequence[rows], self.min_history)


def open_cases(data: Dataset, split: str, *, min_history: int, most: int, seed: int) -> Cases:
    """Events of split `test` or `validation` with enough history; at most `most`, a seeded sample (0: all)."""
    offsets, trained = np.asarray(data.offsets), np.asarray(data.train_lengths)
    if split == "test":
        first, stop = offsets[:-1] + np.maximum(trained, min_history), offsets[1:]
    else:
        held_out = np.asarray(data.is_validation)
        first = offsets[:-1] + min_history
        stop = np.where(held_out, offsets[:-1] + trained, first)
    counts = np.maximum(stop - first, 0)
    sequence, number = _numbered(counts)
    event = number + first[sequence]
    if data.baskets is not None:
        has_history = data.history_end(event) - offsets[sequence] >= min_history
        event, sequence = event[has_history], sequence[has_history]
    cases = Cases(event, sequence, min_history)
    if most and len(cases) > most:
        cases = cases.part(np.sort(np.random.default_rng(seed).permutation(len(cases))[:most]))
    return cases


def histories(data: Dataset, cases: Cases, length: int) -> History:
    """The last `length` events before each case; a user of the training data keeps a number, others get 0."""
    offsets = np.asarray(data.offsets)
    end = data.history_end(cases.event)
    past = np.minimum(end - offsets[cases.sequence], length)
    steps = np.arange(past.max() if len(past) else 0)
    inside = steps < past[:, None]
    events = np.where(inside, (end - past)[:, None] + steps, 0)
    trained = np.asarray(data.train_lengths)[cases.sequence] > cases.min_history
    learnt = trained & ~np.asarray(data.is_validation)[cases.sequence]
    return History(
        torch.from_numpy(np.where(inside, data.items[events], PAD).astype(np.int64)),
        torch.from_numpy(np.where(inside, data.feedback[events].astype(np.int64) + 1, 0)),
        torch.from_numpy(np.where(learnt, cases.sequence + 1, 0)),
        *_times(data, events, np.where(inside, events + 1, 0), inside),
    )


def _times(data: Dataset, events: Ints, following: Ints, inside: NDArray[np.bool_]) -> tuple[Tensor | None, ...]:
    """Times of the events, and of the events that follow them, as a `History` holds them; none if only an order."""
    if data.manifest.time_unit == "order":
        return None, None
    unit = data.manifest.time_unit
    return tuple(
        torch.from_numpy(np.where(inside, in_seconds(data.times[chosen], unit), 0)) for chosen in (events, following)
    )


def open_train_sequences(data: Dataset, reward_scaler: RewardScaler | None = None) -> TrainSequences:
    """The training part of each sequence that is not held out for validation."""
    event, offsets = training_events(data)
    previous = None
    if data.baskets is not None:
        begin = np.repeat(offsets[:-1], np.diff(offsets))  # place of the first event of each one's sequence
        back = event - data.history_end(event) + 1  # from each event to the last one before its basket
        place = np.arange(len(event)) - back
        previous = np.where(place >= begin, place, -1)
    return TrainSequences(
        np.asarray(data.items[event], np.int64), offsets, (reward_scaler or RewardScaler(1.0)).of(data, event), previous
    )


def _numbered(counts: Ints) -> tuple[Ints, Ints]:
    """`counts[r]` entries for each row r: their rows, and their numbers within the row, from 0."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


def _returns(data: Dataset, reward_scaler: RewardScaler) -> NDArray[np.float32]:
    """Sum of the rewards of each training event and of the training events after it; 0 for other events."""
    result = np.zeros(len(data.items), np.float32)
    result[training_events(data)[0]] = open_train_sequences(data, reward_scaler).rewards_to_go()
    return result


def dims_of(data: Dataset) -> Dims:
    """The sizes that networks take from a dataset."""
    return Dims(data.counts.items, len(data), len(data.manifest.feedback.names))
