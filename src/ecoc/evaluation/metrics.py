"""Rank metrics with one true item per case: HR, MRR and NDCG at k, and metrics of other packages.

A metric is a class; its instances map the rank of each case's true item to one value per case. `METRICS` holds the
classes by name. One whose constructor takes k is written `name@k`, such as `ndcg@10`; others by name alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ecoc.errors import InputError, did_you_mean
from ecoc.registry import Registry

Floats = NDArray[np.float64]

KS = (5, 10, 20)
NAMES = tuple(f"{kind}@{k}" for kind in ("hr", "mrr", "ndcg") for k in KS)
"""Metrics that are computed unless others are named."""
_LARGEST_K = 1_000_000


class Metric(Protocol):
    """A ranking metric.

    Ranks are mid-ranks of the true item, at least 1: tied with another item it may be 5.5, which is outside the first
    five. A true item that cannot be ranked at all has rank infinity.
    """

    name: str

    def __call__(self, ranks: Floats, /) -> Floats:
        """Value of each case, [cases] -> [cases]; all finite."""
        ...


class _TopK(ABC):
    """Gain of the true item if it is among the k best, else 0."""

    kind: str

    def __init__(self, k: int) -> None:
        self.k, self.name = k, f"{self.kind}@{k}"

    def __call__(self, ranks: Floats, /) -> Floats:
        return np.where(ranks <= self.k, self.gain(ranks), 0.0)

    @abstractmethod
    def gain(self, ranks: Floats) -> Floats:
        """Value of a rank within the k best."""


class HitRate(_TopK):
    """1."""

    kind = "hr"

    def gain(self, ranks: Floats) -> Floats:
        return np.ones_like(ranks)


class ReciprocalRank(_TopK):
    """1 / rank."""

    kind = "mrr"

    def gain(self, ranks: Floats) -> Floats:
        return 1 / ranks


class DiscountedGain(_TopK):
    """1 / log2(rank + 1)."""

    kind = "ndcg"

    def gain(self, ranks: Floats) -> Floats:
        return 1 / np.log2(ranks + 1)


METRICS: Registry[Metric] = Registry("metric")


def open_metric(name: str) -> Metric:
    """The metric called `name`, `ndcg@10` or a plain name; an unknown one is refused."""
    kind, at, k = name.partition("@") if isinstance(name, str) else ("", "", "")
    if kind not in list(METRICS):
        raise InputError(f"unknown metric {name!r:.60}; {did_you_mean(str(name), known_metrics())}")
    make: Callable[..., Metric] = METRICS[kind]
    if bool(at) != bool(signature(make).parameters):
        form = f"{kind}, without @k" if at else f"{kind}@k, for example {kind}@10"
        raise InputError(f"unknown metric {name!r:.60}; write {form}")
    if not at:
        return make()
    if not (k.isascii() and k.isdecimal() and k == str(int(k)) and 1 <= int(k) <= _LARGEST_K):
        raise InputError(f"unknown metric {name!r:.60}; k is a number from 1 to {_LARGEST_K}, for example {kind}@10")
    return make(int(k))


def known_metrics() -> list[str]:
    """Names for help texts: the built-in metrics, then those of other packages."""
    return [*NAMES, *(name for name in METRICS if f"{name}@10" not in NAMES)]


def check_metrics(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once, if all are known and there is at least one."""
    if isinstance(names, str):
        raise InputError(f"metrics is a list of names, such as ['ndcg@10']; found {names!r:.60}")
    chosen = tuple(dict.fromkeys(names))
    if not chosen:
        raise InputError("no metric named; name at least one, such as ndcg@10")
    for name in chosen:
        open_metric(name)
    return chosen


def metrics(ranks: Floats, names: Sequence[str] = NAMES) -> dict[str, Floats]:
    """Value of each metric for each case; a metric that does not return finite numbers [cases] is refused."""
    return {name: _checked(name, open_metric(name)(ranks), len(ranks)) for name in names}


def _checked(name: str, values: Floats, cases: int) -> Floats:
    returned = np.asarray(values)
    if returned.shape != (cases,) or returned.dtype.kind not in "fiub":
        raise InputError(
            f"metric '{name}' returned {returned.dtype} of shape {returned.shape};"
            f" expected one number per case, ({cases},)"
        )
    result = returned.astype(np.float64)
    if not np.isfinite(result).all():
        case = int(np.flatnonzero(~np.isfinite(result))[0])
        raise InputError(f"metric '{name}' returned {result[case]} for case {case}; expected finite numbers")
    return result


def means(ranks: Floats, names: Sequence[str] = NAMES) -> dict[str, float]:
    """Mean of each metric over cases."""
    return {name: float(values.mean()) for name, values in metrics(ranks, names).items()}
