"""The contract of an encoder, on a small catalogue of random histories."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn.functional import pad

from ecoc.batch import PAD, Batch, History
from ecoc.encoders import Encoder
from ecoc.testing.encoder_case import (
    DIM,
    ITEMS,
    KINDS,
    LENGTH,
    USERS,
    EncoderCase,
    feedback_of,
    full_windows,
    item_table,
    last_of,
    per_position,
    prediction_loss,
    prefix_of,
    random_histories,
    sequences_of,
    states_of,
    windows_of,
)
from ecoc.testing.suite import require, require_near, run_checks, titled

_BLOCK = 10


def check_encoder(kind: type[Encoder], **settings: Any) -> None:
    """Check that an encoder class keeps the contract; AssertionError says which part of it is broken.

    `settings` are those of the encoder's `Config`, if the defaults do not suit a catalogue of 30 items.
    """
    run_checks(kind.__name__, ENCODER_CHECKS, EncoderCase(kind, settings))


def looks_at_no_later_item(case: EncoderCase) -> None:
    """A state depends on no later item."""
    encoder, table = case.ready(), item_table()
    history, other = random_histories(*[LENGTH] * 4), random_histories(*[LENGTH] * 4, seed=1)
    before = states_of(encoder, table, history)
    both = per_position(history, lambda values: values.clone())
    for cut in range(LENGTH - 1, 0, -1):
        for name in ("items", "feedback", "times", "request_times"):
            getattr(both, name)[:, cut] = getattr(other, name)[:, cut]
        after = states_of(encoder, table, both)
        require_near(after[:, :cut], before[:, :cut], f"items from position {cut} on change states before it")
        change = float((after[:, cut:] - before[:, cut:]).abs().amax())
        require(change > 0.01, f"items from position {cut} on do not change the states after them")


def gives_prefixes_at_once(case: EncoderCase) -> None:
    """The state at each position is that of the prefix alone."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, LENGTH - 1, 7, 1)
    together = states_of(encoder, table, history)
    for row, length in enumerate(history.lengths.tolist()):
        for end in range(1, length + 1):
            alone, where = prefix_of(history, row, end), f"prefix of {end} items"
            require_near(
                together[row, end - 1], states_of(encoder, table, alone)[0, -1], f"forward differs for a {where}"
            )
            require_near(together[row, end - 1], last_of(encoder, table, alone)[0], f"last differs for a {where}")


def last_is_the_last_state(case: EncoderCase) -> None:
    """`last` is the state at the last position."""
    encoder, table = case.ready(), item_table()
    history = random_histories(3, LENGTH, 1, 8)
    states = states_of(encoder, table, history)
    require(states.shape == (4, LENGTH, DIM), f"forward gave shape {tuple(states.shape)}, expected {(4, LENGTH, DIM)}")
    require_near(
        last_of(encoder, table, history),
        states[torch.arange(4), history.lengths - 1],
        "last is not forward's last state",
    )


