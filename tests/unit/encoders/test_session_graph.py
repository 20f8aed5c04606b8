"""Session graphs as tensors against graphs built of dictionaries, prefix by prefix."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from ecoc.batch import PAD, Dims, History
from ecoc.encoders.session_graph import GatedPropagation, first_positions, position_graphs, row_graphs
from ecoc.encoders.srgnn import SRGNN

_DRAW = torch.Generator().manual_seed(0)
ROWS: list[list[int]] = [
    [1],
    [2, 2],
    [3, 3, 3, 3, 3],
    [1, 2, 1, 2, 3],
    [4, 1, 4, 4, 1, 4],
    [1, 2, 3, 4, 5, 6, 7, 8, 9],
    *torch.randint(1, 4, (6, 12), generator=_DRAW).tolist(),
    *torch.randint(1, 8, (6, 10), generator=_DRAW).tolist(),
]
NODES = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ROWS], batch_first=True, padding_value=PAD)
Neighbours = dict[int, list[int]]


pytestmark = pytest.mark.usefixtures("one_thread")


def neighbours(items: list[int]) -> tuple[Neighbours, Neighbours]:
    """Items before and after each item, each neighbour once."""
    into: Neighbours = {item: [] for item in items}
    out: Neighbours = {item: [] for item in items}
    for source, target in pairwise(items):
        if target not in out[source]:
            out[source].append(target)
            into[target].append(source)
    return into, out


def shares(of: list[int]) -> dict[int, float]:
    return {item: 1 / len(of) for item in of}


def by_item(weights: Tensor, items: list[int]) -> dict[int, float]:
    """Weights of positions, added up for each item; padding must have none."""
    assert (weights[len(items) :] == 0).all()
    found: dict[int, float] = {}
    for weight, item in zip(weights.tolist(), items, strict=False):
        if weight != 0:
            found[item] = found.get(item, 0.0) + weight
    return found


def test_the_first_position_of_each_node_is_found() -> None:
    found = first_positions(NODES)
    for row, items in enumerate(ROWS):
        assert found[row, : len(items)].tolist() == [items.index(item) for item in items]


def test_graphs_of_rows_are_those_of_the_naive_construction() -> None:
    into, out = row_graphs(NODES, first_positions(NODES), torch.float64)
    for row, items in enumerate(ROWS):
        before, after = neighbours(items)
        for slot in range(NODES.shape[1]):
            if slot < len(items) and items.index(items[slot]) == slot:
                assert by_item(into[row, slot], items) == pytest.approx(shares(before[items[slot]]))
                assert by_item(out[row, slot], items) == pytest.approx(shares(after[items[slot]]))
            else:  # no node lives here
                assert (into[row, slot] == 0).all()
                assert (out[row, slot] == 0).all()


def test_a_node_hears_its_neighbours_in_every_prefix() -> None:
    graphs = position_graphs(NODES, torch.float64)
    length = NODES.shape[1]
    for row, items in enumerate(ROWS):
        for t, item in enumerate(items):
            before, after = neighbours(items[: t + 1])
            assert by_item(graphs.into[row, t], items) == pytest.approx(shares(before[item]))
            assert by_item(graphs.out[row, t], items) == pytest.approx(shares(after[item]))
        for o, item in enumerate(items[:-1]):
            before, after = neighbours(items[: o + 2])
            assert by_item(graphs.into[row, length + o], items) == pytest.approx(shares(before[item]))
            assert by_item(graphs.out[row, length + o], items) == pytest.approx(shares(after[item]))


def test_every_position_of_a_prefix_is_counted_once_at_the_last_one_of_its_item() -> None:
    graphs = position_graphs(NODES, torch.float64)
    for row, items in enumerate(ROWS):
        for t, item in enumerate(items):
            seen = items[: t + 1]
            assert graphs.count[row, t] == seen.count(item)
            expected = torch.zeros(NODES.shape[1], dtype=torch.float64)
            for other in set(seen) - {item}:
                expected[t - seen[::-1].index(other)] = seen.count(other)
            assert torch.equal(graphs.others[row, t], expected)


def test_graphs_of_padding_are_finite() -> None:
    nodes = torch.zeros(2, 5, dtype=torch.int64)
    graphs = position_graphs(nodes, torch.float32)
    for part in (graphs.into, graphs.out, graphs.count, graphs.others, *row_graphs(nodes, nodes, torch.float32)):
        assert part.isfinite().all()
    assert (graphs.count >= 1).all()


def test_propagation_is_a_gru_cell_on_the_means_of_messages() -> None:
    torch.manual_seed(1)
    module = GatedPropagation(6).double()
    cell = nn.GRUCell(12, 6).double()
    with torch.no_grad():
        for mine, theirs in ((cell.weight_ih, module.heard.weight), (cell.weight_hh, module.own.weight)):
            mine.copy_(theirs)
        for mine, theirs in ((cell.bias_ih, module.heard.bias), (cell.bias_hh, module.own.bias)):
            mine.copy_(theirs)
    hidden = torch.randn(3, 4, 6, dtype=torch.float64)
    into, out = torch.rand(2, 3, 8, 4, dtype=torch.float64)
    found = module(hidden, into, out)
    for row in range(3):
        sent = module.messages(hidden[row])
        for slot in range(8):
            heard = torch.cat([into[row, slot] @ sent[:, :6], out[row, slot] @ sent[:, 6:]])
            torch.testing.assert_close(found[row, slot], cell(heard, hidden[row, slot % 4]))


def encoder(**options: object) -> SRGNN:
    torch.manual_seed(2)
    return SRGNN(SRGNN.Config.build({"dim": 64, "dropout": 0.5, **options}), Dims(items=9, feedback=3))


def test_dropped_cells_are_drawn_once_for_each_item_of_a_row() -> None:
    model, table = encoder().train(), torch.ones(10, 64)
    found = model.embed(table, History(NODES))
    patterns = set()
    for row, items in enumerate(ROWS):
        for slot, item in enumerate(items):
            assert torch.equal(found[row, slot], found[row, items.index(item)])
            patterns.add((row, item, tuple(found[row, slot].tolist())))
    assert len({pattern for _, _, pattern in patterns}) == len({(row, item) for row, item, _ in patterns})
    assert 0.4 < (found[NODES != PAD] == 0).float().mean() < 0.6
    assert (model.eval().embed(table, History(NODES))[NODES != PAD] == 8).all()


def test_an_item_with_other_feedback_is_another_node() -> None:
    model = encoder(feedback=True, dropout=0.0).train()
    assert model.feedback is not None
    nn.init.normal_(model.feedback.weight)
    items, table = torch.tensor([[1, 1, 2, 1]]), torch.randn(10, 64)
    history = History(items, torch.tensor([[1, 2, 1, 1]]))
    distinct = History(torch.tensor([[3, 4, 5, 3]]))  # the same pattern with an item for each pair
    renamed = torch.zeros(10, 64)
    renamed[3:6] = model.look_up(table, history)[0, :3].detach() / model.scale
    torch.testing.assert_close(model.embed(table, history), model.embed(renamed, distinct))
    expected = model(model.embed(renamed, distinct), distinct)
    torch.testing.assert_close(model(model.embed(table, history), history), expected)
    torch.testing.assert_close(model.last(model.embed(table, history), history), expected[:, -1])
