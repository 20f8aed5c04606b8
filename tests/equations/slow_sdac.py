"""A tiny SDAC, and its losses as loops over states and items, written from docs/equations.md §3.3."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History
from ecoc.encoders import ENCODERS, Encoder
from ecoc.methods import BuildContext
from ecoc.methods.sdac import SDAC, SDACDC, SDACSR
from ecoc.policies.base import DensePolicy

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH = 3, 4, 4
DIMS = Dims(ITEMS, 3, 2)
GAMMA, ETA, LAM = 0.6, 0.3, 1.7
KINDS = [SDACSR, SDACDC]


def parts_of(name: str = "gru4rec", **options: Any) -> BuildContext:
    kind = ENCODERS[name]
    sizes = {"hidden": 5, "head": 0} if name == "gru4rec" else {}
    config = kind.Config.build(
        {"dim": DIM, "length": LENGTH, "dropout": 0.0, "init": 0.5, "scale": False, **sizes, **options}
    )

    def make_encoder(**changes: Any) -> Encoder:
        return kind(config.model_copy(update=changes), DIMS)

    return BuildContext(DIMS, config, make_encoder)


def make(kind: type[SDAC], *, parts: BuildContext | None = None, seed: int = 0, **settings: Any) -> Any:
    """A method in float64, in its last phase, whose lagged critics are not where the critics are."""
    torch.manual_seed(seed)
    settings = {"gamma": GAMMA, "lam": LAM, **({"eta": ETA} if kind is SDACSR else {}), **settings}
    method: Any = kind(kind.Config.build(settings), parts or parts_of())  # type: ignore[arg-type]
    method.double().train()
    copy = method.lagged["critics"].copy.double()
    with torch.no_grad():
        for network in networks(method).values():  # far from uniform, biases too
            network.head.weight[1:] += torch.randn_like(network.head.weight[1:])
        for parameter in copy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.5)
        for critic in (copy.first, copy.second):
            critic.head.weight[PAD] = 0
            critic.table[PAD] = 0
    method.phase = len(method.phases) - 1
    return method


def networks(method: nn.Module) -> dict[str, DensePolicy]:
    return {name: module for name, module in method.named_modules() if isinstance(module, DensePolicy)}


def make_batch(done: list[list[int]] | None = None) -> Batch:
    """Three rows: an end within a row, a position without a target, and two targets whose outcome lies outside."""
    items = torch.tensor([[1, 2, 3, 1], [3, 2, 0, 0], [2, 0, 0, 0]])
    target = torch.tensor([[2, 3, 1, 2], [0, 1, 0, 0], [3, 0, 0, 0]])
    reward = torch.tensor([[0.5, 2.0, -1.0, 3.0], [0.0, 1.5, 0.0, 0.0], [0.7, 0.0, 0.0, 0.0]]).double()
    ends = torch.tensor(done or [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).double()
    return Batch(History(items, users=torch.tensor([1, 2, 3])), target, reward, ends)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


# The slow method: one state, one item at a time.


def values_at(network: DensePolicy, history: History, row: int, place: int) -> Floats:
    """W z + b of items 1..3."""
    with torch.no_grad():
        state = network.states(history)[row, place].numpy()
    weight = network.head.weight.detach().numpy()
    return np.array([sum(state * weight[item, :-1]) + weight[item, -1] for item in range(1, ITEMS + 1)])


def log_pi_at(network: DensePolicy, history: History, row: int, place: int) -> Floats:
    logits = values_at(network, history, row, place)
    return logits - math.log(sum(math.exp(y) for y in logits))


def penalty_at(method: Any, history: History, row: int, place: int) -> Floats:
    log_pi = log_pi_at(method.policy, history, row, place)
    if isinstance(method, SDACSR):
        return ETA * log_pi
    return LAM * (log_pi - log_pi_at(method.behaviour, history, row, place))


def soft_value_at(method: Any, critics: Any, history: History, row: int, place: int) -> float:
    log_pi, penalty = log_pi_at(method.policy, history, row, place), penalty_at(method, history, row, place)
    first, second = (values_at(critic, history, row, place) for critic in (critics.first, critics.second))
    return float(sum(math.exp(log_pi[a]) * (min(first[a], second[a]) - penalty[a]) for a in range(ITEMS)))


def places(batch: Batch) -> list[tuple[int, int]]:
    return [(int(row), int(place)) for row, place in batch.target.nonzero()]


def slow_td(method: Any, batch: Batch, gamma: float = GAMMA) -> float:
    history, losses = batch.history, []
    for row, place in places(batch):
        is_end = bool(batch.done[row, place])
        is_followed = place + 1 < LENGTH and history.items[row, place + 1] != PAD
        if not is_end and not is_followed:
            continue
        goal = float(batch.reward[row, place])
        if not is_end:
            goal += gamma * soft_value_at(method, method.lagged["critics"].copy, history, row, place + 1)
        own = int(batch.target[row, place]) - 1
        for critic in (method.critics.first, method.critics.second):
            losses.append(0.5 * (values_at(critic, history, row, place)[own] - goal) ** 2)
    return float(sum(losses)) / (len(losses) / 2)


def slow_q(method: Any, batch: Batch) -> list[Floats]:
    """min_j Q_j(s, .) of every transition."""
    return [
        np.minimum(*(values_at(critic, batch.history, *at) for critic in (method.critics.first, method.critics.second)))
        for at in places(batch)
    ]


def slow_pi(method: Any, batch: Batch, q_scale: bool) -> float:
    q = slow_q(method, batch)
    scale = float(np.mean([abs(value) for values in q for value in values])) if q_scale else 1.0
    total = 0.0
    for values, at in zip(q, places(batch), strict=True):
        log_pi, penalty = log_pi_at(method.policy, batch.history, *at), penalty_at(method, batch.history, *at)
        total += sum(math.exp(log_pi[a]) * (penalty[a] - values[a] / scale) for a in range(ITEMS))
    return total / len(q)


def slow_ce(network: DensePolicy, batch: Batch) -> float:
    losses = [-log_pi_at(network, batch.history, *at)[int(batch.target[at]) - 1] for at in places(batch)]
    return float(sum(losses)) / len(losses)