def reads_the_last_item(case: EncoderCase) -> None:
    """The last item of a history changes its state."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, 5, 2)
    rows, ends = torch.arange(3), history.lengths - 1
    items = history.items.clone()
    items[rows, ends] = items[rows, ends] % ITEMS + 1
    change = (last_of(encoder, table, replace(history, items=items)) - last_of(encoder, table, history)).abs().amax(1)
    require((change > 1e-4).all(), "another last item leaves the state as it was")


def ignores_padding(case: EncoderCase) -> None:
    """Padding changes nothing."""
    encoder, table = case.ready(), item_table()
    history = random_histories(3, 8, 1, 5)
    wider = per_position(history, lambda values: pad(values, (0, 4)))
    real = history.items != PAD
    message = "four more columns of padding change a state"
    require_near(states_of(encoder, table, wider)[:, :8][real], states_of(encoder, table, history)[real], message)
    require_near(last_of(encoder, table, wider), last_of(encoder, table, history), message)


def ignores_the_batch(case: EncoderCase) -> None:
    """Other rows of the batch and their order change nothing."""
    encoder, table = case.ready(), item_table()
    history = random_histories(4, LENGTH, 1, 9, 6)
    together = last_of(encoder, table, history)
    order = torch.tensor([3, 0, 4, 2, 1])
    mixed = history.rows(order)
    require_near(last_of(encoder, table, mixed), together[order], "the order of the batch changes a state")
    real = mixed.items != PAD
    states = states_of(encoder, table, history)[order][real]
    require_near(states_of(encoder, table, mixed)[real], states, "the order of the batch changes a state")
    for row in range(5):
        alone = last_of(encoder, table, history.rows(torch.tensor([row])))[0]
        require_near(alone, together[row], "a row alone has another state than in a batch")


def is_finite(case: EncoderCase) -> None:
    """Shortest, longest and monotonous histories give finite states."""
    encoder, table = case.ready(), item_table()
    same = torch.full((2, LENGTH), 5)
    histories = random_histories(1, 1, 1), random_histories(*[LENGTH] * 3), History(same), History(same[:1, :1])
    for history in histories:
        shape = tuple(history.items.shape)
        require(states_of(encoder, table, history).isfinite().all(), f"forward is not finite for histories of {shape}")
        require(last_of(encoder, table, history).isfinite().all(), f"last is not finite for histories of {shape}")


def leaves_inputs_alone(case: EncoderCase) -> None:
    """Inputs are left as they were."""
    encoder, table = case.ready(), item_table()
    batch = windows_of(random_histories(LENGTH, 5, 2))
    history = batch.history
    embedded = encoder.embed(encoder.items(table), history).detach()
    given = {"table": table, "embedded": embedded, "items": history.items, "target": batch.target}
    optional = {name: getattr(history, name) for name in ("feedback", "users", "times", "request_times")}
    given |= {name: value for name, value in optional.items() if value is not None}
    before = {name: value.clone() for name, value in given.items()}
    encoder.train()
    encoder(embedded, history)
    encoder.last(embedded, history)
    encoder.prediction_task(encoder.items(table), batch)
    for name, value in given.items():
        require(torch.equal(value, before[name]), f"{name} was changed in place")


def treats_no_user_as_unknown(case: EncoderCase) -> None:
    """A history without users is one of unknown users."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, 5, 2)
    nobody = replace(history, users=None)
    strangers = replace(history, users=torch.zeros(3, dtype=torch.int64))
    message = "users=None and users=0 give different states"
    require_near(last_of(encoder, table, nobody), last_of(encoder, table, strangers), message)
    require_near(states_of(encoder, table, nobody), states_of(encoder, table, strangers), message)
    task = encoder.train().prediction_task(encoder.items(table), windows_of(nobody))
    require(task.states.isfinite().all(), "prediction_task is not finite without users")


def reads_feedback(case: EncoderCase) -> None:
    """Feedback is read where it is known, and only with the setting."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, LENGTH)
    before = states_of(encoder, table, history)
    after = states_of(encoder, table, replace(history, feedback=feedback_of(history) % KINDS + 1))
    require(((after - before).abs().amax(-1) > 0.001).all(), "other feedback leaves a state as it was")
    unknown = replace(history, feedback=torch.zeros_like(history.items))
    none = replace(history, feedback=None)
    require_near(states_of(encoder, table, none), states_of(encoder, table, unknown), "feedback None is not feedback 0")
    task = encoder.train().prediction_task(encoder.items(table), windows_of(unknown))
    require(task.states.isfinite().all(), "prediction_task is not finite without feedback")
    plain = case.build().train(False)
    message = "feedback changes a state although the setting `feedback` is off"
    require(torch.equal(states_of(plain, table, history), states_of(plain, table, none)), message)


def treats_no_time_as_unknown(case: EncoderCase) -> None:
    """A history without times is one of unknown times."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, 5, 2)
    none = replace(history, times=None, request_times=None)
    unknown = replace(none, times=torch.zeros_like(history.items), request_times=torch.zeros_like(history.items))
    real, message = history.items != PAD, "times None are not times 0"
    require_near(last_of(encoder, table, none), last_of(encoder, table, unknown), message)
    require_near(states_of(encoder, table, none)[real], states_of(encoder, table, unknown)[real], message)
    task = encoder.train().prediction_task(encoder.items(table), windows_of(none))
    require(task.states.isfinite().all(), "prediction_task is not finite without times")


