"""A simulator of users fitted on a log: an ensemble of response models, rewards of feedback, session lengths.

Members differ in their seed and in the sequences left out of their fit. Where they disagree, the log does not
determine the response.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError
from ecoc.ope.fitting import Episodes, fit, open_episodes
from ecoc.ope.response import ResponseConfig, ResponseModel, UserState
from ecoc.ope.results import FitOn, SimulatorQuality
from ecoc.progress import ProgressCallback, no_progress

Ints = NDArray[np.int64]

LENGTH = 50  # events of a history that a simulator reads
_HELD_OUT = 0.1  # share of sequences: half for early stopping, half to measure quality
_LEFT_OUT = 6  # one in so many sequences is left out of the fit of each member
PRIOR_EVENTS = 5.0  # weight of the mean over all items in the mean reward of one, in events
_NONE = "none"
_BINS = 10
_ROWS = 1024


@dataclass(frozen=True)
class SimulatorConfig:
    """How a simulator is fitted."""

    fit_on: FitOn = "log"
    members: int = 3
    negatives: int = 0
    most_events: int = 200_000
    length: int = LENGTH
    seed: int = 0
    model: ResponseConfig = field(default_factory=ResponseConfig)


class Simulator:
    """Simulated users. Feedback codes are those of the dataset; with negatives there is one more, `none`."""

    quality: SimulatorQuality  # measured by `fit_members`

    def __init__(
        self,
        members: list[ResponseModel],
        mean_reward: Tensor,
        names: list[str],
        lengths: Ints,
        temperature: float = 1.0,
        *,
        has_negatives: bool = False,
    ) -> None:
        self.members, self.names, self.lengths, self.temperature = members, names, lengths, temperature
        self._has_negatives = has_negatives
        self.mean_reward = mean_reward  # [V, feedback] mean reward by item and feedback

    @property
    def items(self) -> int:
        """Size of the catalogue."""
        return self.members[0].items

    @property
    def none(self) -> int | None:
        """Code of the feedback that leaves no event in a log; None if all feedback does."""
        return len(self.names) - 1 if self._has_negatives else None

    def chances(self, member: int, state: UserState, items: Tensor) -> Tensor:
        """P(feedback) of items [...], [..., feedback]."""
        return torch.softmax(self.members[member].answers(state, items) / self.temperature, -1)

    def reward(self, chances: Tensor, items: Tensor) -> Tensor:
        """Expected reward, [...]."""
        return (chances * self.mean_reward[items]).sum(-1)

    def log_behaviour(self, member: int, state: UserState) -> Tensor:
        """Log P(item shown next | history), [B, items]; item i in column i - 1."""
        return torch.log_softmax(self._shown_scores(member, state), -1)

    def shown_total(self, member: int, state: UserState) -> Tensor:
        """Log of the sum of exp(score) over all items, [B]."""
        return torch.logsumexp(self._shown_scores(member, state), -1)

    def shown_score(self, member: int, state: UserState, items: Tensor) -> Tensor:
        """Score of one item each [B]: log P(item shown next | history) + `shown_total`; [B]."""
        model = self.members[member]
        return (model.behaviour(state) * model.shown_vectors()[items]).sum(-1)

    def _shown_scores(self, member: int, state: UserState) -> Tensor:
        model = self.members[member]
        return model.behaviour(state) @ model.shown_vectors()[PAD + 1 :].T

    def sample_remaining(self, past: Ints, horizon: int, random: np.random.Generator) -> Ints:
        """Steps to come after `past` events: those that a longer logged sequence had left, up to a horizon."""
        longer = np.searchsorted(self.lengths, past, side="right")
        drawn = random.integers(np.minimum(longer, len(self.lengths) - 1), len(self.lengths))
        left = np.where(longer < len(self.lengths), self.lengths[drawn] - past, horizon)
        return np.minimum(left, horizon).astype(np.int64)


def fit_simulator(data: Dataset, config: SimulatorConfig, watch: ProgressCallback = no_progress) -> Simulator:
    """Fit the members and measure their quality on sequences that none of them was fitted on."""
    episodes = open_episodes(
        data, *_targets(data, config.fit_on), length=config.length, most=config.most_events, seed=config.seed
    )
    names = list(data.manifest.feedback.names)
    lengths = np.asarray(data.train_lengths) if config.fit_on == "train" else np.diff(data.offsets)
    lengths = lengths[lengths > 0]
    return fit_members(episodes, data.counts.items, names, lengths, config, watch)


def fit_members(
    episodes: Episodes,
    items: int,
    feedback: list[str],
    lengths: Ints,
    config: SimulatorConfig,
    watch: ProgressCallback = no_progress,
) -> Simulator:
    """A simulator of episodes with `items` items and the given feedback, in sequences of the given lengths."""
    if config.negatives and _NONE in feedback:
        raise InputError(f"the log's feedback already has '{_NONE}'; fit without negatives")
    parts = _parted(episodes, config)
    names = feedback + [_NONE] * (config.negatives > 0)
    stopping = episodes.part(np.flatnonzero(parts.stopping))
    members = []
    for number in range(config.members):
        watch("fit simulator", number, config.members)
        rows = np.flatnonzero(~parts.held & (parts.fold != number % _LEFT_OUT))
        rows = rows if len(rows) else np.flatnonzero(~parts.held)  # a log of a few sequences
        seed = config.seed * 1000 + number
        members.append(
            fit(episodes.part(rows), stopping, (items, len(names)), config.model, seed=seed, negatives=config.negatives)
        )
    watch("fit simulator", config.members, config.members)
    mean_reward = _mean_rewards(episodes.part(np.flatnonzero(~parts.held)), items, len(names))
    simulator = Simulator(members, mean_reward, names, np.sort(lengths), has_negatives=config.negatives > 0)
    if not config.negatives:  # held-out feedback contains no negatives
        simulator.temperature = _best_temperature(*_logits(simulator, stopping)[:2])
    simulator.quality = _quality(
        simulator,
        episodes.part(np.flatnonzero(parts.judging)),
        config,
        events_per_item=float(episodes.wanted.sum()) / items,
        refused=float((episodes.reward[:, 1:][episodes.wanted] <= 0).double().mean()),
    )
    return simulator


def _targets(data: Dataset, fit_on: FitOn) -> tuple[Ints, Ints]:
    """First event and end of the targets of each sequence."""
    begin, end = np.asarray(data.offsets)[:-1], np.asarray(data.offsets)[1:]
    cut = begin + np.asarray(data.train_lengths)
    if fit_on == "log":
        return begin, end
    if fit_on == "test":
        return cut, end
    return begin, cut


@dataclass(frozen=True)
class _Parts:
    held: NDArray[np.bool_]
    stopping: NDArray[np.bool_]
    judging: NDArray[np.bool_]
    fold: Ints


def _parted(episodes: Episodes, config: SimulatorConfig) -> _Parts:
    """Windows of a sequence go together."""
    sequences, row = np.unique(episodes.sequence, return_inverse=True)
    if len(sequences) < 3:
        raise InputError(
            f"a simulator needs at least three sequences to be fitted and measured; found {len(sequences)}"
        )
    place = np.random.default_rng([config.seed, 3]).permutation(len(sequences))
    held = max(2, round(_HELD_OUT * len(sequences)))
    half = held // 2
    return _Parts(
        (place < held)[row], (place < half)[row], ((place >= half) & (place < held))[row], (place % _LEFT_OUT)[row]
    )


def _mean_rewards(episodes: Episodes, items: int, feedback: int) -> Tensor:
    """Mean reward by item and feedback, shrunk to the mean over items where events are few; 0 for `none`."""
    given = (episodes.feedback - 1)[:, 1:][episodes.wanted]
    item, reward = episodes.items[:, 1:][episodes.wanted], episodes.reward[:, 1:][episodes.wanted].double()
    cell = item * feedback + given
    total = torch.bincount(cell, reward, minlength=(items + 1) * feedback).view(-1, feedback)
    count = torch.bincount(cell, minlength=(items + 1) * feedback).view(-1, feedback)
    mean = total.sum(0) / count.sum(0).clamp(min=1)
    # a reward that never varies, such as that of a click, is kept exactly
    variation = torch.zeros(feedback, dtype=torch.float64).index_add_(0, given, (reward - mean[given]) ** 2)
    shrunk = (total + PRIOR_EVENTS * mean) / (count + PRIOR_EVENTS)
    return torch.where(variation > 1e-9 * (1 + mean**2), shrunk, mean).float()


@torch.no_grad()
def _logits(simulator: Simulator, episodes: Episodes) -> tuple[Tensor, Tensor, Tensor]:
    """Mean log chances of the members [N, feedback] before any temperature, the feedback given, the items."""
    logits, given, items = [], [], []
    for first in range(0, len(episodes.items), _ROWS):
        part = episodes.part(np.arange(len(episodes.items))[first : first + _ROWS])
        target = part.items[:, 1:]
        each = [
            torch.log_softmax(model.answers(model.all_states(part.history), target)[part.wanted], -1)
            for model in simulator.members
        ]
        logits.append(torch.stack(each))
        given.append((part.feedback[:, 1:] - 1)[part.wanted])
        items.append(target[part.wanted])
    return torch.cat(logits, 1), torch.cat(given), torch.cat(items)


def _best_temperature(logits: Tensor, given: Tensor) -> float:
    """Temperature with the lowest log-loss on held-out feedback."""
    grid = torch.logspace(-1, 1, 41, base=2.0)
    losses = [_log_loss(torch.softmax(logits / float(value), -1).mean(0), given) for value in grid]
    return float(grid[int(np.argmin(losses))])


def _log_loss(chances: Tensor, given: Tensor) -> float:
    return abs(float(chances.gather(1, given[:, None]).clamp(min=1e-12).log().mean()))  # no -0


def _quality(
    simulator: Simulator, episodes: Episodes, config: SimulatorConfig, *, events_per_item: float, refused: float
) -> SimulatorQuality:
    """Quality of the ensemble on sequences that no member was fitted on."""
    logits, given, items = _logits(simulator, episodes)
    chances = torch.softmax(logits / simulator.temperature, -1).mean(0)
    counted = chances
    if simulator.none is not None:  # logged events have feedback; `none` is not among them
        counted = chances[:, :-1] / chances[:, :-1].sum(1, keepdim=True)
    share = torch.bincount(given, minlength=counted.shape[1]).double() / len(given)
    logged = episodes.reward[:, 1:][episodes.wanted].double().sum()
    predicted = (counted * simulator.mean_reward[items][:, : counted.shape[1]]).sum(dtype=torch.float64)
    return SimulatorQuality(
        fit_on=config.fit_on,
        members=len(simulator.members),
        negatives=config.negatives,
        events=len(given),
        log_loss=_log_loss(counted, given),
        log_loss_of_shares=_log_loss(share.expand(len(given), -1), given),
        calibration_error=_calibration_error(counted, given),
        reward_error=float(predicted / logged - 1) if float(logged) else 0.0,
        temperature=simulator.temperature,
        events_per_item=events_per_item,
        refused=refused,
    )


def _calibration_error(chances: Tensor, given: Tensor) -> float:
    """Mean over feedback and bins of chance of |share that got it - mean chance|, weighed by events."""
    happened = torch.nn.functional.one_hot(given, chances.shape[1]).double()
    bins = (chances * _BINS).long().clamp(max=_BINS - 1)
    total = 0.0
    for code in range(chances.shape[1]):
        predicted = torch.bincount(bins[:, code], chances[:, code].double(), minlength=_BINS)
        observed = torch.bincount(bins[:, code], happened[:, code], minlength=_BINS)
        total += float((predicted - observed).abs().sum()) / len(given)
    return total / chances.shape[1]
