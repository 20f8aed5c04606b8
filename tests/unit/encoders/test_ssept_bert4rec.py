"""SSE-PT's shared embeddings and BERT4Rec's cloze, against what the papers say and a slow loop."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ecoc.batch import PAD, Batch, Dims, History
from ecoc.encoders import bert4rec
from ecoc.encoders.bert4rec import BERT4Rec
from ecoc.encoders.ssept import SSEPT
from ecoc.errors import InputError

DIM, LENGTH, ITEMS, USERS = 8, 6, 40, 9


pytestmark = pytest.mark.usefixtures("one_thread")


def ssept(**options: object) -> SSEPT:
    torch.manual_seed(1)
    return SSEPT(SSEPT.Config.build({"dim": DIM, "length": LENGTH, **options}), Dims(ITEMS, USERS))


def cloze(**options: object) -> BERT4Rec:
    torch.manual_seed(1)
    encoder = BERT4Rec(BERT4Rec.Config.build({"dim": DIM, "length": LENGTH, **options}), Dims(ITEMS, USERS, 3))
    with torch.no_grad():
        encoder.mask.normal_()
        encoder.positions.normal_()
    return encoder


@pytest.fixture
def table() -> Tensor:
    table = torch.randn(ITEMS + 1, DIM, generator=torch.Generator().manual_seed(2))
    table[PAD] = 0
    return table


def windows(rows: int, width: int = LENGTH, *, seed: int = 3) -> Batch:
    """Rows of 1..width items that differ from one another, all of them with a target."""
    draw = torch.Generator().manual_seed(seed)
    events = torch.stack([torch.randperm(ITEMS, generator=draw)[: width + 1] + 1 for _ in range(rows)])
    kept = torch.arange(width) < torch.arange(rows)[:, None] % width + 1
    history = History(events[:, :-1] * kept, None, torch.randint(1, USERS + 1, (rows,), generator=draw))
    blank = torch.zeros(kept.shape)
    return Batch(history, events[:, 1:] * kept, blank, blank)


def shared(encoder: SSEPT, table: Tensor, batch: Batch) -> Batch:
    """What the encoder really read and was asked in training: the batch with its replacements."""
    read: list[History] = []
    hook = encoder.register_forward_pre_hook(lambda _, given: read.append(given[1]))
    asked = encoder.prediction_task(table, batch)
    hook.remove()
    assert len(asked.target) == batch.transitions
    target = torch.zeros_like(batch.target).masked_scatter(batch.target != PAD, asked.target)
    return replace(batch, history=read[0], target=target)


# SSE-PT


def test_an_event_is_replaced_as_item_and_as_target_alike(table: Tensor) -> None:
    batch = windows(600)
    after = shared(ssept(p_item=0.5), table, batch)
    inside = batch.history.items[:, 1:] != PAD
    assert torch.equal(after.history.items[:, 1:][inside], after.target[:, :-1][inside])
    for before, replaced in [(batch.history.items, after.history.items), (batch.target, after.target)]:
        assert torch.equal(before == PAD, replaced == PAD)
        real = before != PAD
        assert (replaced != before)[real].float().mean() == pytest.approx(0.5 * (1 - 1 / ITEMS), abs=0.04)
        assert set(replaced[real].tolist()) == set(range(1, ITEMS + 1))


def test_positions_without_a_target_stay_without_one(table: Tensor) -> None:
    batch = windows(50)
    batch = replace(batch, target=batch.target * (torch.arange(LENGTH) >= 2))
    after = shared(ssept(p_item=1), table, batch)
    assert torch.equal(after.target == PAD, batch.target == PAD)


def test_users_are_replaced_by_others_and_by_the_unknown_one(table: Tensor) -> None:
    batch = windows(4000)
    assert batch.history.users is not None
    after = shared(ssept(), table, batch).history.users
    assert after is not None
    assert (after == 0).float().mean() == pytest.approx(0.9 * 0.5, abs=0.03)
    assert (after == batch.history.users).float().mean() == pytest.approx(0.1 + 0.9 * 0.5 / USERS, abs=0.03)
    assert set(after.tolist()) == set(range(USERS + 1))


def test_a_stranger_stays_a_stranger(table: Tensor) -> None:
    batch = windows(50)
    strangers = replace(batch.history, users=torch.zeros(50, dtype=torch.int64))
    after = shared(ssept(p_user=1, unknown=0), table, replace(batch, history=strangers)).history.users
    assert after is not None
    assert not after.any()
    nobody = replace(batch.history, users=None)
    assert shared(ssept(p_user=1, unknown=0), table, replace(batch, history=nobody)).history.users is None


def test_nothing_is_replaced_outside_training(table: Tensor) -> None:
    batch = windows(50)
    after = shared(ssept(p_user=1, p_item=1).eval(), table, batch)
    assert after.history.users is batch.history.users
    assert torch.equal(after.history.items, batch.history.items)
    assert torch.equal(after.target, batch.target)


def test_unknown_row_learns_from_known_users(table: Tensor) -> None:
    def gradient(unknown: float) -> Tensor:
        encoder = ssept(unknown=unknown)
        encoder.prediction_task(table, windows(100)).states.square().sum().backward()  # type: ignore[no-untyped-call]
        assert encoder.users.weight.grad is not None
        return encoder.users.weight.grad.abs().amax(1)

    assert (gradient(0.5) > 0).all()
    assert gradient(0)[0] == 0


def test_state_is_the_item_half_of_attention_over_item_and_user(table: Tensor) -> None:
    encoder = ssept().eval()
    history = windows(4).history
    assert history.users is not None
    found = encoder(encoder.embed(table, history), history)
    for row in range(4):
        user = encoder.users.weight[history.users[row]]
        joined = torch.stack([torch.cat([table[item], user]) for item in history.items[row]]) * DIM**0.5
        out = encoder.transformer((joined + encoder.positions)[None])[0, :, :DIM]
        torch.testing.assert_close(found[row], out)


def test_a_catalogue_without_users_can_be_read(table: Tensor) -> None:
    encoder = SSEPT(SSEPT.Config.build({"dim": DIM, "length": LENGTH}), Dims(ITEMS))
    batch = windows(4)
    strangers = replace(batch.history, users=torch.zeros(4, dtype=torch.int64))
    assert encoder.prediction_task(table, replace(batch, history=strangers)).states.isfinite().all()


# BERT4Rec


def by_hand(encoder: BERT4Rec, vectors: Tensor) -> Tensor:
    """State after one history, [t, d] -> [d]: its last items, then the mask, every one seeing all."""
    row = torch.cat([vectors[-(LENGTH - 1) :], encoder.mask[None]]) + encoder.positions[: min(len(vectors) + 1, LENGTH)]
    hidden = encoder.transformer(row[None], torch.ones(1, 1, 1, len(row), dtype=torch.bool))
    state: Tensor = encoder.head(hidden[0, -1])
    return state


@pytest.mark.parametrize("rows_at_a_time", [3, 1024])
def test_inference_is_the_mask_appended_by_hand(
    table: Tensor, rows_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bert4rec, "_ROWS", rows_at_a_time)
    encoder = cloze().eval()
    history = windows(LENGTH).history
    embedded = encoder.embed(table, history)
    found, at_end = encoder(embedded, history), encoder.last(embedded, history)
    for row, length in enumerate(history.lengths.tolist()):
        for end in range(1, length + 1):
            expected = by_hand(encoder, table[history.items[row, :end]] * DIM**0.5)
            torch.testing.assert_close(found[row, end - 1], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(at_end[row], expected, rtol=1e-5, atol=1e-5)


def test_training_on_the_last_event_is_inference(table: Tensor) -> None:
    encoder = cloze(last_share=1).eval()
    batch = windows(2 * LENGTH)
    asked = encoder.prediction_task(table, batch)
    lengths = batch.history.lengths
    assert torch.equal(asked.target, batch.target[torch.arange(2 * LENGTH), lengths - 1])
    expected = encoder.last(encoder.embed(table, batch.history), batch.history)
    torch.testing.assert_close(asked.states, expected, rtol=1e-5, atol=1e-5)


def longest(batch: Batch) -> Batch:
    """The rows that fill the encoder's length."""
    full = batch.history.lengths == LENGTH
    return Batch(batch.history.rows(full), batch.target[full], batch.reward[full], batch.done[full])


