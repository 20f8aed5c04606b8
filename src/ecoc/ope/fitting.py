"""Fits a response model to logged events, with early stopping on held-out sequences."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ecoc.batch import PAD, History, TrainSequences
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.losses.behaviour_cloning import all_items_loss, softmax_loss
from ecoc.losses.sampling import sample_pool
from ecoc.ope.response import ResponseConfig, ResponseModel, UserState

Ints = NDArray[np.int64]
_BATCH, _LR, _DECAY, _WARMUP = 128, 5e-3, 0.1, 50
_EPOCHS, _PATIENCE, _ROUNDS = 15, 2, 64  # fewest steps of an epoch
_SMALL = 5000  # items up to which the behaviour's softmax is over all of them
_NEGATIVES = 1000


@dataclass(frozen=True)
class Episodes:
    """Windows of logged sequences, and which of their events are targets."""

    items: Tensor  # [N, L + 1]; PAD after the end
    feedback: Tensor  # [N, L + 1]; code + 1, 0 after the end
    reward: Tensor  # [N, L + 1]
    wanted: Tensor  # [N, L] bool: event l + 1 is a target
    sequence: Ints  # [N]

    def part(self, rows: Ints) -> "Episodes":
        """Some of the windows."""
        index = torch.from_numpy(rows)
        return Episodes(
            self.items[index], self.feedback[index], self.reward[index], self.wanted[index], self.sequence[rows]
        )

    @property
    def history(self) -> History:
        """What precedes each target."""
        return History(self.items[:, :-1], self.feedback[:, :-1])


def open_episodes(data: Dataset, first: Ints, stop: Ints, *, length: int, most: int, seed: int) -> Episodes:
    """Windows in which every event from `first[k]` to `stop[k]` - 1 of sequence k is a target once, after earlier ones.

    Whole sequences are left out at random where there are more than `most` such events.
    """
    begin = np.asarray(data.offsets)[:-1]
    first = np.maximum(first, begin + 1)
    counts = np.maximum(stop - first, 0)
    order = np.random.default_rng([seed, 2]).permutation(np.flatnonzero(counts))
    kept = np.sort(order[: np.searchsorted(np.cumsum(counts[order]), most) + 1])
    if not len(kept):
        raise InputError(
            f"{data.path}: no event has an earlier event, so no simulator can be fitted; use another split"
        )
    tiles = -(-counts[kept] // length)
    sequence = np.repeat(kept, tiles)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    last = stop[sequence] - number * length
    start = np.maximum(last - length - 1, begin[sequence])
    steps = np.arange(int((last - start).max()))
    events = start[:, None] + steps
    inside = events < last[:, None]
    events = np.where(inside, events, 0)
    return Episodes(
        torch.from_numpy(np.where(inside, data.items[events], PAD).astype(np.int64)),
        torch.from_numpy(np.where(inside, data.feedback[events].astype(np.int64) + 1, 0)),
        torch.from_numpy(np.where(inside, data.rewards[events], 0).astype(np.float32)),
        torch.from_numpy((inside & (events >= first[sequence][:, None]))[:, 1:]),
        sequence,
    )


def fit(
    train: Episodes,
    held_out: Episodes,
    sizes: tuple[int, int],
    config: ResponseConfig,
    *,
    seed: int,
    negatives: int = 0,
) -> ResponseModel:
    """A response model of `sizes` (items, feedback); the weights with the lowest held-out loss are kept.

    With `negatives`, each event gets so many random items whose feedback is the last code: no event.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _Fit(train, held_out, sizes, config, negatives).run(np.random.default_rng(seed))


class _Fit:
    """The work of `fit`."""

    def __init__(
        self, train: Episodes, held_out: Episodes, sizes: tuple[int, int], config: ResponseConfig, negatives: int
    ) -> None:
        self.train, self.held_out, self.negatives = train, held_out, negatives
        self.model = ResponseModel(*sizes, config)
        shown = train.items[:, 1:][train.wanted].numpy()
        self.frequency = TrainSequences(shown, np.array([0, len(shown)])).frequency(sizes[0])

    def run(self, random: np.random.Generator) -> ResponseModel:
        adam = torch.optim.AdamW(self.model.parameters(), lr=_LR, weight_decay=_DECAY, fused=True)
        count = len(self.train.items)
        steps = -(-count // _BATCH)
        passes = max(1, _ROUNDS // steps)  # a tiny log is read several times per epoch
        best, kept, waited, done = float("inf"), {}, 0, 0
        for _ in range(_EPOCHS):
            self.model.train()
            order = np.concatenate([random.permutation(count) for _ in range(passes)])
            for rows in np.array_split(order, steps * passes):
                share = done / (_EPOCHS * steps * passes)
                for group in adam.param_groups:
                    group["lr"] = _LR * min(1.0, (done + 1) / _WARMUP) * (1 - 0.95 * share)
                adam.zero_grad()
                self._loss(self.train.part(rows)).backward()  # type: ignore[no-untyped-call]
                adam.step()
                done += 1
            loss = self._held_out_loss()
            waited = 0 if loss < best else waited + 1
            if loss < best:
                best, kept = loss, {name: value.clone() for name, value in self.model.state_dict().items()}
            if waited >= _PATIENCE:
                break
        if kept:
            self.model.load_state_dict(kept)
        return self.model.train(False)

    def _loss(self, episodes: Episodes) -> Tensor:
        states, target, given = self._cases(episodes)
        return self._answer_loss(states, target, given) + self._behaviour_loss(self.model.behaviour(states), target)

    def _cases(self, episodes: Episodes) -> tuple[UserState, Tensor, Tensor]:
        """State before each target, the target, the code of its feedback."""
        state = self.model.all_states(episodes.history)
        wanted = episodes.wanted.flatten().nonzero().squeeze(1)
        states = UserState(state.hidden.flatten(0, 1), state.stock.flatten(0, 1)).rows(wanted)
        return states, episodes.items[:, 1:].flatten()[wanted], episodes.feedback[:, 1:].flatten()[wanted] - 1

    def _answer_loss(self, states: UserState, target: Tensor, given: Tensor) -> Tensor:
        if self.negatives:
            row = torch.arange(len(target)).repeat(1 + self.negatives)
            others = torch.randint(1, self.model.items + 1, (len(target) * self.negatives,))
            states, target = states.rows(row), torch.cat([target, others])
            given = torch.cat([given, torch.full_like(others, self.model.feedback - 1)])
        return cross_entropy(self.model.answers(states, target), given)

    def _behaviour_loss(self, states: Tensor, target: Tensor) -> Tensor:
        vectors = self.model.shown_vectors()
        if self.model.items <= _SMALL:
            return all_items_loss(states, vectors, target)
        pool = sample_pool(target, self.frequency, _NEGATIVES, in_batch=True)
        return softmax_loss(states, vectors[pool.items], pool.own, pool.correction)

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        self.model.train(False)
        total, count = 0.0, 0
        for first in range(0, len(self.held_out.items), _BATCH):
            states, target, given = self._cases(
                self.held_out.part(np.arange(len(self.held_out.items))[first : first + _BATCH])
            )
            total += float(self._answer_loss(states, target, given)) * len(target)
            count += len(target)
        return total / max(count, 1)
