"""The published contract of metrics: every metric in the registry keeps it, broken ones are caught."""

from typing import Any

import numpy as np
import pytest

from ecoc.evaluation.metrics import METRICS, known_metrics, open_metric
from ecoc.testing import check_metric
from ecoc.testing.metrics import METRIC_CHECKS


@pytest.mark.parametrize("contract", METRIC_CHECKS)
@pytest.mark.parametrize("name", known_metrics())
def test_every_metric_keeps_every_contract(name: str, contract: str) -> None:
    assert name.partition("@")[0] in list(METRICS)
    METRIC_CHECKS[contract](open_metric(name))


class Right:
    name = "first_page"

    def __call__(self, ranks: Any) -> Any:
        return ranks <= 3


class IsOneNumber(Right):
    def __call__(self, ranks: Any) -> Any:
        return super().__call__(ranks).mean()


class IsNotFinite(Right):
    def __call__(self, ranks: Any) -> Any:
        return -ranks


class IsText(Right):
    def __call__(self, ranks: Any) -> Any:
        return np.where(ranks <= 3, "yes", "no")


class ChangesRanks(Right):
    def __call__(self, ranks: Any) -> Any:
        ranks[ranks > 3] = np.inf
        return super().__call__(ranks)


class IsNotRepeatable(Right):
    calls = 0

    def __call__(self, ranks: Any) -> Any:
        self.calls += 1
        return super().__call__(ranks) / self.calls


class DependsOnOtherCases(Right):
    def __call__(self, ranks: Any) -> Any:
        return (ranks <= 3) / max(1, np.count_nonzero(ranks <= 3))


class LikesTheEnd(Right):
    def __call__(self, ranks: Any) -> Any:
        return ranks > 3


class IsConstant(Right):
    def __call__(self, ranks: Any) -> Any:
        return np.ones_like(ranks)


class HasNoName(Right):
    name = ""


BROKEN: dict[type[Any], str] = {
    IsOneNumber: "11 cases give values of shape",
    IsNotFinite: "is not finite",
    IsText: "not numbers",
    ChangesRanks: "ranks were changed in place",
    IsNotRepeatable: "have other values the second time",
    DependsOnOtherCases: "alone has another value",
    LikesTheEnd: "values rise with the rank",
    IsConstant: "worth no more than not being ranked",
    HasNoName: "has no `name`",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_metric_is_caught(kind: type[Any]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_metric(kind())


def test_a_right_metric_passes() -> None:
    check_metric(Right())
