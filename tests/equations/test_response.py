"""The response model beside its docstring, one number after the other, on three items."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import History
from ecoc.ope.response import ResponseConfig, ResponseModel, UserState
from ecoc.ope.simulator import Simulator

Floats = NDArray[np.float64]
ITEMS, FEEDBACK = 3, 2
CONFIG = ResponseConfig(dim=3, hidden=4, lasting=2, width=5, dropout=0.5)
SCALE = 0.3  # of after-effects


def numbers(tensor: Tensor) -> Floats:
    return tensor.detach().double().numpy()


def sigma(x: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-x))
    return found


class Slow:
    """The same weights, read event by event."""

    def __init__(self, model: ResponseModel) -> None:
        self.model = model
        self.w = {name: numbers(value) for name, value in model.state_dict().items()}
        self.rho = sigma(self.w["rate"])

    def gru(self, xs: list[Floats]) -> Floats:
        """Cho et al., as torch has it: gates reset, update, new."""
        h, size = np.zeros(CONFIG.hidden), CONFIG.hidden
        for x in xs:
            read = self.w["gru.weight_ih_l0"] @ x + self.w["gru.bias_ih_l0"]
            kept = self.w["gru.weight_hh_l0"] @ h + self.w["gru.bias_hh_l0"]
            r = sigma(read[:size] + kept[:size])
            z = sigma(read[size : 2 * size] + kept[size : 2 * size])
            n = np.tanh(read[2 * size :] + r * kept[2 * size :])
            h = (1 - z) * n + z * h
        return h

    def taste(self, items: list[int], given: list[int]) -> Floats:
        """S_t = [GRU(x)_t, (1 - rho_n) sum_j rho_n^(t-j) x_j]."""
        e, f, g = self.w["table.weight"], self.w["given.weight"], self.w["gate.weight"]
        xs = [e[i] * g[b] + f[b] for i, b in zip(items, given, strict=True)]
        parts = [self.gru(xs)]
        for rho in self.rho:
            parts.append((1 - rho) * sum(rho ** (len(xs) - 1 - j) * x for j, x in enumerate(xs)))
        return np.concatenate(parts)

    def after_effects(self, items: list[int], given: list[int]) -> Floats:
        """A_t = sum_j rho_n^(t-j) (k_{i_j} + c_{b_j}), to scale."""
        k, c = self.w["lasting.weight"], self.w["given_lasting.weight"]
        left = [k[i] + c[b] for i, b in zip(items, given, strict=True)]
        sums = [sum(rho ** (len(left) - 1 - j) * one for j, one in enumerate(left)) for rho in self.rho]
        return SCALE * np.concatenate(sums)

    def logits(self, items: list[int], given: list[int], item: int) -> Floats:
        """U_b z + bias_{i,b} + W_b A_t + MLP_b(S_t, A_t, z)."""
        w, taste, after = self.w, self.taste(items, given), self.after_effects(items, given)
        e = w["table.weight"][item]
        q = w["towards.weight"] @ taste + w["towards.bias"]
        z = np.concatenate([e, q * e, [q @ e]])
        found = w["direct.weight"] @ z + w["direct.bias"] + w["bias.weight"][item] + w["after.weight"] @ after
        hidden = np.maximum(0, w["mixed.0.weight"] @ np.concatenate([taste, after, z]) + w["mixed.0.bias"])
        result: Floats = found + w["mixed.3.weight"] @ hidden + w["mixed.3.bias"]
        return result

    def behaviour(self, items: list[int], given: list[int]) -> list[float]:
        """softmax_i(p(S_t).e_i + bias'_i) over items 1..n."""
        p = self.w["shown.weight"] @ self.taste(items, given) + self.w["shown.bias"]
        table, bias = self.w["table.weight"], self.w["shown_bias"]
        odds = [math.exp(float(p @ table[i] + bias[i])) for i in range(1, ITEMS + 1)]
        return [one / sum(odds) for one in odds]


@pytest.fixture(scope="module")
def model() -> ResponseModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        found = ResponseModel(ITEMS, FEEDBACK, CONFIG)
        with torch.no_grad():
            for name, weight in found.named_parameters():
                weight.add_(0.5 * torch.randn(weight.shape))
                if name in ("table.weight", "lasting.weight"):
                    weight[0] = 0
    return found.eval()


EVENTS = [(1, 2), (3, 1), (3, 0), (2, 2), (1, 1), (2, 0)]  # item, feedback code + 1; 0: unknown
PREFIXES = range(1, len(EVENTS) + 1)


def past(size: int) -> tuple[list[int], list[int]]:
    return [item for item, _ in EVENTS[:size]], [given for _, given in EVENTS[:size]]


def history(size: int, width: int | None = None) -> History:
    items, given = past(size)
    pad = [0] * ((width or size) - size)
    return History(torch.tensor([items + pad]), torch.tensor([given + pad]))


def close(a: UserState, b: UserState) -> bool:
    return torch.allclose(a.hidden, b.hidden, atol=1e-6) and torch.allclose(a.stock, b.stock, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("size", PREFIXES)
def test_taste_and_after_effects_are_the_docstring_s(model: ResponseModel, size: int) -> None:
    slow = Slow(model)
    taste, after = model._read(model.after_history(history(size)))
    assert numbers(taste[0]) == pytest.approx(slow.taste(*past(size)), abs=1e-5)
    assert numbers(after[0]) == pytest.approx(slow.after_effects(*past(size)), abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("size", PREFIXES)
def test_answers_are_the_docstring_s(model: ResponseModel, size: int) -> None:
    slow, state = Slow(model), model.after_history(history(size))
    worth = torch.tensor([[0.0, 0.0], [1.0, 5.0], [2.0, 7.0], [-1.0, 0.5]])
    simulator = Simulator([model], worth, ["no", "yes"], np.array([9]), 1.5)
    for item in range(1, ITEMS + 1):
        logits = slow.logits(*past(size), item)
        assert numbers(model.answers(state, torch.tensor([item]))[0]) == pytest.approx(logits, abs=1e-4)
        odds = np.exp(logits / 1.5)
        chances = simulator.chances(0, state, torch.tensor([item]))
        assert numbers(chances[0]) == pytest.approx(odds / odds.sum(), abs=1e-5)
        expected = float((odds / odds.sum()) @ numbers(worth[item]))
        assert float(simulator.reward(chances, torch.tensor([item]))) == pytest.approx(expected, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("size", PREFIXES)
def test_behaviour_is_a_softmax_over_items_without_padding(model: ResponseModel, size: int) -> None:
    simulator = Simulator([model], torch.zeros(ITEMS + 1, FEEDBACK), ["no", "yes"], np.array([9]), 1.5)
    found = simulator.log_behaviour(0, model.after_history(history(size)))[0]
    assert found.shape == (ITEMS,)
    assert numbers(found.exp()) == pytest.approx(np.array(Slow(model).behaviour(*past(size))), abs=1e-5)


@torch.no_grad()
def test_everywhere_is_event_after_event_is_after_history(model: ResponseModel) -> None:
    all_states = model.all_states(history(len(EVENTS)))
    step = model.after_history(history(1))
    for size in PREFIXES:
        if size > 1:
            item, given = EVENTS[size - 1]
            step = model.after_event(step, torch.tensor([item]), torch.tensor([given]))
        at_once = UserState(all_states.hidden[:, size - 1], all_states.stock[:, size - 1])
        assert close(at_once, model.after_history(history(size))), size
        assert close(at_once, step), size


@torch.no_grad()
def test_padding_and_company_change_nothing(model: ResponseModel) -> None:
    width = len(EVENTS) + 2
    alone = [model.after_history(history(size)) for size in PREFIXES]
    padded = [history(size, width) for size in reversed(PREFIXES)]
    assert all(one.feedback is not None for one in padded)
    together = model.after_history(
        History(
            torch.cat([one.items for one in padded]),
            torch.cat([one.feedback for one in padded if one.feedback is not None]),
        )
    )
    for row, one in enumerate(reversed(alone)):
        assert close(one, UserState(together.hidden[row : row + 1], together.stock[row : row + 1]))


@torch.no_grad()
def test_many_items_and_moods_are_answered_as_one_by_one(model: ResponseModel) -> None:
    all_states = model.all_states(history(len(EVENTS)))
    items = torch.tensor([[1, 2, 3, 3, 2, 1]])
    together = model.answers(all_states, items)
    assert together.shape == (1, len(EVENTS), FEEDBACK)
    for place in range(len(EVENTS)):
        one = model.answers(model.after_history(history(place + 1)), items[:, place])
        assert torch.allclose(together[:, place], one, atol=1e-5)


@torch.no_grad()
def test_no_feedback_is_unknown_feedback(model: ResponseModel) -> None:
    items = torch.tensor([[1, 3, 2]])
    assert close(model.after_history(History(items)), model.after_history(History(items, torch.zeros_like(items))))


@torch.no_grad()
def test_moods_are_taken_row_by_row(model: ResponseModel) -> None:
    one, two = model.after_history(history(2)), model.after_history(history(4))
    both = UserState(torch.cat([one.hidden, one.hidden]), torch.cat([one.stock, one.stock]))
    other = UserState(torch.cat([two.hidden, two.hidden]), torch.cat([two.stock, two.stock]))
    mixed = both.where(torch.tensor([True, False]), other)
    assert torch.equal(mixed.hidden, torch.cat([one.hidden, two.hidden]))
    assert torch.equal(mixed.stock, torch.cat([one.stock, two.stock]))


def test_decay_rates_start_apart_and_padding_at_nothing() -> None:
    with torch.random.fork_rng(devices=[]):
        fresh = ResponseModel(ITEMS, FEEDBACK, CONFIG)
    assert torch.sigmoid(fresh.rate).tolist() == pytest.approx([0.02, 0.6, 0.85, 0.95])
    assert not fresh.table.weight[0].any()
    assert not fresh.lasting.weight[0].any()
    assert fresh.table.weight[1:].any()
