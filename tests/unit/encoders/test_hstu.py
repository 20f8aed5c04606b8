"""HSTU against a loop over every element, its hand-written gradient, and what times change."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ecoc.batch import Batch, Dims, History
from ecoc.encoders import pointwise_attention
from ecoc.encoders.hstu import BUCKETS, HSTU, Block, bucket
from ecoc.encoders.pointwise_attention import pointwise_attention as attention
from ecoc.errors import InputError

DIM, LENGTH, ITEMS = 4, 8, 9
DAY = 86_400

pytestmark = pytest.mark.usefixtures("one_thread")


def encoder(**options: object) -> HSTU:
    """An encoder in evaluation mode whose biases are large enough to matter."""
    torch.manual_seed(1)
    built = HSTU(HSTU.Config.build({"dim": DIM, "length": LENGTH, **options}), Dims(ITEMS))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built.train(False)


@pytest.fixture
def table() -> Tensor:
    return torch.randn(ITEMS + 1, DIM, generator=torch.Generator().manual_seed(2)).index_fill(0, torch.tensor(0), 0)


def history(items: list[int], times: list[int], request: int) -> History:
    """One row; the state after each event is used at the time of the next."""
    return History(
        torch.tensor([items]), times=torch.tensor([times]), request_times=torch.tensor([[*times[1:], request]])
    )


def states(model: HSTU, table: Tensor, past: History) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(model.embed(table, past), past)
    return result


def last(model: HSTU, table: Tensor, past: History) -> Tensor:
    with torch.no_grad():
        return model.last(model.embed(table, past), past)


# The equation, element by element


def slow_bucket(request: int, time: int) -> int:
    if request == 0 or time == 0:
        return 0
    return min(1 + int(math.log(max(1, abs(request - time))) / 0.301), BUCKETS - 1)


def slow_silu(value: float) -> float:
    return value / (1 + math.exp(-value))


def slow_norm(values: list[float], norm: torch.nn.LayerNorm) -> list[float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    gain, shift = norm.weight.tolist(), norm.bias.tolist()
    return [(value - mean) / math.sqrt(variance + norm.eps) * gain[j] + shift[j] for j, value in enumerate(values)]


def slow_linear(values: list[float], linear: torch.nn.Linear) -> list[float]:
    rows, shift = linear.weight.tolist(), linear.bias.tolist()
    return [sum(a * b for a, b in zip(row, values, strict=True)) + shift[i] for i, row in enumerate(rows)]


def slow_block(block: Block, x: list[list[float]], times: list[int], requests: list[int]) -> list[list[float]]:
    projected = [[slow_silu(value) for value in slow_linear(slow_norm(row, block.before), block.project)] for row in x]
    gate, value, query, key = ([row[part * DIM : (part + 1) * DIM] for row in projected] for part in range(4))
    width = DIM // block.heads
    by_distance, by_bucket = block.by_distance.tolist(), block.by_bucket.tolist()
    result = []
    for t in range(len(x)):
        mixed = [0.0] * DIM
        for s in range(t + 1):
            for head in range(block.heads):
                cells = range(head * width, (head + 1) * width)
                score = sum(query[t][j] * key[s][j] for j in cells)
                score += by_distance[t - s] + by_bucket[slow_bucket(requests[t], times[s])]
                for j in cells:
                    mixed[j] += slow_silu(score) * value[s][j]
        gated = [a * b for a, b in zip(slow_norm(mixed, block.after), gate[t], strict=True)]
        result.append([a + b for a, b in zip(x[t], slow_linear(gated, block.out), strict=True)])
    return result


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("times", "request_time"),
    [([10**9, 10**9 + 40, 10**9 + 3 * DAY], 10**9 + 9 * DAY), ([10**9, 0, 10**9 + 5], 0), ([0, 0, 0], 0)],
    ids=["known", "partly unknown", "unknown"],
)
def test_three_items_by_a_loop_over_every_element(
    table: Tensor, heads: int, times: list[int], request_time: int
) -> None:
    model, past = encoder(heads=heads, blocks=2), history([3, 1, 7], times, request_time)
    x = (table[past.items[0]] * model.scale + model.positions[:3]).tolist()
    for block in model.blocks:
        assert isinstance(block, Block)
        x = slow_block(block, x, times, [*times[1:], request_time])
    expected = torch.tensor([slow_norm(row, model.norm) for row in x])
    torch.testing.assert_close(states(model, table, past)[0], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last(model, table, past)[0], expected[-1], rtol=1e-4, atol=1e-5)


@given(st.integers(-(2**30), 2**30), st.integers(-(2**30), 2**30))
def test_buckets_grow_with_the_gap_and_ignore_its_sign(one: int, other: int) -> None:
    def of(gap: int) -> int:
        return int(bucket(torch.tensor([gap], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)))

    assert 1 <= of(one) < BUCKETS
    assert of(one) == of(-one)
    assert abs(of(one) - slow_bucket(one + 2**40, 2**40)) <= (abs(one) > 1)  # float32 may round at a boundary
    if abs(one) <= abs(other):
        assert of(one) <= of(other)


# The attention and its gradient


def dense(query: Tensor, key: Tensor, value: Tensor, by_distance: Tensor, by_bucket: Tensor, index: Tensor) -> Tensor:
    """The same with whole matrices and autograd; `index` [B, L, L] are bucket numbers."""
    steps = torch.arange(query.shape[2])
    distance = steps[:, None] - steps
    score = query @ key.mT + by_distance[distance.clamp(min=0)] + by_bucket[index][:, None]
    return (torch.nn.functional.silu(score) * (distance >= 0)) @ value


@pytest.mark.parametrize(("chunk", "length"), [(2, 5), (3, 6), (64, 4), (64, 150)])
def test_chunks_and_gradient_are_those_of_whole_matrices(
    monkeypatch: pytest.MonkeyPatch, chunk: int, length: int
) -> None:
    monkeypatch.setattr(pointwise_attention, "CHUNK", chunk)
    torch.manual_seed(5)
    rows, heads, width = 3, 2, 4
    tensors = [torch.randn(rows, heads, length, width, dtype=torch.float64) for _ in range(3)]
    tensors += [torch.randn(length, dtype=torch.float64), torch.randn(BUCKETS, dtype=torch.float64)]
    index = torch.randint(BUCKETS, (rows, length, length))
    by_row = (index + BUCKETS * torch.arange(rows)[:, None, None]).int()
    buckets = [by_row[:, first:stop, :stop].contiguous() for first, stop in pointwise_attention.chunks(length)]
    weight = torch.randn(rows, heads, length, width, dtype=torch.float64)
    gradients, outputs = [], []
    for is_dense in (True, False):
        inputs = [tensor.clone().requires_grad_() for tensor in tensors]
        query, key, value, by_distance, by_bucket = inputs
        outputs.append(
            dense(query, key, value, by_distance, by_bucket, index)
            if is_dense
            else attention(query, key, value, by_distance, by_bucket, buckets)
        )
        gradients.append(torch.autograd.grad((outputs[-1] * weight).sum(), inputs))
    torch.testing.assert_close(outputs[1], outputs[0])
    for ours, autograd in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, autograd)
    with torch.no_grad():
        query, key, value, by_distance, by_bucket = tensors
        torch.testing.assert_close(attention(query, key, value, by_distance, by_bucket, buckets), outputs[0])


def test_without_buckets_only_the_distance_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise_attention, "CHUNK", 2)
    torch.manual_seed(6)
    query, key, value = (torch.randn(2, 1, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    by_distance = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda q, k, v, distance: attention(q, k, v, distance, torch.zeros(1, dtype=torch.float64), []),
        (query, key, value, by_distance),
    )


# What times change


def test_the_time_of_an_event_and_of_the_request_change_the_state(table: Tensor) -> None:
    model, times = encoder(), [10**9, 10**9 + 60, 10**9 + DAY]
    before = last(model, table, history([3, 1, 7], times, 10**9 + DAY + 60))
    later = last(model, table, history([3, 1, 7], times, 10**9 + 30 * DAY))
    moved = last(model, table, history([3, 1, 7], [10**9 - 90 * DAY, *times[1:]], 10**9 + DAY + 60))
    assert (later - before).abs().amax() > 0.01
    assert (moved - before).abs().amax() > 0.01


def test_the_request_changes_only_its_own_state(table: Tensor) -> None:
    model, times = encoder(), [10**9, 10**9 + 60, 10**9 + DAY]
    near, far = (states(model, table, history([3, 1, 7], times, 10**9 + gap * DAY)) for gap in (2, 50))
    torch.testing.assert_close(near[:, :2], far[:, :2])
    assert (near[:, 2] - far[:, 2]).abs().amax() > 0.01


def test_only_gaps_count_not_the_calendar(table: Tensor) -> None:
    model, times = encoder(), [10**9, 10**9 + 1, 10**9 + 700 * DAY, 10**9 + 700 * DAY + 1]
    past = history([3, 1, 7, 2], times, times[-1] + 3)
    for shift in (-(10**9) - DAY, 2 * 10**9):  # also before 1970
        shifted = history([3, 1, 7, 2], [time + shift for time in times], times[-1] + 3 + shift)
        torch.testing.assert_close(states(model, table, shifted), states(model, table, past), rtol=0, atol=0)


@pytest.mark.parametrize("far", [10**11, -(10**11)])
def test_times_far_apart_share_the_last_bucket(table: Tensor, far: int) -> None:
    model = encoder()
    past = history([3, 1], [10**9, 10**9 + 5], far)
    expected = last(model, table, history([3, 1], [10**9, 10**9 + 5], 10**9 + 2**29))
    torch.testing.assert_close(last(model, table, past), expected)


def test_hidden_times_are_unknown_times(table: Tensor) -> None:
    model = encoder(dropout=0.0, hidden_times=1.0).train()
    past = history([3, 1, 7], [10**9, 10**9 + 60, 10**9 + DAY], 10**9 + 2 * DAY)
    unknown = replace(past, times=None, request_times=None)
    torch.testing.assert_close(states(model, table, past), states(model, table, unknown))
    model.train(False)
    assert (states(model, table, past) - states(model, table, unknown)).abs().amax() > 0.01


def test_a_share_of_the_training_windows_hides_its_times(table: Tensor) -> None:
    model = encoder(dropout=0.0, hidden_times=0.3).train()
    past = history([3, 1, 7], [10**9, 10**9 + 60, 10**9 + DAY], 10**9 + 2 * DAY).rows(torch.zeros(2000).long())
    unknown = states(model, table, replace(past, times=None, request_times=None))
    is_hidden = (states(model, table, past) - unknown).abs().amax((1, 2)) < 1e-6
    assert is_hidden.float().mean() == pytest.approx(0.3, abs=0.04)


def test_a_gradient_reaches_the_buckets_that_occur(table: Tensor) -> None:
    model = encoder(hidden_times=0.0).train()
    past = history([3, 1, 7], [10**9, 10**9, 10**9], 10**9 + DAY)
    batch = Batch(past, torch.tensor([[1, 7, 2]]), torch.ones(1, 3), torch.zeros(1, 3))
    torch.autograd.backward(model.prediction_task(table, batch).states.square().sum())
    for block in model.blocks:
        assert isinstance(block, Block)
        assert block.by_bucket.grad is not None
        occurring = {slow_bucket(request, 10**9) for request in (10**9, 10**9 + DAY)}
        assert set(block.by_bucket.grad.nonzero().flatten().tolist()) == occurring


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(InputError, match="dim 10 is not a multiple of heads 4"):
        HSTU.Config.build({"dim": 10, "heads": 4})
