"""DHCN against its formulas, in loops over items, sessions and positions."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import dhcn, hypergraph
from ecoc.encoders.dhcn import DHCN
from ecoc.encoders.hypergraph import Hypergraph, incidence, overlap

DIM, ITEMS, LENGTH = 6, 9, 12
SESSIONS = [[1, 2, 3, 2, 1], [3], [4, 4, 4, 5], [], [1, 6, 5, 2, 8], [2, 1, 2, 1]]  # nobody saw 7 and 9
ROWS = [[1], [2, 2, 2], [1, 2, 1, 2, 3, 3], [9, 1, 4, 4, 1, 4, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def table() -> Tensor:
    table = torch.randn(ITEMS + 1, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    table[PAD] = 0
    return table


@pytest.fixture
def encoder() -> DHCN:
    """In double precision; no parameter is left at a value that hides what it does."""
    return build()


def build(**options: object) -> DHCN:
    torch.manual_seed(1)
    config = DHCN.Config.build({"dim": DIM, "length": LENGTH, "dropout": 0.0, **options})
    encoder = DHCN(config, Dims(items=ITEMS)).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    encoder.fit_statistics(logged(SESSIONS))
    return encoder


def logged(rows: list[list[int]]) -> TrainSequences:
    return TrainSequences(np.array([item for row in rows for item in row], np.int64), np.cumsum([0, *map(len, rows)]))


def padded(rows: list[list[int]], extra: int = 0) -> History:
    items = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return History(nn.functional.pad(items, (0, extra)))


def smoothed(table: Tensor, layers: int) -> list[Tensor]:
    """Average of all layers, item by item: the mean over an item's sessions of the mean over their distinct items."""
    layer, total = list(table), list(table)
    for _ in range(layers):
        means = [torch.stack([layer[item] for item in sorted(set(row))]).mean(0) if row else None for row in SESSIONS]
        after = []
        for item in range(len(table)):
            heard = [mean for mean, row in zip(means, SESSIONS, strict=True) if mean is not None and item in row]
            after.append(torch.stack(heard).mean(0) if heard else torch.zeros_like(layer[item]))
        layer, total = after, [a + b for a, b in zip(total, after, strict=True)]
    return [vector / (layers + 1) for vector in total]


def naive_state(encoder: DHCN, vectors: list[Tensor]) -> Tensor:
    """The formula of the class, on the item vectors of one prefix."""
    mean, state = torch.stack(vectors).mean(0), torch.zeros(DIM, dtype=torch.float64)
    for j, vector in enumerate(vectors):
        place = encoder.positions[len(vectors) - 1 - j]  # the last item is at the first place
        mixed = torch.tanh(encoder.item_part(vector) + encoder.position_part(place))
        state = state + (encoder.score @ torch.sigmoid(encoder.mean_key(mean) + encoder.key(mixed))) * vector
    return state


def gradients(encoder: DHCN, table: Tensor, loss: Tensor) -> dict[str, Tensor]:
    named = {"table": table, **dict(encoder.named_parameters())}
    return dict(zip(named, torch.autograd.grad(loss, list(named.values()), allow_unused=True), strict=True))


def test_incidence_holds_the_distinct_items_of_each_session() -> None:
    members, offsets = incidence(logged(SESSIONS))
    found = [members[a:b].tolist() for a, b in pairwise(offsets)]
    assert found == [sorted(set(row)) for row in SESSIONS]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("dense", [False, True])
def test_items_are_smoothed_over_sessions(
    dense: bool, layers: int, table: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypergraph, "_DENSE_COST", 1000 if dense else 0)
    monkeypatch.setattr(hypergraph, "_DENSE_COLUMNS", 20)
    table.requires_grad_()
    graph = Hypergraph(*incidence(logged(SESSIONS)), layers, table)
    assert (graph.operator is not None) == dense
    found, expected = graph.smooth(table), torch.stack(smoothed(table, layers))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    weights = torch.randn(found.shape, dtype=torch.float64)
    (fast,) = torch.autograd.grad((found * weights).sum(), table)
    (slow,) = torch.autograd.grad((expected * weights).sum(), table)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    assert (found[PAD] == 0).all()
    torch.testing.assert_close(found[9], table[9] / (layers + 1))


