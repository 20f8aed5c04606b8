"""The published contract of methods: every method in the registry keeps it, broken ones are caught."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy import TRAINED, UNTRAINED

from ecoc.batch import Batch, History
from ecoc.data.sequences import Dataset
from ecoc.methods import METHODS, Loss, Method, TiedPolicy
from ecoc.methods.supervised import Supervised
from ecoc.policies.ranking import Query
from ecoc.testing import check_method
from ecoc.testing.methods import METHOD_CHECKS, MethodCase, prepare_walks

pytestmark = pytest.mark.usefixtures("one_thread")

Cases = Callable[[str, str], MethodCase]
PAIRS = [*product(TRAINED, ("sasrec", "dhcn")), *((name, "sasrec") for name in UNTRAINED)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare_walks(tmp_path_factory.mktemp("walks") / "data")


@pytest.fixture(scope="module")
def cases(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """A case of each method and encoder, trained once for all checks."""
    folder = tmp_path_factory.mktemp("runs")
    return cache(lambda name, encoder: MethodCase(name, data, folder, encoder))


@pytest.mark.parametrize(("name", "encoder"), [pair for pair in PAIRS if pair != ("neural_lcb", "dhcn")])
@pytest.mark.parametrize("contract", METHOD_CHECKS)
def test_every_method_keeps_every_contract(cases: Cases, name: str, encoder: str, contract: str) -> None:
    METHOD_CHECKS[contract](cases(name, encoder))


class IsNotFinite(Supervised):
    def loss(self, batch: Batch) -> Loss:
        loss = super().loss(batch)
        return replace(loss, total=loss.total * float("nan"))


class LearnsNothing(Supervised):
    """The gradient is nearly zero."""

    def loss(self, batch: Batch) -> Loss:
        loss = super().loss(batch)
        return replace(loss, total=loss.total.detach() + sum(weight.sum() for weight in self.parameters()) * 1e-9)


class ClimbsTheLoss(Supervised):
    def loss(self, batch: Batch) -> Loss:
        loss = super().loss(batch)
        return replace(loss, total=2 * loss.total.detach() - loss.total)


class IsNotRepeatable(Supervised):
    def loss(self, batch: Batch) -> Loss:
        loss = super().loss(batch)
        noise = torch.rand((), generator=torch.Generator().manual_seed(torch.Generator().seed() % 2**32))
        return replace(loss, total=loss.total * (1 + noise))


class _SeesTheBatch(TiedPolicy):
    def query(self, history: History) -> Query:
        query = super().query(history)
        return replace(query, vector=query.vector + query.vector.mean(0))


class DependsOnTheBatch(Supervised):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.policy.__class__ = _SeesTheBatch


class _ScoresWithoutLimit(TiedPolicy):
    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return super().scores(query, first, last) * float("inf")


class HasNoFiniteScores(Supervised):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.policy.__class__ = _ScoresWithoutLimit


BROKEN: dict[type[Method], str] = {
    IsNotFinite: "training failed: .*finite|diverged",
    LearnsNothing: "NDCG@10 on the|loss rose",
    ClimbsTheLoss: "loss rose|NDCG@10 on the",
    IsNotRepeatable: "training twice gives other",
    DependsOnTheBatch: "alone than in a batch",
    HasNoFiniteScores: "a score is not finite|different items|known items",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_method_is_caught(kind: type[Method]) -> None:
    with pytest.raises(AssertionError, match=f"{kind.__name__}: .*({BROKEN[kind]})"):
        check_method(kind)
    assert f"checked_{kind.__name__.lower()}" not in list(METHODS)


def test_a_right_method_of_another_package_passes() -> None:
    class Own(Supervised): ...

    check_method(Own, encoder="gru4rec")


def test_a_method_that_lists_padding_is_caught(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = MethodCase("supervised", data, tmp_path)
    check = METHOD_CHECKS["Padding is never recommended, not even if its rows score higher than all others"]
    check(case)
    plain = TiedPolicy.topk

    def with_padding(self: TiedPolicy, query: Query, k: int, **options: Tensor | None) -> tuple[Tensor, Tensor]:
        items, scores = plain(self, query, k, **options)
        return torch.cat([torch.zeros_like(items[:, :1]), items[:, :-1]], 1), scores

    monkeypatch.setattr(TiedPolicy, "topk", with_padding)
    with pytest.raises(AssertionError, match=r"not all 30 items are listed|topk lists padding"):
        check(case)
