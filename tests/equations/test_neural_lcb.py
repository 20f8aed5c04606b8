"""NeuralLCB against loops written from its formulas (docs/equations.md §3.5), on three items."""

import math
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS, Encoder
from ecoc.methods import BuildContext
from ecoc.methods.neural_lcb import LCBPolicy, NeuralLCB
from ecoc.policies.base import load_weights
from ecoc.policies.ranking import Query
from ecoc.training.optimiser import Optimiser

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH, WIDTH = 3, 4, 4, 5
LAM0, LAM, BETA, DRAWS = 0.25, 0.03, 0.7, 6


def make(*, items: int = ITEMS, seed: int = 0, **options: Any) -> NeuralLCB:
    torch.manual_seed(seed)
    kind, dims = ENCODERS["gru4rec"], Dims(items)
    encoder = kind.Config.build({"dim": DIM, "length": LENGTH, "init": 0.5})

    def make_encoder(**changes: Any) -> Encoder:
        raise AssertionError("it has an encoder of its own")

    given = {"lam0": LAM0, "lam": LAM, "beta_lcb": BETA, "negatives": DRAWS, "hidden": WIDTH, **options}
    method = NeuralLCB(NeuralLCB.Config.build(given), BuildContext(dims, encoder, make_encoder)).double()
    with torch.no_grad():
        method.policy.head.weight[1:] += torch.randn(items, method.policy.head.weight.shape[1])
        for layer in method.policy.body:
            if isinstance(layer, torch.nn.LayerNorm):  # away from where every unit is like every other
                layer.weight.add_(0.3 * torch.randn_like(layer.weight))
                layer.bias.add_(0.3 * torch.randn_like(layer.bias))
    return method


def make_batch() -> Batch:
    """Rows of three lengths; one position has no target."""
    items = torch.tensor([[1, 2, 3, 1], [3, 2, 0, 0], [2, 0, 0, 0]])
    target = torch.tensor([[2, 3, 1, 2], [0, 1, 0, 0], [1, 0, 0, 0]])
    reward = torch.tensor([[0.5, 2.0, -1.0, 3.0], [0.0, 1.5, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0]]).double()
    return Batch(History(items), target, reward, torch.zeros(3, 4).double())


def slow_phi(policy: LCBPolicy, history: list[int]) -> Floats:
    """The MLP of mean and last embedding, layer by layer."""
    weights = {name: values.detach().numpy() for name, values in policy.named_parameters()}
    rows = [math.sqrt(DIM) * weights["table"][item] for item in history]
    x = np.concatenate([sum(rows) / len(rows), rows[-1]])
    for layer in (0, 3):
        x = weights[f"body.{layer}.weight"] @ x + weights[f"body.{layer}.bias"]
        mean, spread = sum(x) / len(x), sum((x - sum(x) / len(x)) ** 2) / len(x)
        x = (x - mean) / math.sqrt(spread + 1e-5)
        x = x * weights[f"body.{layer + 1}.weight"] + weights[f"body.{layer + 1}.bias"]
        x = np.array([max(value, 0.0) for value in x])
    return x


def slow_f(policy: LCBPolicy, history: list[int], item: int) -> float:
    weight = policy.head.weight.detach().numpy()[item]
    return float(sum(slow_phi(policy, history) * weight[:-1]) + weight[-1])


def logged(batch: Batch) -> list[tuple[list[int], int, float]]:
    """History, item and reward of every transition."""
    return [
        (
            batch.history.items[row, : place + 1].tolist(),
            int(batch.target[row, place]),
            float(batch.reward[row, place]),
        )
        for row, place in batch.target.nonzero().tolist()
    ]


