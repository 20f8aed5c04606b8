"""Contracts of every encoder in the registry, on a small catalogue."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS, Encoder, PredictionTask

DIM, LENGTH, ITEMS, USERS, KINDS = 16, 12, 30, 5, 3
BLOCK = 10
NEAR = 1e-5


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=list(ENCODERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def encoder(name: str) -> Encoder:
    """Ready to serve, reads feedback; no parameter is left at a value that hides what it does."""
    return shaken(build(name, feedback=True)).eval()


@pytest.fixture
def table() -> Tensor:
    return item_table(ITEMS)


def item_table(items: int) -> Tensor:
    table = 0.05 * torch.randn(items + 1, DIM, generator=torch.Generator().manual_seed(7))
    table[PAD] = 0
    return table


def build(name: str, *, items: int = ITEMS, learned: bool = True, **options: object) -> Encoder:
    torch.manual_seed(1)
    kind = ENCODERS[name]
    encoder = kind(kind.Config.build({"dim": DIM, "length": LENGTH, **options}), Dims(items, USERS, KINDS))
    if learned:
        encoder.fit_statistics(sessions(logged(*[LENGTH] * 8, seed=2)))
    return encoder


def shaken(encoder: Encoder) -> Encoder:
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in encoder.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
    return encoder


def logged(*lengths: int, seed: int = 0) -> History:
    """Rows of these lengths, with feedback and users; every other row repeats a few items over and over."""
    draw = torch.Generator().manual_seed(seed)
    kept = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    items = torch.randint(1, ITEMS + 1, kept.shape, generator=draw)
    items[1::2] = items[1::2] % 4 + 1
    feedback = torch.randint(1, KINDS + 1, kept.shape, generator=draw)
    users = torch.randint(1, USERS + 1, (len(lengths),), generator=draw)
    return History(items * kept, feedback * kept, users)


def sessions(history: History) -> TrainSequences:
    items = history.items[history.items != PAD].numpy()
    return TrainSequences(items, np.concatenate([[0], history.lengths.numpy().cumsum()]))


def windows(history: History, *, wanted: int = LENGTH) -> Batch:
    """Each position predicts its successor, the last `wanted` of a row at most."""
    target = pad(history.items[:, 1:], (0, 1))
    steps = torch.arange(target.shape[1])
    target = target * (steps >= history.lengths[:, None] - 1 - wanted)
    return Batch(history, target, torch.ones(target.shape), torch.zeros(target.shape))


def states(encoder: Encoder, table: Tensor, history: History) -> Tensor:
    with torch.no_grad():
        found: Tensor = encoder(encoder.embed(encoder.items(table), history), history)
    return found


def last(encoder: Encoder, table: Tensor, history: History) -> Tensor:
    with torch.no_grad():
        return encoder.last(encoder.embed(encoder.items(table), history), history)


def imitation_loss(encoder: Encoder, table: Tensor, batch: Batch) -> Tensor:
    """Softmax over all items and what the encoder adds of its own."""
    items = encoder.items(table)
    asked = encoder.prediction_task(items, batch)
    return sum(asked.extra.values(), cross_entropy(asked.states @ items[1:].T, asked.target - 1))


def full_windows(rows: int, seed: int) -> Batch:
    """Rows that fill the encoder's length, each position with a target."""
    history = logged(*[LENGTH + 1] * rows, seed=seed)
    assert history.feedback is not None
    read = replace(history, items=history.items[:, :-1], feedback=history.feedback[:, :-1])
    return Batch(read, history.items[:, 1:], torch.ones(read.items.shape), torch.zeros(read.items.shape))


