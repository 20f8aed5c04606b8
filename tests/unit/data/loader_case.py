"""Datasets in which everything read tells where it was read, for the tests of the loader."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from ecoc.data.schema import ARRAYS, Counts, Manifest, RewardMap, TimeUnit
from ecoc.data.sequences import Dataset
from ecoc.data.store import array_header, map_arrays

KINDS = 3


@dataclass(frozen=True)
class Past:
    """One sequence: how many events, how many of them are training, and whether it is held out."""

    events: int
    train: int
    is_held_out: bool = False
    baskets: tuple[int, ...] = ()  # sizes of its baskets, if the dataset has any


@contextmanager
def dataset(pasts: list[Past], *, time_unit: TimeUnit = "order") -> Iterator[Dataset]:
    """A prepared dataset in which event e is of item e + 1, so that everything read tells where it was read."""
    counts = [past.events for past in pasts]
    total = sum(counts)
    event = np.arange(total)
    has_baskets = any(past.baskets for past in pasts)
    sizes = [size for past in pasts for size in past.baskets]
    arrays = {
        "items": event + 1,
        "feedback": event % KINDS,
        "rewards": 0.5 + event,
        "times": np.repeat(np.arange(len(sizes)), sizes) if has_baskets else event,
        "offsets": np.cumsum([0, *counts]),
        "train_lengths": np.array([past.train for past in pasts]),
        "is_validation": np.array([past.is_held_out for past in pasts]),
    }
    fields = dict.fromkeys(Counts.model_fields, 0)
    fields |= {"interactions": total, "users": len(pasts), "sequences": len(pasts), "items": total}
    manifest = Manifest(
        source="log",
        settings={"baskets": True} if has_baskets else {},
        feedback=RewardMap(names=tuple(f"kind {k}" for k in range(KINDS))),
        time_unit=time_unit,
        cut=None,
        rows_in=total,
        dropped={},
        steps=(),
        counts=Counts(**fields),
        files={},
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, values in arrays.items():
            content = array_header(name, len(values)) + values.astype(ARRAYS[name]).tobytes()
            (Path(folder) / f"{name}.npy").write_bytes(content)
        yield Dataset(Path(folder), manifest, map_arrays(Path(folder), manifest.counts))


@st.composite
def logs(draw: st.DrawFn) -> list[Past]:
    def past() -> Past:
        events = draw(st.integers(1, 14))
        train = draw(st.integers(0, events) | st.just(events))
        return Past(events, train, train >= 2 and draw(st.integers(0, 3)) == 0)

    return [past() for _ in range(draw(st.integers(1, 7)))]


@st.composite
def basket_logs(draw: st.DrawFn) -> list[Past]:
    """Sequences of baskets, divided between two baskets."""

    def past() -> Past:
        baskets = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)))
        count = draw(st.integers(0, len(baskets)) | st.just(len(baskets)))
        return Past(sum(baskets), sum(baskets[:count]), count >= 2 and draw(st.integers(0, 3)) == 0, baskets)

    return [past() for _ in range(draw(st.integers(1, 7)))]