def test_a_dense_operator_is_made_where_it_is_cheaper() -> None:
    sessions = incidence(logged(SESSIONS))  # 13 entries, read twice in each of 3 layers
    assert Hypergraph(*sessions, 3, torch.zeros(12, DIM)).operator is not None
    assert Hypergraph(*sessions, 3, torch.zeros(13, DIM)).operator is None


def test_without_sessions_items_are_only_scaled(table: Tensor) -> None:
    encoder = DHCN(DHCN.Config(dim=DIM), Dims(ITEMS)).double()
    torch.testing.assert_close(encoder.items(table), table / 4)
    encoder.fit_statistics(logged([]))
    torch.testing.assert_close(encoder.items(table), table / 4)


def test_the_hypergraph_follows_the_stored_sessions(encoder: DHCN, table: Tensor) -> None:
    expected = encoder.items(table)
    fresh = DHCN(DHCN.Config(dim=DIM, length=LENGTH), Dims(ITEMS)).double()
    fresh.items(table)
    fresh.members, fresh.offsets = torch.empty_like(encoder.members), torch.empty_like(encoder.offsets)
    fresh.load_state_dict(encoder.state_dict())
    assert torch.equal(fresh.items(table), expected)
    with torch.no_grad():
        fresh.members[0] = 9  # in place: the first session has 9 for 1
    assert not torch.equal(fresh.items(table), expected)
    assert torch.equal(encoder.items(table), expected)