def loss_of(method: NeuralLCB, batch: Batch, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return method.loss(batch)


@pytest.mark.parametrize("seed", range(4))
def test_the_losses_are_the_formulas(seed: int) -> None:
    method, batch = make(seed=seed), make_batch()
    loss = loss_of(method, batch, seed)
    torch.manual_seed(seed)
    drawn = torch.randint(1, ITEMS + 1, (DRAWS,)).tolist()
    fit, negative = 0.0, 0.0
    for history, item, reward in logged(batch):
        fit += 0.5 * (slow_f(method.policy, history, item) - reward) ** 2
        squares = [slow_f(method.policy, history, other) ** 2 for other in drawn if other != item]
        negative += 0.5 * sum(squares) / max(1, len(squares))
    norm = sum(float((p.detach() ** 2).sum()) for p in method.policy.body.parameters())
    scored = set(drawn) | {item for _, item, _ in logged(batch)}
    norm += sum(float((method.policy.head.weight.detach()[item] ** 2).sum()) for item in scored)
    norm += sum(float((method.policy.table.detach()[item] ** 2).sum()) for item in (1, 2, 3))
    expected = {"fit": fit / 6, "negative": negative / 6, "decay": 0.5 * LAM * norm}
    assert len(logged(batch)) == 6
    assert {name: part.item() for name, part in loss.parts.items()} == pytest.approx(expected, rel=1e-9)
    assert loss.total.item() == pytest.approx(sum(expected.values()), rel=1e-9)
    assert loss.diagnostics == {}


@pytest.mark.parametrize("lam", [0.0, LAM])
def test_gradients_by_finite_differences(lam: float) -> None:
    method, batch, step = make(lam=lam), make_batch(), 1e-6
    loss_of(method, batch).total.backward()
    parameters = list(method.parameters())
    for _ in range(5):
        along, ends = 0.0, []
        steps = [torch.randn_like(p) for p in parameters]
        with torch.no_grad():
            for p, direction in zip(parameters, steps, strict=True):
                assert p.grad is not None
                direction[PAD] *= 1.0 if p.shape[0] != ITEMS + 1 else 0.0  # PAD's rows are not learnt
                along += float((p.grad * direction).sum())
            for sign in (1, -2):
                for p, direction in zip(parameters, steps, strict=True):
                    p.add_(direction, alpha=sign * step)
                ends.append(loss_of(method, batch).total.item())
            for p, direction in zip(parameters, steps, strict=True):
                p.add_(direction, alpha=step)
        assert along == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-8)


def test_the_logged_item_is_no_negative_of_its_state() -> None:
    method = make(items=1, lam=0.0)  # all draws collide
    batch = Batch(
        History(torch.tensor([[1]])), torch.tensor([[1]]), torch.tensor([[4.0]]).double(), torch.ones(1, 1).double()
    )
    loss = loss_of(method, batch)
    assert loss.parts["negative"].item() == 0
    assert loss.total.item() == pytest.approx(0.5 * (slow_f(method.policy, [1], 1) - 4.0) ** 2)


def test_padding_is_never_drawn_read_or_listed() -> None:
    method, batch = make(negatives=500), make_batch()
    before = loss_of(method, batch).total.item()
    with torch.no_grad():
        method.policy.head.weight[PAD] = 100.0
        method.policy.precision[PAD] = 1e9
        assert loss_of(method, batch).total.item() == before
        items, scores = method.policy.topk(method.policy.query(batch.history), 9)
    assert [sorted(row) for row in items.tolist()] == [[1, 2, 3]] * 3
    assert scores.isfinite().all()
    method = make(lam=0.1)
    optimiser = Optimiser(method, betas=(0.9, 0.98), decay=0.1, sparse=set(), decays=method.decays)
    for seed in range(5):
        loss_of(method, batch, seed).total.backward()
        optimiser.step(0.1, 5.0)
        optimiser.zero()
    assert not method.policy.head.weight[PAD].any()
    assert not method.policy.table[PAD].any()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, ITEMS), min_size=1, max_size=LENGTH), min_size=1, max_size=5))