def predicts_only_targets(case: EncoderCase) -> None:
    """Only targets of the batch are predicted."""
    encoder, table = case.ready(), item_table()
    history = random_histories(LENGTH, 7, 2, 9)
    steps = torch.arange(LENGTH)
    wanted = (steps >= history.lengths[:, None] - 2) & (steps > 0) & (history.items != PAD)
    items = torch.where(wanted, 21 + history.items % 10, history.items % 20 + (history.items != PAD))  # 21.. if wanted
    batch = windows_of(replace(history, items=items), wanted=2)
    task = encoder.prediction_task(encoder.items(table), batch)
    require(task.states.shape == (len(task.target), DIM), "prediction_task gives other numbers of states and targets")
    require(0 < len(task.target) <= batch.transitions, "prediction_task gives no target, or more than the batch has")
    predicted, targets = Counter(task.target.tolist()), Counter(batch.target.flatten().tolist())
    require(task.target.amin() > 20 and predicted <= targets, "prediction_task predicts what is no target of the batch")


def repeats_with_the_seed(case: EncoderCase) -> None:
    """The same seed gives the same prediction task."""
    encoder, table = case.ready().train(), item_table()
    batch = windows_of(random_histories(LENGTH, LENGTH, 5, 2))
    tasks = []
    for _ in range(2):
        torch.manual_seed(11)
        tasks.append(encoder.prediction_task(encoder.items(table), batch))
    first, second = tasks
    require(torch.equal(first.states, second.states), "states differ between two calls with one seed")
    require(torch.equal(first.target, second.target), "targets differ between two calls with one seed")
    require(first.extra.keys() == second.extra.keys(), "extra losses differ between two calls with one seed")
    for key, value in first.extra.items():
        require(torch.equal(value, second.extra[key]), f"loss {key} differs between two calls with one seed")


def trains_every_parameter(case: EncoderCase) -> None:
    """A gradient reaches every parameter and item."""
    encoder = case.build(feedback=True).train()
    table = item_table().requires_grad_()
    for seed in range(20):
        torch.autograd.backward(prediction_loss(encoder, table, full_windows(16, seed)))
    missing = _unreached(encoder, table)
    require(not missing, f"no gradient for {', '.join(missing)}")
    for name, weight in [("table", table), *encoder.named_parameters()]:
        require(weight.grad is not None and weight.grad.isfinite().all(), f"the gradient of {name} is not finite")


def _unreached(encoder: Encoder, table: Tensor) -> list[str]:
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


def has_equal_sparse_gradients(case: EncoderCase) -> None:
    """The row-sparse gradient of the item table is the dense one."""
    encoder = case.build().train()
    if encoder.transforms_items:
        return  # every row of the table is touched
    gradients = []
    for encoder.sparse in (False, True):
        table = item_table().requires_grad_()
        torch.manual_seed(4)
        torch.autograd.backward(encoder.prediction_task(table, full_windows(4, 0)).states.square().sum())
        require(table.grad is not None, "no gradient reaches the item table")
        gradient = table.grad if table.grad is not None else table
        require(gradient.is_sparse == encoder.sparse, "look-ups do not follow `sparse`; use look_up or embed")
        gradients.append(gradient.to_dense())
    require_near(gradients[1], gradients[0], "dense and row-sparse gradients differ")