def test_share_of_windows_with_only_the_last_event_masked(table: Tensor) -> None:
    batch = longest(windows(12000))
    asked = cloze(mask_ratio=0, last_share=0.3).prediction_task(table, batch).target
    assert len(asked) == len(batch.target)  # one a row
    is_last = (asked == batch.target[:, -1]).float().mean()
    assert is_last == pytest.approx(0.3 + 0.7 / LENGTH, abs=0.03)


def test_every_window_has_a_mask_and_a_fifth_of_its_targets(table: Tensor) -> None:
    encoder = cloze(last_share=0)
    for seed in range(20):
        assert len(encoder.prediction_task(table, windows(1, seed=seed)).target) == 1
    batch = longest(windows(12000))
    masked = len(encoder.prediction_task(table, batch).target) / batch.transitions
    none_drawn = 0.8**LENGTH  # then one is masked all the same
    assert masked == pytest.approx(0.2 + none_drawn / LENGTH, abs=0.02)


def test_masked_item_and_its_feedback_do_not_reach_its_state(table: Tensor) -> None:
    encoder = cloze(feedback=True).eval()
    with torch.no_grad():
        assert encoder.feedback is not None
        encoder.feedback.weight[1:].normal_()
    batch = windows(40)
    codes = (batch.history.items != PAD).long()
    batch = replace(batch, history=replace(batch.history, feedback=codes))

    def asked(table: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        torch.manual_seed(9)
        found = encoder.prediction_task(table, batch)
        return found.states.detach(), found.target

    states, target = asked(table, batch)
    others_changed = 0
    for index in range(0, len(target), 5):
        item = target[index]
        changed = table.clone()
        changed[item] += 10
        marked = replace(batch.history, feedback=torch.where(batch.history.items == item, 3 * codes, codes))
        after, _ = asked(changed, replace(batch, history=marked))
        torch.testing.assert_close(after[index], states[index])
        others_changed += not torch.allclose(after, states)
    assert others_changed > 0


def test_only_targets_are_masked(table: Tensor) -> None:
    batch = windows(300)
    unwanted = torch.arange(LENGTH) != 2
    batch = replace(batch, target=batch.target * unwanted)
    encoder = cloze(mask_ratio=1, last_share=0)
    asked = encoder.prediction_task(table, batch)
    assert sorted(asked.target.tolist()) == sorted(batch.target[batch.target != PAD].tolist())


def test_events_after_the_last_target_are_not_read(table: Tensor) -> None:
    encoder = cloze(last_share=1).eval()
    batch = windows(LENGTH)
    row = longest(batch)
    early = replace(row, target=row.target * (torch.arange(LENGTH) < 3))
    asked = encoder.prediction_task(table, early)
    assert asked.target.tolist() == [row.target[0, 2].item()]
    expected = by_hand(encoder, table[row.history.items[0, :3]] * DIM**0.5)
    torch.testing.assert_close(asked.states[0], expected, rtol=1e-5, atol=1e-5)


def test_windows_without_a_target_ask_for_nothing(table: Tensor) -> None:
    batch = windows(4)
    one = batch.target.clone()
    one[1:] = PAD
    assert cloze().prediction_task(table, replace(batch, target=one)).target.tolist() == [batch.target[0, 0].item()]


def test_mask_is_no_candidate(table: Tensor) -> None:
    encoder = cloze(mask_ratio=1)
    assert encoder.items(table) is table
    assert encoder.mask.shape == (DIM,)
    target = encoder.prediction_task(table, windows(500)).target
    assert target.amin() >= 1
    assert target.amax() <= ITEMS


def test_a_row_needs_room_for_the_mask() -> None:
    with pytest.raises(InputError, match="length"):
        cloze(length=1)
