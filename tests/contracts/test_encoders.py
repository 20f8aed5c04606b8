"""Contracts of every encoder in the registry, and encoders that break them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ecoc.batch import Batch, Dims, History
from ecoc.encoders import ENCODERS, Encoder, EncoderConfig, PredictionTask
from ecoc.encoders.hstu import HSTU
from ecoc.encoders.sasrec import SASRec
from ecoc.testing import check_encoder
from ecoc.testing.encoder_case import EncoderCase
from ecoc.testing.encoders import ENCODER_CHECKS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("contract", ENCODER_CHECKS)
@pytest.mark.parametrize("name", list(ENCODERS))
def test_every_encoder_keeps_every_contract(name: str, contract: str) -> None:
    ENCODER_CHECKS[contract](EncoderCase(ENCODERS[name]))


class Whole(SASRec):
    """Right, and defined by `forward` alone."""

    last = Encoder.last


class LooksAhead(Whole):
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return super().forward(embedded + embedded.mean(1, keepdim=True), history)


class SeesPadding(Whole):
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return super().forward(embedded, history) * (1 + 0.01 * embedded.shape[1])


class IgnoresTheLastItem(SASRec):
    def last(self, embedded: Tensor, history: History) -> Tensor:
        shorter = replace(history, items=history.items[:, :-1], feedback=None)
        return super().last(embedded[:, :-1], shorter) if embedded.shape[1] > 1 else super().last(embedded, history)


class SeesOnlyThePast(Whole):
    """The state at a position does not hold its own item."""

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return nn.functional.pad(super().forward(embedded, history)[:, :-1], (0, 0, 1, 0))


class SeesTheBatch(Whole):
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        states: Tensor = super().forward(embedded, history)
        return states + 0.1 * states.amax()


class IsUndefined(Whole):
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        length = history.lengths.view(-1, 1, 1)
        return super().forward(embedded, history) / (length != 1)


class ChangesInputs(Whole):
    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return super().forward(embedded.mul_(1.5), history)


class HasAnIdleParameter(SASRec):
    def __init__(self, config: EncoderConfig, dims: Dims) -> None:
        super().__init__(config, dims)  # type: ignore[arg-type]
        self.idle = nn.Parameter(torch.ones(3))


class ForgetsItsStatistics(Whole):
    shift = 0.0

    def fit_statistics(self, sessions: Any) -> None:
        self.shift = 0.1  # not in a buffer

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return super().forward(embedded, history) + self.shift


class PredictsEverything(SASRec):
    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        everything = replace(batch, target=batch.history.items)
        return super().prediction_task(items, everything)


class IsNotRepeatable(SASRec):
    def prediction_task(self, items: Tensor, batch: Batch) -> PredictionTask:
        task = super().prediction_task(items, batch)
        noise = torch.randn(task.states.shape, generator=torch.Generator().manual_seed(torch.seed() % 2**32))
        return replace(task, states=task.states + noise)


class IgnoresFeedback(SASRec):
    def look_up(self, items: Tensor, history: History) -> Tensor:
        return super().look_up(items, replace(history, feedback=None))


class SeesLaterTimes(HSTU):
    """A state depends on the time after that of its request."""

    last = Encoder.last

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        later = None if history.request_times is None else history.request_times.roll(-1, 1)
        return super().forward(embedded, replace(history, request_times=later))


class KnowsEveryTime(HSTU):
    """An unknown time is the first second of 1970."""

    last = Encoder.last

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        if history.times is not None and history.request_times is not None:
            early = history.times.clamp(min=1), history.request_times.clamp(min=1)
            history = replace(history, times=early[0], request_times=early[1])
        return super().forward(embedded, history)


class LearnsNothing(Whole):
    """States point away from what comes next."""

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        states: Tensor = super().forward(embedded, history)
        return states if self.training else -states


BROKEN: dict[type[Encoder], str] = {
    LooksAhead: "change states before it",
    SeesPadding: "state",
    IgnoresTheLastItem: "last is not forward's last state",
    SeesOnlyThePast: "another last item leaves the state as it was",
    SeesTheBatch: "state",
    IsUndefined: "not finite",
    ChangesInputs: "embedded was changed in place",
    HasAnIdleParameter: "no gradient for idle",
    ForgetsItsStatistics: "keep statistics in buffers",
    PredictsEverything: "prediction_task",
    IsNotRepeatable: "differ between two calls with one seed",
    IgnoresFeedback: "feedback leaves a state as it was|no gradient for feedback",
    SeesLaterTimes: "change states before it",
    KnowsEveryTime: "times None are not times 0",
    LearnsNothing: "of the right block, expected 90 %",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_encoder_is_caught(kind: type[Encoder]) -> None:
    state = torch.get_rng_state()
    with pytest.raises(AssertionError, match=rf"{kind.__name__}: .*({BROKEN[kind]})"):
        check_encoder(kind)
    assert torch.equal(torch.get_rng_state(), state), "random numbers outside go on as before"


@pytest.mark.parametrize(
    ("kind", "contract"),
    [
        (LooksAhead, "A state depends on no later item"),
        (SeesPadding, "Padding changes nothing"),
        (SeesTheBatch, "Other rows of the batch and their order change nothing"),
        (IgnoresTheLastItem, "`last` is the state at the last position"),
        (PredictsEverything, "Only targets of the batch are predicted"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_contract_is_found_by_the_check_that_states_it(kind: type[Encoder], contract: str) -> None:
    check: Callable[[EncoderCase], None] = ENCODER_CHECKS[contract]
    with pytest.raises(AssertionError):
        check(EncoderCase(kind))


def test_the_right_encoder_behind_the_broken_ones_passes() -> None:
    check_encoder(Whole)


def test_settings_of_an_encoder_can_be_given() -> None:
    ENCODER_CHECKS["Padding changes nothing"](EncoderCase(SASRec, {"blocks": 1}))
