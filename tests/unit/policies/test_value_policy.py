"""ValuePolicy: ways to act against scores computed item by item."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_value_policy import DIM, ITEMS, KINDS, Hand, best, histories, make, name

from ecoc.batch import PAD
from ecoc.errors import InputError
from ecoc.methods.targets import Targets
from ecoc.policies.base import RankBy

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize("w", [0.0, 0.7, 25.0])
@torch.no_grad()
def test_the_blend_is_one_product_of_actor_value_and_charge(kind: dict[str, Any], w: float) -> None:
    policy, history = make(**kind).ranked_by("blend", w=w), histories()
    query, hand = policy.query(history), Hand(policy, history)
    expected = hand.blend(w)
    np.testing.assert_allclose(policy.scores(query, 1, ITEMS + 1).numpy(), expected[:, 1:], rtol=1e-9, atol=1e-9)
    found, slack = policy.scores_of(query, torch.arange(1, ITEMS + 1).expand(7, -1))
    np.testing.assert_allclose(found.numpy(), expected[:, 1:], rtol=1e-9, atol=1e-9)
    assert (slack > 0).all()
    assert policy.topk(query, ITEMS + 5)[0].tolist() == best(expected)
    target = torch.arange(1, 8)
    ranks = [row.index(int(item)) + 1.0 for row, item in zip(best(expected), target, strict=True)]
    assert policy.ranks(query, target).tolist() == ranks


@pytest.mark.parametrize("kind", KINDS, ids=name)
@torch.no_grad()
def test_without_weight_the_blend_is_the_actor(kind: dict[str, Any]) -> None:
    policy, history = make(**kind), histories(40)
    blend, actor = policy.ranked_by("blend", w=0.0), policy.ranked_by("policy")
    target = torch.randint(1, ITEMS + 1, (40,), generator=torch.Generator().manual_seed(0))
    assert torch.equal(blend.topk(blend.query(history), 9)[0], actor.topk(actor.query(history), 9)[0])
    assert torch.equal(blend.ranks(blend.query(history), target), actor.ranks(actor.query(history), target))
    hand = Hand(policy, history)
    assert actor.topk(actor.query(history), ITEMS)[0].tolist() == best(hand.logits)
    assert best(hand.blend(3.0)) != best(hand.logits)  # or nothing was shown


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize("rank_by", ["blend", "rerank"])
@torch.no_grad()
def test_values_are_the_states_worth_and_the_mean_of_the_critics(kind: dict[str, Any], rank_by: RankBy) -> None:
    policy, history = make(**kind).ranked_by(rank_by), histories()
    items = torch.randint(1, ITEMS + 1, (7, 4), generator=torch.Generator().manual_seed(2))
    found, hand = policy.values(policy.query(history), items, history), Hand(policy, history)
    assert found is not None
    expected = hand.worth[:, None] + np.take_along_axis(hand.q.mean(0), items.numpy(), 1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)
    assert hand.worth.any() == kind.get("dueling", True)


@pytest.mark.parametrize("rank_by", ["policy", "control", "cosine"])
@torch.no_grad()
def test_an_actor_that_does_not_act_on_values_still_knows_them(rank_by: RankBy) -> None:
    policy, history, items = make(), histories(), torch.arange(1, 8)[:, None]
    view = policy.ranked_by(rank_by)
    query = view.query(history)
    assert query.vector.shape == (7, DIM)
    found, expected = view.values(query, items, history), policy.values(policy.query(history), items, history)
    assert found is not None
    assert expected is not None
    assert torch.allclose(found, expected)


@torch.no_grad()
def test_cosine_ranks_by_direction() -> None:
    policy, history = make(), histories()
    view = policy.ranked_by("cosine")
    unit = torch.nn.functional.normalize(policy.table[1:], dim=1)
    expected = (policy.ranked_by("policy").query(history).vector @ unit.T).argsort(1, descending=True) + 1
    assert torch.equal(view.topk(view.query(history), ITEMS)[0], expected)
    assert view.ranking_mode == "cosine"


@torch.no_grad()
def test_control_turns_the_query_over_unchanged_items() -> None:
    policy, history = make(), histories()
    view = policy.ranked_by("control")
    assert policy.head is not None
    mu = policy.ranked_by("policy").query(history).vector
    expected = ((mu + policy.head(mu)) @ policy.table.T).numpy()
    assert view.topk(view.query(history), ITEMS)[0].tolist() == best(expected)
    assert torch.equal(view.item_matrix(), policy.table)


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize(("m", "k"), [(1, 5), (6, 4), (6, 6), (6, 11), (ITEMS + 9, ITEMS + 9)])
@torch.no_grad()
def test_reranking_orders_the_actors_best_by_the_least_value(kind: dict[str, Any], m: int, k: int) -> None:
    policy, history = make(**kind).ranked_by("rerank", m=m), histories()
    hand, every = Hand(policy, history), set(range(1, ITEMS + 1))
    items, scores = policy.topk(policy.query(history), k)
    assert items.tolist() == [hand.listed(row, m, every)[:k] for row in range(7)]
    np.testing.assert_allclose(scores.numpy(), np.take_along_axis(hand.logits, items.numpy(), 1), rtol=1e-9)


@pytest.mark.parametrize("is_short", [False, True])
@torch.no_grad()
def test_reranking_leaves_out_what_it_is_told(is_short: bool) -> None:
    policy, history = make().ranked_by("rerank", m=6), histories()
    hand, query, draw = Hand(policy, history), policy.query(history), torch.Generator().manual_seed(4)
    only = torch.tensor([3, 7, 9, 2, 20, PAD] if is_short else [*range(1, ITEMS, 2), PAD])
    exclude = torch.randint(0, ITEMS + 1, (7, 8), generator=draw)  # PAD among them
    items, _ = policy.topk(query, 9, exclude=exclude, only=only)
    assert (exclude == PAD).any()
    for row in range(7):
        left = set(only.tolist()) - set(exclude[row].tolist()) - {PAD}
        expected = hand.listed(row, 6, left)[:9]
        found = items[row].tolist()
        assert found[: len(expected)] == expected
        assert set(found[len(expected) :]) <= {PAD}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.integers(1, 12), st.integers(0, 6), st.sampled_from(KINDS))
@torch.no_grad()
def test_ranks_are_places_in_the_list(seed: int, m: int, excluded: int, kind: dict[str, Any]) -> None:
    shape = kind | {"hidden": 0}  # two items that no unit of h answers to would have the same value
    policy, history = make(items=12, seed=seed, **shape).ranked_by("rerank", m=m), histories(6, seed, items=12)
    draw, query = torch.Generator().manual_seed(seed), policy.query(history)
    exclude = torch.randint(0, 13, (6, excluded), generator=draw)
    hand = Hand(policy, history)
    listed, _ = policy.topk(query, 12, exclude=exclude)
    for item in range(1, 13):
        ranks = policy.ranks(query, torch.full((6,), item), exclude)
        for row in range(6):
            order = hand.listed(row, m, set(range(1, 13)) - set(exclude[row].tolist()))
            assert [other for other in listed[row].tolist() if other != PAD] == order
            assert ranks[row].item() == (order.index(item) + 1.0 if item in order else math.inf)


@torch.no_grad()
def test_equal_values_stay_in_the_actors_order_and_share_their_places() -> None:
    policy, history = make().ranked_by("rerank", m=4), histories()
    for weight in policy.critic.h.weights:
        weight.zero_()  # every item is worth the same
    query, hand = policy.query(history), Hand(policy, history)
    items, _ = policy.topk(query, 8)
    assert items.tolist() == [row[:8] for row in best(hand.logits)]
    for place, expected in enumerate([2.5, 2.5, 2.5, 2.5, 5.0, 6.0]):
        assert policy.ranks(query, items[:, place]).tolist() == [expected] * 7


@torch.no_grad()
def test_of_equals_at_the_edge_only_the_one_listed_is_reranked() -> None:
    policy, history = make(critic="tower", hidden=0).ranked_by("rerank", m=4), histories(1)
    order = best(Hand(policy, history).logits)[0]
    inside, outside = sorted([order[3], order[10]])
    policy.table[order[10]] = policy.table[order[3]]
    query, every = policy.query(history), set(range(1, ITEMS + 1)) - {outside}
    assert order[10] not in history.items[0].tolist()  # or its state would change
    listed = Hand(policy, history).listed(0, 4, every)
    assert policy.ranks(query, torch.tensor([inside])).item() == listed.index(inside) + 1
    assert policy.ranks(query, torch.tensor([outside])).item() == 4.5


@pytest.mark.parametrize("rank_by", ["policy", "blend", "rerank", "control"])
@torch.no_grad()
def test_padding_is_never_listed(rank_by: RankBy) -> None:
    policy = make().ranked_by(rank_by)
    items, scores = policy.topk(policy.query(histories()), ITEMS + 3)
    assert items.shape == (7, ITEMS)
    assert (items != PAD).all()
    assert scores.isfinite().all()


@pytest.mark.parametrize(
    ("given_", "word"),
    [
        ({"rank_by": "value"}, "rank_by 'value'"),
        ({"w": -0.1}, "w -0.1"),
        ({"w": math.nan}, "w nan"),
        ({"w": 2e6}, "w 2000000"),
        ({"m": 0}, "m 0"),
        ({"m": -3}, "m -3"),
    ],
)
def test_ways_that_are_none_are_refused(given_: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make().ranked_by(**given_)


def test_acting_by_control_needs_a_head() -> None:
    with pytest.raises(InputError, match="control"):
        make(control=0.0).ranked_by("control")


@torch.no_grad()
def test_views_share_weights_and_leave_the_policy_as_it_is() -> None:
    policy, history = make(w=3.0, m=6), histories()
    before = policy.topk(policy.query(history), 5)[0]
    view = policy.ranked_by(w=9.0).ranked_by(m=2)
    assert (view.rank_by, view.w, view.m, view.ranking_mode) == ("rerank", 9.0, 2, "rerank-m2")
    assert (policy.rank_by, policy.w, policy.m, policy.ranking_mode) == ("blend", 3.0, 6, "blend-w3")
    assert view.ranked_by("blend").ranking_mode == "blend-w9"
    assert policy.ranked_by() is not policy
    assert policy.ranked_by(w=0.0).w == 0.0
    assert view.table is policy.table
    assert view.cost is policy.cost
    assert torch.equal(policy.topk(policy.query(history), 5)[0], before)
    heavy = policy.ranked_by(w=300.0)
    assert not torch.equal(heavy.topk(heavy.query(history), 5)[0], before)
    policy.train()
    policy.table.normal_()
    policy.train(False)
    view.train(False)
    hand = Hand(policy, history)
    for row, items in enumerate(view.topk(view.query(history), 5)[0].tolist()):
        assert items == hand.listed(row, 2, set(range(1, ITEMS + 1)))[:5]
    assert policy.has_critic


@pytest.mark.parametrize("rank_by", ["blend", "rerank"])
@torch.no_grad()
def test_what_is_derived_from_weights_is_dropped_when_they_may_change(rank_by: RankBy) -> None:
    policy, history = make(rank_by=rank_by), histories()
    policy.topk(policy.query(history), 5)
    assert policy._derived
    assert policy._actions() is policy._actions()  # at rest it is kept
    kept = policy._actions().clone()
    policy.train()
    assert not policy._derived
    for weight in policy.parameters():
        weight.add_(torch.randn_like(weight))
    assert not torch.equal(policy._actions(), kept)
    assert not policy._derived  # nothing is kept while training
    policy.train(False)
    hand = Hand(policy, history)
    items = policy.topk(policy.query(history), ITEMS)[0].tolist()
    every = set(range(1, ITEMS + 1))
    expected = best(hand.blend(3.0)) if rank_by == "blend" else [hand.listed(row, 6, every) for row in range(7)]
    assert items == expected


@torch.no_grad()
def test_a_lagged_copy_does_not_answer_from_old_weights() -> None:
    policy, history = make(), histories()
    targets = Targets(policy, tau=1.0)
    targets.copy.topk(targets.copy.query(history), 5)
    for weight in policy.parameters():
        weight.add_(torch.randn_like(weight))
    targets.update(0)
    policy.train(False)
    found = targets.copy.topk(targets.copy.query(history), ITEMS)[0]
    assert found.tolist() == best(Hand(policy, history).blend(3.0))
