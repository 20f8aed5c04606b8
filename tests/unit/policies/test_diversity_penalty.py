"""The diversity guard: what it charges, and whom it leaves alone."""

import numpy as np
import pytest
import torch
from tiny_value_policy import DIM, histories, make
from torch import Tensor

from ecoc.batch import PAD
from ecoc.policies.ranking import Query
from ecoc.policies.value_policy import ValuePolicy, ValueQuery

pytestmark = pytest.mark.usefixtures("one_thread")


def crowded(items: int, lead: float, *, by_actor: bool = False) -> tuple[ValuePolicy, ValueQuery]:
    """Queries for all of which item 7 is `lead` logits better than it would be, as the critic or the actor sees it."""
    policy = make(items=items, critic="shared", heads=2, w=2.0)
    with torch.no_grad():
        query = policy.value_query(histories(200, items=items))
        query.mu[:, 0] = query.vector[:, 0] = 1.0
        query.vector[:, DIM] = policy.w
        policy.table[:, 0] = 0.0
        policy.table[7, 0] = lead * by_actor
        policy.cost.zero_()
        policy.train(False)
        actions = policy._actions()
        actions[:, :, 0] = 0.0
        actions[:, 7, 0] = lead / policy.w * (not by_actor)
    return policy, query


def shares(policy: ValuePolicy, query: ValueQuery) -> Tensor:
    """Share of the lists of ten that each item is in."""
    items, _ = policy.topk(query, 10)
    return torch.bincount(items.flatten(), minlength=policy.items + 1) / len(query)


@pytest.mark.parametrize(
    ("items", "share", "cap", "lead"),
    [
        (60, 0.7, 0.7, 20.0),
        (150, 0.3, 0.3, 4.0),
        (60, 0.1, 4 / 6, 15.0),
        (150, 0.1, 4 / 15, 8.0),
        (60, 0.7, 0.7, 30.0),
    ],
)
@torch.no_grad()
def test_the_guard_lets_no_item_crowd_the_lists(items: int, share: float, cap: float, lead: float) -> None:
    """To within a tenth: charges approach what is needed. Four even shares are any item's right."""
    policy, query = crowded(items, lead)
    assert shares(policy, query).max() > 1.3 * cap
    policy.fit_diversity_penalty(query, share)
    after = shares(policy, query)
    assert after.max() <= 1.1 * cap
    assert (policy.cost >= 0).all()
    assert policy.cost[PAD] == 0
    assert policy.cost[7] > 0
    assert (policy.cost[1:] == 0).any()  # not everything is charged
    np.testing.assert_allclose(policy.item_matrix()[:, -1].numpy(), -policy.cost.numpy())  # and lists see it at once


@torch.no_grad()
def test_what_the_log_made_popular_is_no_crowding() -> None:
    policy, query = crowded(150, lead=30.0, by_actor=True)
    assert shares(policy, query)[7] == 1
    policy.fit_diversity_penalty(query, 0.1)
    assert policy.cost[7] == 0
    assert shares(policy, query)[7] == 1


@torch.no_grad()
def test_too_few_lists_charge_nothing() -> None:
    policy, query = crowded(150, lead=8.0)
    policy.fit_diversity_penalty(query[:70], 0.1)
    assert not policy.cost.any()


@torch.no_grad()
def test_the_guard_charges_nothing_where_it_is_not_needed() -> None:
    policy, query = crowded(60, lead=2.0)
    policy.cost.fill_(1.0)  # of an earlier time
    policy.fit_diversity_penalty(query, 1.0)
    assert not policy.cost.any()
    flat, even = crowded(60, lead=0.0)
    most = float(shares(flat, even).max())
    assert most < 1
    flat.fit_diversity_penalty(even, most)
    assert not flat.cost.any()


@torch.no_grad()
def test_the_guard_has_no_say_without_the_critic() -> None:
    policy, query = crowded(60, lead=2.0)
    policy.w = 0.0
    query.vector[:, DIM:] = 0.0  # as a query of this weight is
    before = policy.ranked_by("policy").topk(Query(query.mu), 10)[0]
    policy.fit_diversity_penalty(query, 0.2)
    assert not policy.cost.any()
    assert torch.equal(policy.topk(query, 10)[0], before)
    policy.w = 2.0
    policy.fit_diversity_penalty(query[:0], 0.2)
    assert not policy.cost.any()
