"""Settings derived from the data: weaker than every setting that a person gives, and each with its reason.

docs/train.md states the rules, and the measurements that chose them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecoc.data.rewards import training_events
from ecoc.data.sequences import Dataset
from ecoc.methods import METHODS

NEVER = 0.01  # share of events that repeat an item of their sequence, below which users never return to items
_COVERED = 0.95  # share of the events that have their whole past within the length
_ROUNDED_TO = 10
_LONGEST, _LONGEST_OTHERS = 100, 50
_LONG_READERS = ("gru4rec", "hstu", "nextitnet", "sasrec", "ssept")  # cost per event hardly grows with the length
_FEW_PER_ITEM, _DROPOUT = 20, 0.3
_TARGETS = 10_000_000  # learned from in total, if that is within the limits of passes
_PASSES = (5, 30)

_LOOKED_AT = 5_000_000  # events of the first sequences, for the share of repeats

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """One setting that the data suggest."""

    section: str
    key: str
    value: Any
    reason: str

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        return f"{self.section}.{self.key} = {value}: {self.reason}"


def derive(data: Dataset, *, encoder: str, method: str) -> list[Choice]:
    """The settings that the data suggest for an encoder and a method."""
    event, offsets = training_events(data)
    if not len(event):
        return []
    lengths = np.diff(offsets)
    learner = METHODS[method]
    choices = [_length(lengths, encoder), _exclude_seen(np.asarray(data.items[event], np.int64), lengths)]
    if learner.is_trained:
        choices += _schedule(len(event))
    per_item = len(event) / data.counts.items
    if learner.is_trained and per_item < _FEW_PER_ITEM:
        choices.append(_dropout(per_item))
    return choices


def as_settings(choices: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """The values of choices by section and key, as `compose` takes them."""
    values: dict[str, dict[str, Any]] = {}
    for choice in choices:
        values.setdefault(choice.section, {})[choice.key] = choice.value
    return values


def in_effect(choices: Sequence[Choice], *layers: Mapping[str, Any]) -> list[Choice]:
    """The choices that no layer of settings overrides; a number of steps overrides the number of epochs."""
    given = {(section, key) for layer in layers for section, content in layer.items() for key in content}
    if ("train", "max_steps") in given:
        given.add(("train", "max_epochs"))
    return [choice for choice in choices if (choice.section, choice.key) not in given]


def _length(lengths: Ints, encoder: str) -> Choice:
    longest = _LONGEST if encoder in _LONG_READERS else _LONGEST_OTHERS
    events = lengths.sum()
    tried = np.arange(_ROUNDED_TO, longest + 1, _ROUNDED_TO)
    covered = np.array([np.minimum(lengths, length).sum() for length in tried]) / events
    enough = np.flatnonzero(covered >= _COVERED)
    best = int(enough[0]) if len(enough) else len(tried) - 1
    reason = f"{covered[best]:.0%} of the training events are among the first {tried[best]} of their sequence"
    return Choice("encoder", "length", int(tried[best]), reason if len(enough) else f"the longest; {reason}")


def _exclude_seen(items: Ints, lengths: Ints) -> Choice:
    lengths = lengths[: max(1, np.searchsorted(np.cumsum(lengths), _LOOKED_AT, side="right"))]
    items, row = items[: lengths.sum()], np.repeat(np.arange(len(lengths)), lengths)
    distinct = len(np.unique(row * (items.max() + 1) + items))
    share = (len(items) - distinct) / len(items)
    is_never = share < NEVER
    effect = "validation and evaluation leave out" if is_never else "validation and evaluation keep"
    return Choice(
        "train",
        "exclude_seen",
        is_never,
        f"{share:.1%} of the training events repeat an item of their sequence; {effect} the items of a user's past",
    )


def _schedule(events: int) -> list[Choice]:
    passes = int(np.clip(round(_TARGETS / events), *_PASSES))
    return [
        Choice("train", "windows", "shifted", "an epoch is one pass over all training events"),
        Choice(
            "train",
            "max_epochs",
            passes,
            f"about {_TARGETS:,} targets in total, in {_PASSES[0]} to {_PASSES[1]} passes over {events:,} events",
        ),
    ]


def _dropout(per_item: float) -> Choice:
    return Choice("encoder", "dropout", _DROPOUT, f"only {per_item:.1f} training events per item")