def test_a_position_of_a_window_is_the_query_of_its_prefix(rows: list[list[int]]) -> None:
    policy = make().policy
    wide = max(map(len, rows))
    history = History(torch.tensor([row + [PAD] * (wide - len(row)) for row in rows]))
    with torch.no_grad():
        everywhere, together = policy.body(policy.contexts(history)), policy.query(history).vector
        for number, row in enumerate(rows):
            for stop in range(1, len(row) + 1):
                alone = policy.query(History(torch.tensor([row[:stop]]))).vector[0]
                torch.testing.assert_close(everywhere[number, stop - 1], alone)
                np.testing.assert_allclose(alone.numpy(), slow_phi(policy, row[:stop]), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(together[number], everywhere[number, len(row) - 1])


def slow_precision(policy: LCBPolicy, batches: list[Batch], weight: float = 1.0) -> Floats:
    result = np.full((ITEMS + 1, WIDTH), LAM0)
    for batch in batches:
        for history, item, _ in logged(batch):
            phi = slow_phi(policy, history)
            for place in range(WIDTH):
                result[item, place] += weight * phi[place] ** 2 / WIDTH
    return result


def other_batch() -> Batch:
    target = torch.tensor([[3, 0], [1, 2]])
    history = History(torch.tensor([[2, 0], [3, 1]]))
    return Batch(history, target, torch.ones(2, 2).double(), torch.zeros(2, 2).double())


def test_lambda_counts_the_logged_pairs_with_the_phi_of_now() -> None:
    method, batches = make(), [make_batch(), other_batch()]
    assert (method.policy.precision == LAM0).all()
    method.calibrate(method.policy, iter(batches))
    np.testing.assert_allclose(method.policy.precision.numpy(), slow_precision(method.policy, batches))
    assert (method.policy.precision[PAD] == LAM0).all()
    assert not method.policy.precision.requires_grad
    with torch.no_grad():
        for parameter in method.policy.body.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    method.calibrate(method.policy, iter(batches))  # not on top of what was there
    np.testing.assert_allclose(method.policy.precision.numpy(), slow_precision(method.policy, batches))


def test_a_sample_stands_for_all_pairs() -> None:
    method, batch = make(), make_batch()
    method.fit_statistics(TrainSequences(np.array([1, 2, 3, 1, 2] * 4), np.array([0, 5, 20])))
    assert method.pairs == 18
    method.calibrate(method.policy, [batch])
    np.testing.assert_allclose(method.policy.precision.numpy(), slow_precision(method.policy, [batch], 18 / 6))
    method.calibrate(method.policy, [batch] * 4)  # more than there are: each counts once
    np.testing.assert_allclose(method.policy.precision.numpy(), slow_precision(method.policy, [batch] * 4))


def test_another_copy_takes_its_own_lambda() -> None:
    method = make()
    copy = deepcopy(method.policy)
    method.calibrate(copy, [make_batch()])
    assert (method.policy.precision == LAM0).all()
    assert (copy.precision[1:] > LAM0).any()


def test_lambda_is_saved_with_the_policy() -> None:
    method, fresh = make(), make(seed=1)
    method.calibrate(method.policy, [make_batch()])
    load_weights(fresh.policy, method.policy.state_dict(), where="here")
    query = Query(torch.rand(4, WIDTH).double())
    assert torch.equal(fresh.policy.scores(query, 1, 4), method.policy.scores(query, 1, 4))


def slow_scores(policy: LCBPolicy, query: Query, beta: float = BETA) -> Floats:
    weight, precision = policy.head.weight.detach().double().numpy(), policy.precision.double().numpy()
    phi, width = query.vector.double().numpy(), query.vector.shape[1]
    result = np.zeros((len(phi), len(weight)))
    for row in range(len(phi)):
        for item in range(len(weight)):
            squared = sum(phi[row] ** 2 / precision[item]) / width
            result[row, item] = sum(phi[row] * weight[item, :-1]) + weight[item, -1] - beta * math.sqrt(squared)
    return result


def test_scores_are_the_lower_bound() -> None:
    policy = make().policy
    policy.precision = LAM0 + 3 * torch.rand_like(policy.precision)
    query = Query(torch.rand(6, WIDTH).double())
    expected = slow_scores(policy, query)
    with torch.no_grad():
        np.testing.assert_allclose(policy.scores(query, 0, ITEMS + 1).numpy(), expected)
        np.testing.assert_allclose(policy.scores(query, 2, 3).numpy(), expected[:, 2:3])
        items = torch.tensor([[1, 3, 3], [0, 2, 1], [1, 1, 1], [2, 2, 3], [3, 1, 2], [2, 1, 3]])
        found, slack = policy.scores_of(query, items)
    np.testing.assert_allclose(found.numpy(), np.take_along_axis(expected, items.numpy(), 1))
    assert (slack > 0).all()
    assert (slack < 1e-4).all()


def test_rounding_stays_within_what_is_said() -> None:
    method = make(items=3000, hidden=100).float()
    policy = method.policy
    policy.precision = LAM0 + 30 * torch.rand_like(policy.precision) ** 3
    query = Query(torch.randn(40, 100).relu())
    items = torch.randint(1, 3001, (40, 500))
    with torch.no_grad():
        found, slack = policy.scores_of(query, items)
        blocks = torch.cat([policy.scores(query, first, first + 100) for first in range(1, 3001, 100)], 1)
    assert ((found - blocks.gather(1, items - 1)).abs() <= slack).all()


@pytest.mark.parametrize("items", [3, 1500])
def test_ranks_are_those_of_a_sorted_list(items: int) -> None:
    policy = make(items=items).policy
    policy.precision = LAM0 + 3 * torch.rand_like(policy.precision)
    query, target = Query(torch.rand(5, WIDTH).double()), torch.randint(1, items + 1, (5,))
    with torch.no_grad():
        ranks, (listed, scores) = policy.ranks(query, target), policy.topk(query, items)
    for row, values in enumerate(slow_scores(policy, query)):
        order = sorted(range(1, items + 1), key=lambda item: -values[item])
        assert listed[row].tolist() == order
        assert ranks[row].item() == order.index(int(target[row])) + 1
        np.testing.assert_allclose(scores[row].numpy(), values[order])


def test_pessimism_prefers_what_was_seen_more() -> None:
    """Items 1 and 2 promise the same; 2 was logged ten times as often. Never logged, 3 promises a little more."""
    method = make()
    with torch.no_grad():
        method.policy.head.weight.zero_()
        method.policy.head.weight[:, -1] = torch.tensor([0.0, 1.0, 1.0, 1.1])
    target = torch.tensor([[1], *[[2]] * 10])
    ones = torch.ones(11, 1)
    batch = Batch(History(torch.ones(11, 1, dtype=torch.int64)), target, ones.double(), ones.double())
    method.calibrate(method.policy, [batch])
    history = History(torch.tensor([[1]]))
    with torch.no_grad():
        assert method.policy.topk(method.policy.query(history), 3)[0].tolist() == [[2, 1, 3]]
        method.policy.beta = 0.0
        assert method.policy.topk(method.policy.query(history), 3)[0].tolist() == [[3, 1, 2]]


def test_it_learns_which_item_pays_after_which() -> None:
    """After 1 both 2 and 3 were logged, and 3 paid more; after 2 it was the other way round."""
    method = make(lam=1e-4, lam0=0.1, beta_lcb=0.1, negatives=20, hidden=16)
    history = torch.tensor([[1], [1], [2], [2]])
    target, reward = torch.tensor([[2], [3], [1], [3]]), torch.tensor([[0.2], [1.0], [1.0], [0.2]]).double()
    batch = Batch(History(history), target, reward, torch.ones(4, 1).double())
    optimiser = Optimiser(method, betas=(0.9, 0.98), decay=0.0, sparse=set(), decays=method.decays)
    for seed in range(150):
        loss_of(method, batch, seed).total.backward()
        optimiser.step(0.01, 5.0)
        optimiser.zero()
    method.calibrate(method.policy, [batch])
    with torch.no_grad():
        items, _ = method.policy.topk(method.policy.query(History(torch.tensor([[1], [2]]))), 3)
    assert items.tolist() == [[3, 2, 1], [1, 3, 2]]


def test_what_it_says_of_itself() -> None:
    method = make()
    method.collect_diagnostics = True
    seen = loss_of(method, make_batch()).diagnostics
    expected = np.mean([slow_f(method.policy, history, item) for history, item, _ in logged(make_batch())])
    assert seen["f/logged"].item() == pytest.approx(expected)
    assert "encoder" in method.describe()
    assert method.policy.vectors() is method.policy.table
    assert (method.policy.items, method.policy.length) == (ITEMS, LENGTH)
    assert method.is_trained
    assert not method.needs_next
    assert not any(method.decays(name) for name, _ in method.named_parameters())