def unreached(encoder: Encoder, table: Tensor) -> list[str]:
    """Parameters without a gradient, and rows of a table without one; its padding row has none by right."""
    padding: dict[str, int | None] = {"table": PAD}
    for label, module in encoder.named_modules():
        if isinstance(module, nn.Embedding):
            padding[f"{label}.weight"] = module.padding_idx
    missing = []
    for label, weight in [("table", table), *encoder.named_parameters()]:
        if weight.grad is None or not weight.grad.any():
            missing.append(label)
        elif label in padding or label.endswith("positions"):
            empty = (weight.grad == 0).all(1).nonzero().flatten().tolist()
            missing += [f"{label}[{row}]" for row in empty if row != padding.get(label)]
    return missing


def prefix(history: History, row: int, length: int) -> History:
    """The first items of one row, alone and without padding."""
    alone = history.rows(torch.tensor([row]))
    assert alone.feedback is not None
    return replace(alone, items=alone.items[:, :length], feedback=alone.feedback[:, :length])


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=NEAR, atol=NEAR)


def assert_same(found: PredictionTask, expected: PredictionTask) -> None:
    assert torch.equal(found.states, expected.states)
    assert torch.equal(found.target, expected.target)
    assert found.extra.keys() == expected.extra.keys()
    assert all(torch.equal(found.extra[key], expected.extra[key]) for key in expected.extra)


def test_a_state_depends_on_no_later_item(encoder: Encoder, table: Tensor) -> None:
    history, other = logged(*[LENGTH] * 4), logged(*[LENGTH] * 4, seed=1)
    assert history.feedback is not None
    assert other.feedback is not None
    before = states(encoder, table, history)
    for cut in range(1, LENGTH):
        items = torch.cat([history.items[:, :cut], other.items[:, cut:]], 1)
        feedback = torch.cat([history.feedback[:, :cut], other.feedback[:, cut:]], 1)
        after = states(encoder, table, replace(history, items=items, feedback=feedback))
        assert_near(after[:, :cut], before[:, :cut])
        assert (after[:, cut:] - before[:, cut:]).abs().amax() > 0.01


def test_all_positions_at_once_are_the_prefixes_one_by_one(encoder: Encoder, table: Tensor) -> None:
    history = logged(LENGTH, LENGTH - 1, 7, 1)
    together = states(encoder, table, history)
    for row, length in enumerate(history.lengths.tolist()):
        for end in range(1, length + 1):
            alone = prefix(history, row, end)
            assert_near(together[row, end - 1], states(encoder, table, alone)[0, -1])
            assert_near(together[row, end - 1], last(encoder, table, alone)[0])


def test_last_is_the_state_at_the_last_position(encoder: Encoder, table: Tensor) -> None:
    history = logged(3, LENGTH, 1, 8)
    everything = states(encoder, table, history)
    assert everything.shape == (4, LENGTH, DIM)
    assert_near(last(encoder, table, history), everything[torch.arange(4), history.lengths - 1])


def test_padding_changes_nothing(encoder: Encoder, table: Tensor) -> None:
    history = logged(3, 8, 1, 5)
    assert history.feedback is not None
    wider = replace(history, items=pad(history.items, (0, 4)), feedback=pad(history.feedback, (0, 4)))
    real = history.items != PAD
    assert_near(states(encoder, table, wider)[:, :8][real], states(encoder, table, history)[real])
    assert_near(last(encoder, table, wider), last(encoder, table, history))


def test_company_and_order_in_the_batch_change_nothing(encoder: Encoder, table: Tensor) -> None:
    history = logged(4, LENGTH, 1, 9, 6)
    together = last(encoder, table, history)
    order = torch.tensor([3, 0, 4, 2, 1])
    mixed = history.rows(order)
    assert_near(last(encoder, table, mixed), together[order])
    real = mixed.items != PAD
    assert_near(states(encoder, table, mixed)[real], states(encoder, table, history)[order][real])
    for row in range(5):
        assert_near(last(encoder, table, history.rows(torch.tensor([row])))[0], together[row])