def learns_two_blocks(case: EncoderCase) -> None:
    """A catalogue of two blocks, each user in one of them, is learned in 150 steps."""
    encoder = case.build(items=2 * _BLOCK, fitted=False)
    encoder.fit_statistics(sequences_of(_sample_blocks(torch.arange(64) % 2).history))
    table = item_table(2 * _BLOCK).requires_grad_()
    optimiser = torch.optim.Adam([*encoder.parameters(), table], lr=3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        loss = prediction_loss(encoder.train(), table, _sample_blocks(torch.randint(2, (32,))))
        torch.autograd.backward(loss)
        optimiser.step()
    blocks = torch.arange(100) % 2
    history = replace(_sample_blocks(blocks).history, users=None)
    scores = last_of(encoder.train(False), table, history) @ encoder.items(table)[1:].T.detach()
    best = scores.topk(_BLOCK).indices // _BLOCK  # [100, 10]
    share = float((best == blocks[:, None]).float().mean())
    require(share >= 0.9, f"{share:.0%} of the ten best items are of the right block, expected 90 %")


def _sample_blocks(blocks: Tensor) -> Batch:
    """Windows of items of one block each: 1..10 or 11..20."""
    events = blocks[:, None] * _BLOCK + torch.randint(1, _BLOCK + 1, (len(blocks), LENGTH + 1))
    kept = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (len(blocks), 1))
    users = torch.randint(1, USERS + 1, (len(blocks),))
    history = History(events[:, :-1] * kept, None, users)
    return Batch(history, events[:, 1:] * kept, torch.ones(kept.shape), torch.zeros(kept.shape))


def is_its_weights(case: EncoderCase) -> None:
    """Saved weights give the same states again."""
    encoder, table = case.ready(), item_table()
    stored = load(save(encoder.state_dict()))
    fresh = case.build(fitted=False, feedback=True).train(False)
    for label, _ in list(fresh.named_buffers()):
        if label in stored:
            owner, _, leaf = label.rpartition(".")
            setattr(fresh.get_submodule(owner), leaf, stored[label])
    fresh.load_state_dict(stored)
    history = random_histories(LENGTH, 5, 1)
    message = "a fresh encoder with the saved weights gives other states; keep statistics in buffers"
    require(torch.equal(fresh.items(table), encoder.items(table)), message)
    require(torch.equal(states_of(fresh, table, history), states_of(encoder, table, history)), message)
    require(torch.equal(last_of(fresh, table, history), last_of(encoder, table, history)), message)


class _Serving(nn.Module):
    """Items to state, as a server runs it: the item vectors are computed once."""

    def __init__(self, encoder: Encoder, table: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.vectors = nn.Buffer(encoder.items(table).detach())

    def forward(self, items: Tensor) -> Tensor:
        history = History(items)
        return self.encoder.last(self.encoder.embed(self.vectors, history), history)


def can_be_exported(case: EncoderCase) -> None:
    """`torch.export` gives a program for any batch size with the same states."""
    serving = _Serving(case.ready(feedback=False), item_table()).train(False)
    traced = random_histories(LENGTH, 5, 1, 7).items
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The tensor attributes .*_flat_weights", UserWarning)  # nn.GRU's own list
        try:
            shapes = ({0: torch.export.Dim("batch", max=4096)},)
            served = torch.export.export(serving, (traced,), dynamic_shapes=shapes).module()
        except Exception as error:  # torch.export raises many kinds
            raise AssertionError(f"cannot be exported: {' '.join(str(error).split())[:200]}") from error
        for lengths in [(5,), (LENGTH, 1, 6), (2, 9, LENGTH, 1, 1, 11, 4)]:
            items = random_histories(*lengths, seed=4).items
            items = pad(items, (0, LENGTH - items.shape[1]))
            require_near(served(items), serving(items), "the exported program gives other states")


ENCODER_CHECKS: dict[str, Callable[[EncoderCase], None]] = titled(
    last_is_the_last_state,
    is_finite,
    reads_the_last_item,
    looks_at_no_later_item,
    gives_prefixes_at_once,
    ignores_padding,
    ignores_the_batch,
    leaves_inputs_alone,
    treats_no_user_as_unknown,
    reads_feedback,
    treats_no_time_as_unknown,
    predicts_only_targets,
    repeats_with_the_seed,
    trains_every_parameter,
    has_equal_sparse_gradients,
    is_its_weights,
    can_be_exported,
    learns_two_blocks,
)
"""Every part of the contract, by what it states."""