def test_copies_share_the_hypergraph_and_other_precisions_make_their_own(encoder: DHCN, table: Tensor) -> None:
    expected = encoder.items(table)
    twin = copy.deepcopy(encoder)
    assert torch.equal(twin.items(table), expected)
    assert twin._hypergraph is encoder._hypergraph
    torch.testing.assert_close(encoder.float().items(table.float()), expected.float())
    with torch.inference_mode():
        twin.fit_statistics(logged([[1, 2], [2, 3]]))
        twin.items(table)
    twin.items(table.requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("cells", [1, 4 * 5 * 12 * DIM, 1 << 18])  # blocks of 1 query, of 4 and of all
def test_states_and_gradients_are_those_of_one_prefix_at_a_time(
    cells: int, encoder: DHCN, table: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dhcn, "_CELLS", cells)
    table.requires_grad_()
    history = padded(ROWS, 1)
    states = encoder(encoder.embed(encoder.items(table), history), history)
    assert states.isfinite().all()
    found = states[history.items != PAD]
    vectors = [vector * encoder.scale for vector in smoothed(table, 3)]
    expected = torch.stack(
        [naive_state(encoder, [vectors[item] for item in row[: t + 1]]) for row in ROWS for t in range(len(row))]
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    weights = torch.randn(found.shape, dtype=torch.float64)
    fast = gradients(encoder, table, (found * weights).sum())
    for name, gradient in gradients(encoder, table, (expected * weights).sum()).items():
        assert gradient.abs().amax() > 0, name
        torch.testing.assert_close(fast[name], gradient, rtol=1e-8, atol=1e-10, msg=name)


def test_last_later_items_padding_and_company(encoder: DHCN, table: Tensor) -> None:
    history = padded(ROWS)
    items = encoder.items(table)
    together = encoder(encoder.embed(items, history), history)
    ends = together[torch.arange(len(ROWS)), history.lengths - 1]
    torch.testing.assert_close(encoder.last(encoder.embed(items, history), history), ends, rtol=0, atol=1e-10)
    for row, seen in enumerate(ROWS):
        for after in ([PAD], [9] * (LENGTH - len(seen))):
            alone = padded([seen + after])
            found = encoder(encoder.embed(items, alone), alone)[0, : len(seen)]
            torch.testing.assert_close(found, together[row, : len(seen)], rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_a_fresh_state_points_at_the_items_of_its_history(seed: int) -> None:
    torch.manual_seed(seed)
    encoder = DHCN(DHCN.Config(dim=ITEMS + 1, scale=False), Dims(ITEMS)).eval()
    for row in ROWS:
        state = encoder.last(encoder.embed(torch.eye(ITEMS + 1), padded([row])), padded([row]))[0]
        assert (state[1:] > 0).nonzero().flatten().add(1).tolist() == sorted(set(row))


def test_overlap_is_the_jaccard_index() -> None:
    found = overlap(padded([*ROWS, [7, 7]]).items, torch.float64)
    for a, first in enumerate([*ROWS, [7, 7]]):
        for b, second in enumerate([*ROWS, [7, 7]]):
            expected = len(set(first) & set(second)) / len(set(first) | set(second))
            assert found[a, b].item() == pytest.approx(expected)
    assert overlap(torch.zeros(2, 3, dtype=torch.int64), torch.float32).tolist() == [[1, 0], [0, 1]]


def test_both_views_of_a_session_are_contrasted(table: Tensor) -> None:
    encoder, table = build(ssl=0.5), table.requires_grad_()
    history = padded(ROWS, 1)
    target = nn.functional.pad(history.items[:, 1:], (0, 1))
    items = encoder.items(table)
    torch.manual_seed(5)
    asked = encoder.prediction_task(items, Batch(history, target, torch.ones(target.shape), torch.zeros(target.shape)))

    vectors = [[vector * encoder.scale for vector in items[row]] for row in ROWS]
    states = [naive_state(encoder, row) for row in vectors]
    first = [torch.stack(row).mean(0) for row in vectors]
    views, layer = list(first), first
    for _ in range(3):
        layer = [line_layer(layer, row) for row in ROWS]
        views = [a + b for a, b in zip(views, layer, strict=True)]
    torch.manual_seed(5)
    rows, columns = torch.randperm(len(ROWS)), torch.randperm(DIM)
    losses = []
    for index, (state, view) in enumerate(zip(states, views, strict=True)):
        other = states[int(rows[index])][columns]
        losses.append(-torch.sigmoid(state @ view / 4).log() - (1 - torch.sigmoid(view @ other / 4)).log())
    expected = 0.5 * torch.stack(losses).mean()
    torch.testing.assert_close(asked.extra["ssl"], expected, rtol=0, atol=1e-9)
    fast, slow = gradients(encoder, table, asked.extra["ssl"]), gradients(encoder, table, expected)
    for name, gradient in slow.items():
        torch.testing.assert_close(fast[name], gradient, rtol=1e-7, atol=1e-10, msg=name)
    assert asked.target.tolist() == [item for row in ROWS for item in row[1:]]
    assert asked.states.shape == (len(asked.target), DIM)


def line_layer(layer: list[Tensor], row: list[int]) -> Tensor:
    """One step over the line graph for the session `row`: neighbours weighted by Jaccard, over the sum of weights."""
    weights = [len(set(row) & set(other)) / len(set(row) | set(other)) for other in ROWS]
    return torch.stack([weight * vector for weight, vector in zip(weights, layer, strict=True)]).sum(0) / sum(weights)


def test_without_weight_there_is_no_contrast(table: Tensor) -> None:
    encoder, history = build(ssl=0.0), padded(ROWS)
    target = nn.functional.pad(history.items[:, 1:], (0, 1))
    before = torch.get_rng_state()
    asked = encoder.prediction_task(
        encoder.items(table), Batch(history, target, torch.ones(target.shape), torch.zeros(target.shape))
    )
    assert asked.extra == {}
    assert torch.equal(before, torch.get_rng_state())