def test_shortest_longest_and_monotonous_histories_give_finite_states(encoder: Encoder, table: Tensor) -> None:
    same = torch.full((2, LENGTH), 5)
    for history in (logged(1, 1, 1), logged(*[LENGTH] * 3), History(same), History(same[:1, :1])):
        assert states(encoder, table, history).isfinite().all()
        assert last(encoder, table, history).isfinite().all()


def test_inputs_are_left_as_they_were(encoder: Encoder, table: Tensor) -> None:
    batch = windows(logged(LENGTH, 5, 2))
    history = batch.history
    embedded = encoder.embed(encoder.items(table), history).detach()
    given = [table, embedded, history.items, history.feedback, history.users, batch.target]
    before = [None if value is None else value.clone() for value in given]
    encoder.train()
    encoder(embedded, history)
    encoder.last(embedded, history)
    encoder.prediction_task(encoder.items(table), batch)
    for value, copy in zip(given, before, strict=True):
        assert value is not None
        assert copy is not None
        assert torch.equal(value, copy)


def test_no_users_are_unknown_users(encoder: Encoder, table: Tensor) -> None:
    history = logged(LENGTH, 5, 2)
    nobody = replace(history, users=None)
    strangers = replace(history, users=torch.zeros(3, dtype=torch.int64))
    assert_near(last(encoder, table, nobody), last(encoder, table, strangers))
    assert_near(states(encoder, table, nobody), states(encoder, table, strangers))
    assert encoder.train().prediction_task(encoder.items(table), windows(nobody)).states.isfinite().all()


def test_feedback_is_read_where_it_is_known(encoder: Encoder, table: Tensor) -> None:
    history = logged(LENGTH, LENGTH)
    assert history.feedback is not None
    before = states(encoder, table, history)
    after = states(encoder, table, replace(history, feedback=history.feedback % KINDS + 1))
    assert ((after - before).abs().amax(-1) > 0.001).all()
    unknown = replace(history, feedback=torch.zeros_like(history.items))
    assert_near(states(encoder, table, replace(history, feedback=None)), states(encoder, table, unknown))
    assert encoder.train().prediction_task(encoder.items(table), windows(unknown)).states.isfinite().all()


def test_without_the_setting_feedback_is_not_read(name: str, table: Tensor) -> None:
    encoder = build(name).eval()
    history = logged(LENGTH, 5)
    assert torch.equal(states(encoder, table, history), states(encoder, table, replace(history, feedback=None)))


def test_only_wanted_targets_are_imitated(encoder: Encoder, table: Tensor) -> None:
    history = logged(LENGTH, 7, 2, 9)
    steps = torch.arange(LENGTH)
    wanted = (steps >= history.lengths[:, None] - 2) & (steps > 0) & (history.items != PAD)
    items = torch.where(wanted, 21 + history.items % 10, history.items % 20 + (history.items != PAD))  # 21.. if wanted
    batch = windows(replace(history, items=items), wanted=2)
    asked = encoder.prediction_task(encoder.items(table), batch)
    assert asked.states.shape == (len(asked.target), DIM)
    assert 0 < len(asked.target) <= batch.transitions
    assert asked.target.amin() > 20
    assert Counter(asked.target.tolist()) <= Counter(batch.target.flatten().tolist())


def test_the_same_seed_gives_the_same_imitation(encoder: Encoder, table: Tensor) -> None:
    encoder.train()
    batch = windows(logged(LENGTH, LENGTH, 5, 2))
    torch.manual_seed(11)
    first = encoder.prediction_task(encoder.items(table), batch)
    torch.manual_seed(11)
    assert_same(encoder.prediction_task(encoder.items(table), batch), first)


def test_gradient_reaches_every_parameter_and_item(name: str) -> None:
    encoder = build(name, feedback=True).train()
    table = item_table(ITEMS).requires_grad_()
    for seed in range(20):
        imitation_loss(encoder, table, full_windows(16, seed)).backward()  # type: ignore[no-untyped-call]
    assert unreached(encoder, table) == []
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in [table, *encoder.parameters()])


