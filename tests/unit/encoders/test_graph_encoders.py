"""SR-GNN and GC-SAN against their formulas, computed for one prefix at a time over a graph made of dictionaries."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from ecoc.batch import PAD, Dims, History
from ecoc.encoders.gcsan import GCSAN
from ecoc.encoders.session_graph import SessionGraphEncoder
from ecoc.encoders.srgnn import SRGNN
from ecoc.encoders.transformer import Block

DIM = 8
_DRAW = torch.Generator().manual_seed(0)
ROWS: list[list[int]] = [
    [1],
    [2, 2, 2],
    [1, 2, 1, 2, 3, 3],
    [4, 1, 4, 4, 1, 4, 4],
    [1, 2, 3, 4, 5, 6, 7],
    *torch.randint(1, 4, (2, 9), generator=_DRAW).tolist(),
]
LONG: list[list[int]] = [*torch.randint(1, 6, (1, 18), generator=_DRAW).tolist(), [1, 1, 2]]  # more than one block

Encoders = Callable[..., SessionGraphEncoder]


pytestmark = pytest.mark.usefixtures("one_thread")


def srgnn(**options: object) -> SRGNN:
    return SRGNN(SRGNN.Config.build({"dim": DIM, "dropout": 0.0, **options}), Dims(items=9))


def gcsan(**options: object) -> GCSAN:
    return GCSAN(GCSAN.Config.build({"dim": DIM, "inner": 12, "dropout": 0.0, **options}), Dims(items=9))


KINDS = [
    (srgnn, {}),
    (srgnn, {"head": 12}),
    (srgnn, {"steps": 3}),
    (gcsan, {}),
    (gcsan, {"heads": 1, "omega": 0.3}),
    (gcsan, {"steps": 2}),
    (gcsan, {"blocks": 2}),
]


def build(make: Encoders, options: dict[str, object]) -> SessionGraphEncoder:
    """An encoder in double precision; no parameter is left at a value that hides what it does."""
    torch.manual_seed(1)
    encoder = make(**options).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return encoder


def padded(rows: list[list[int]], extra: int = 0) -> History:
    items = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)
    return History(nn.functional.pad(items, (0, extra)))


def item_table() -> Tensor:
    table = 0.4 * torch.randn(10, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    table[PAD] = 0
    return table


def naive(encoder: SessionGraphEncoder, table: Tensor, items: list[int]) -> Tensor:
    """State after the whole of `items`, straight from the formulas."""
    states = propagate(encoder, {item: table[item] * encoder.scale for item in items}, items)
    by_position = [states[item] for item in items]
    return naive_srgnn(encoder, by_position) if isinstance(encoder, SRGNN) else naive_gcsan(encoder, by_position)


def propagate(encoder: SessionGraphEncoder, states: dict[int, Tensor], items: list[int]) -> dict[int, Tensor]:
    module = encoder.propagation
    edges = list(dict.fromkeys(pairwise(items)))
    zero = torch.zeros(DIM, dtype=torch.float64)
    for _ in range(encoder.steps):
        after = {}
        sent = {item: module.messages(state) for item, state in states.items()}
        for item, state in states.items():
            sources = [sent[a][:DIM] for a, b in edges if b == item]
            targets = [sent[b][DIM:] for a, b in edges if a == item]
            mean_in = torch.stack(sources).mean(0) if sources else zero
            mean_out = torch.stack(targets).mean(0) if targets else zero
            heard_r, heard_z, heard_n = module.heard(torch.cat([mean_in, mean_out])).chunk(3)
            own_r, own_z, own_n = module.own(state).chunk(3)
            update = torch.sigmoid(heard_z + own_z)
            candidate = torch.tanh(heard_n + torch.sigmoid(heard_r + own_r) * own_n)
            after[item] = (1 - update) * candidate + update * state
        states = after
    return states


def naive_srgnn(encoder: SRGNN, states: list[Tensor]) -> Tensor:
    last, whole = states[-1], torch.zeros(DIM, dtype=torch.float64)
    for state in states:
        whole = whole + (encoder.score @ torch.sigmoid(encoder.last_key(last) + encoder.key(state))) * state
    output: Tensor = encoder.head(torch.cat([whole, last]))
    return output


def naive_gcsan(encoder: SessionGraphEncoder, states: list[Tensor]) -> Tensor:
    assert isinstance(encoder, GCSAN)
    made = states
    for block in encoder.blocks:
        assert isinstance(block, Block)
        made = naive_block(block, made)
    return encoder.omega * made[-1] + (1 - encoder.omega) * states[-1]


def naive_block(block: Block, states: list[Tensor]) -> list[Tensor]:
    """Every position sees every position of the prefix."""
    normed = [block.before_attention(state) for state in states]
    keys, values = zip(*[block.key_value(state).view(2, block.heads, -1) for state in normed], strict=True)
    made = []
    for state, own in zip(states, normed, strict=True):
        query = block.query(own).view(block.heads, -1)
        mixed = []
        for head in range(block.heads):
            scores = torch.stack([key[head] @ query[head] for key in keys]) / (DIM / block.heads) ** 0.5
            mixed.append(torch.softmax(scores, 0) @ torch.stack([value[head] for value in values]))
        inner = state + block.out(torch.cat(mixed))
        made.append(inner + block.narrow(torch.relu(block.widen(block.before_feed_forward(inner)))))
    return made


def naive_states(encoder: SessionGraphEncoder, table: Tensor, rows: list[list[int]]) -> Tensor:
    return torch.stack([naive(encoder, table, row[: t + 1]) for row in rows for t in checked(row)])


def checked(row: list[int]) -> list[int]:
    """Positions to compare: all, or a few of a long row."""
    return list(range(len(row))) if len(row) < 10 else [3, 15, 16, len(row) - 1]


def fast_states(encoder: SessionGraphEncoder, table: Tensor, history: History) -> Tensor:
    states: Tensor = encoder(encoder.embed(table, history), history)
    return states[history.items != PAD]


def gradients(encoder: SessionGraphEncoder, table: Tensor, states: Tensor) -> dict[str, Tensor]:
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(3), dtype=states.dtype)
    named = {"table": table, **dict(encoder.named_parameters())}
    found = torch.autograd.grad((states * weights).sum(), list(named.values()))
    return dict(zip(named, found, strict=True))


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_states_and_gradients_are_those_of_one_prefix_at_a_time(make: Encoders, options: dict[str, object]) -> None:
    encoder, table = build(make, options), item_table().requires_grad_()
    rows = LONG if not encoder.in_positions else ROWS
    states = encoder(encoder.embed(table, padded(rows, 2)), padded(rows, 2))
    assert states.isfinite().all()
    found = torch.cat([states[index, checked(row)] for index, row in enumerate(rows)])
    expected = naive_states(encoder, table, rows)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    fast, slow = gradients(encoder, table, found), gradients(encoder, table, expected)
    for name, gradient in slow.items():
        assert gradient.abs().amax() > 0, name
        torch.testing.assert_close(fast[name], gradient, rtol=1e-8, atol=1e-10, msg=name)


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_rows_and_positions_agree(make: Encoders, options: dict[str, object]) -> None:
    encoder, table = build(make, options), item_table()
    history = padded(ROWS, 1)
    embedded = encoder.embed(table, history)
    states = encoder(embedded, history)
    ends = states[torch.arange(len(ROWS)), history.lengths - 1]
    torch.testing.assert_close(encoder.last(embedded, history), ends, rtol=0, atol=1e-10)
    encoder.in_positions = False
    torch.testing.assert_close(encoder(embedded, history)[history.items != PAD], states[history.items != PAD])


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_single_precision_is_as_good(make: Encoders, options: dict[str, object]) -> None:
    encoder, table = build(make, options), item_table()
    expected = fast_states(encoder, table, padded(ROWS)).float()
    found = fast_states(encoder.float(), table.float(), padded(ROWS))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("make", "options"), KINDS)
def test_later_items_padding_and_company_change_nothing(make: Encoders, options: dict[str, object]) -> None:
    encoder, table = build(make, options), item_table()
    rows = [row + [PAD] * (9 - len(row)) for row in ROWS]
    together = encoder(encoder.embed(table, padded(rows)), padded(rows))
    for row, items in enumerate(ROWS):
        for end in {1, (len(items) + 1) // 2, len(items)}:
            for after in ([], [PAD, PAD], [9, items[0], 9]):
                alone = padded([items[:end] + after])
                found = encoder(encoder.embed(table, alone), alone)[0, :end]
                torch.testing.assert_close(found, together[row, :end], rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [srgnn, gcsan])
def test_repeats_and_order_are_seen(make: Encoders) -> None:
    encoder, table = build(make, {}), item_table()
    found = fast_states(encoder, table, padded([[1, 2, 3], [2, 1, 3], [1, 1, 3], [1, 1, 1, 3]]))
    last = found[[2, 5, 8, 12]]
    distances = (last[:, None] - last).abs().amax(2)
    assert (distances + torch.eye(4) > 1e-3).all()


@pytest.mark.parametrize("options", [{}, {"blocks": 2}])
def test_blocks_drop_cells_in_training(options: dict[str, object]) -> None:
    encoder, table = build(gcsan, {"dropout": 0.5, **options}), item_table()
    embedded = encoder.embed(table, padded(ROWS)).detach()
    torch.manual_seed(4)
    first, second = encoder(embedded, padded(ROWS)), encoder(embedded, padded(ROWS))
    assert not torch.equal(first, second)
    torch.manual_seed(4)
    assert torch.equal(encoder(embedded, padded(ROWS)), first)