def test_row_sparse_gradient_of_the_table_is_the_dense_one(name: str) -> None:
    encoder = build(name).train()
    if encoder.transforms_items:
        return  # every row of the table is touched
    gradients = []
    for encoder.sparse in (False, True):
        table = item_table(ITEMS).requires_grad_()
        torch.manual_seed(4)
        encoder.prediction_task(table, full_windows(4, 0)).states.square().sum().backward()  # type: ignore[no-untyped-call]
        assert table.grad is not None
        assert table.grad.is_sparse == encoder.sparse
        gradients.append(table.grad.to_dense())
    assert_near(gradients[1], gradients[0])


def sample_blocks(blocks: Tensor) -> Batch:
    """Windows of items of one block each: 1..10 or 11..20."""
    events = blocks[:, None] * BLOCK + torch.randint(1, BLOCK + 1, (len(blocks), LENGTH + 1))
    kept = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (len(blocks), 1))
    users = torch.randint(1, USERS + 1, (len(blocks),))
    history = History(events[:, :-1] * kept, None, users)
    return Batch(history, events[:, 1:] * kept, torch.ones(kept.shape), torch.zeros(kept.shape))


def test_a_catalogue_of_two_blocks_is_learned(name: str) -> None:
    encoder = build(name, items=2 * BLOCK, learned=False)
    encoder.fit_statistics(sessions(sample_blocks(torch.arange(64) % 2).history))
    table = item_table(2 * BLOCK).requires_grad_()
    optimiser = torch.optim.Adam([*encoder.parameters(), table], lr=3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        loss = imitation_loss(encoder.train(), table, sample_blocks(torch.randint(2, (32,))))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    blocks = torch.arange(100) % 2
    history = replace(sample_blocks(blocks).history, users=None)
    found = last(encoder.eval(), table, history) @ encoder.items(table)[1:].T.detach()
    best = found.topk(BLOCK).indices // BLOCK  # [100, 10]
    assert (best == blocks[:, None]).float().mean() >= 0.9


def test_saved_weights_give_the_same_states(name: str, encoder: Encoder, table: Tensor) -> None:
    stored = load(save(encoder.state_dict()))
    fresh = build(name, learned=False, feedback=True).eval()
    for label, _ in list(fresh.named_buffers()):
        if label in stored:
            owner, _, leaf = label.rpartition(".")
            setattr(fresh.get_submodule(owner), leaf, stored[label])
    fresh.load_state_dict(stored)
    history = logged(LENGTH, 5, 1)
    assert torch.equal(fresh.items(table), encoder.items(table))
    assert torch.equal(states(fresh, table, history), states(encoder, table, history))
    assert torch.equal(last(fresh, table, history), last(encoder, table, history))


class Serving(nn.Module):
    """Items to state, as a server runs it: the item vectors are computed once."""

    def __init__(self, encoder: Encoder, table: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.vectors = nn.Buffer(encoder.items(table).detach())

    def forward(self, items: Tensor) -> Tensor:
        history = History(items)
        return self.encoder.last(self.encoder.embed(self.vectors, history), history)


@pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning")  # nn.GRU lists its own weights
def test_exported_program_serves_any_batch_size(name: str, table: Tensor) -> None:
    encoder = shaken(build(name)).eval()
    serving = Serving(encoder, table).eval()
    traced = logged(LENGTH, 5, 1, 7).items
    with torch.no_grad():
        program = torch.export.export(serving, (traced,), dynamic_shapes=({0: torch.export.Dim("batch", max=4096)},))
        served = program.module()
        for lengths in [(5,), (LENGTH, 1, 6), (2, 9, LENGTH, 1, 1, 11, 4)]:
            items = logged(*lengths, seed=4).items
            items = pad(items, (0, LENGTH - items.shape[1]))
            assert_near(served(items), serving(items))
