"""A tiny ECoC, and its losses as loops over transitions, items and critics, written from docs/equations.md §2."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History
from ecoc.encoders import ENCODERS
from ecoc.methods import BuildContext
from ecoc.methods.ecoc.method import ECoC
from ecoc.policies.critic import SeparateCritic, TowerCritic
from ecoc.policies.value_policy import ValuePolicy

Floats = NDArray[np.float64]
Place = tuple[int, int]  # row and position of a state
ITEMS, DIM, LENGTH = 5, 3, 4
DIMS = Dims(ITEMS, 2, 2)
SETTINGS: dict[str, Any] = {
    "alpha": 0.7,
    "beta": 1.3,
    "gamma": 0.6,
    "tau": 0.02,
    "trace": 0.0,
    "dc": 0.0,
    "critic": "tower",
    "critic_grad": 1.0,
    "heads": None,
    "hidden": 4,
    "dueling": True,
    "clip": "q",
    "backup": "expected",
    "next_from": "target",
    "entropy": 0.0,
    "xi": "all",
    "n1": 2,
    "explorers": 0,
    "pool": 4,
    "reg": "weighted",
    "dc_q": "least",
    "distil": 0.0,
    "control": 0.0,
    "decay_actor": True,
    "optimise": "together",
    "rank_by": "blend",
    "w": 2.0,
    "m": 3,
    "guard": 1.0,
    "loss": "full",
    "in_batch": True,
    "n2": None,
}


def make(encoder: str = "gru4rec", **settings: object) -> ECoC:
    """In float64; its lagged copy disagrees with it, and padding's rows would be everyone's favourite."""
    kind = ENCODERS[encoder]
    sizes = {"hidden": 4, "head": 0} if encoder == "gru4rec" else {"heads": 1, "inner": 4}
    config = kind.Config.build({"dim": DIM, "length": LENGTH, "dropout": 0.0, "init": 0.8, **sizes})
    torch.manual_seed(3)
    parts = BuildContext(DIMS, config, lambda **changes: kind(config.model_copy(update=changes), DIMS))
    method = ECoC(ECoC.Config.build(SETTINGS | settings), parts).double()
    method.target_policy.copy.double()
    with torch.no_grad():
        for name, weight in method.policy.critic.named_parameters():
            if name.startswith("encoder") and "feedback" in name:
                weight[1:].normal_()
        for weight in method.policy.critic.h.parameters():
            weight.normal_()  # critics that agree would show little
        for mine, weight in zip(method.policy.parameters(), method.target_policy.copy.parameters(), strict=True):
            weight.copy_(mine + 0.4 * torch.randn_like(weight))
        for policy in (method.policy, method.target_policy.copy):
            for table in (
                policy.table,
                policy.critic.items if isinstance(policy.critic, TowerCritic) else policy.table,
            ):
                table[PAD] = 9.0
    return method


def batch_of() -> Batch:
    """A sequence to its end, one cut off by its window, one that starts late, one whose episode ends on the way."""
    items = torch.tensor([[1, 2, 3, 1], [2, 5, 0, 0], [3, 1, 2, 0], [4, 4, 5, 3]])
    feedback = torch.tensor([[1, 2, 1, 0], [2, 1, 0, 0], [1, 1, 2, 0], [0, 2, 2, 1]])
    target = torch.tensor([[2, 3, 1, 2], [5, 3, 0, 0], [0, 2, 4, 0], [4, 5, 3, 1]])
    reward = torch.tensor([[0.5, 1.0, -0.3, 2.0], [0.7, 1.5, 0, 0], [0.0, 0.2, 1.1, 0], [0.9, -1.0, 0.4, 0.6]])
    done = torch.tensor([[0.0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    return Batch(History(items, feedback, torch.tensor([1, 2, 0, 1])), target, reward.double(), done.double())


PLACES: list[Place] = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (3, 3)]
WHOLE: list[Place] = [place for place in PLACES if place not in ((1, 1), (3, 3))]
CATALOGUE = list(range(1, ITEMS + 1))


@dataclass(frozen=True)
class Eyes:
    """A policy and its critic at every position, in NumPy."""

    mu: Floats  # [B, L, d]
    nu: Floats  # [J, B, L, d]
    worth: Floats  # [B, L]
    items: Floats  # [V, d]
    h: Floats  # [J, V, d]

    def advantages(self, place: Place, item: int) -> list[float]:
        """nu_j . h_j of an item, for each critic."""
        return [float(np.dot(nu[place], h[item])) for nu, h in zip(self.nu, self.h, strict=True)]

    def q(self, place: Place, item: int) -> list[float]:
        return [float(self.worth[place]) + advantage for advantage in self.advantages(place, item)]

    def logits(self, place: Place, columns: list[int]) -> list[float]:
        mu = self.mu[place]
        return [float(np.dot(mu, self.items[i])) for i in columns]


def look(policy: ValuePolicy, history: History, mu: Tensor | None = None, *, clip: str = "q") -> Eyes:
    """What a policy sees; `mu` given from outside if it is not its own; `vector`: the least of each coordinate."""
    critic = policy.critic
    with torch.no_grad():
        table = policy.table
        mu = policy.encoder(policy.encoder.embed(table, history), history) if mu is None else mu.detach()
        if isinstance(critic, TowerCritic):
            own = critic.encoder(critic.encoder.embed(critic.items, history), history)
            branches, table = [own + mu @ critic.bridge.weight.T], critic.items
        elif isinstance(critic, SeparateCritic):
            embedded = policy.encoder.embed(table, history)
            branches = [encoder(embedded, history) for encoder in critic.encoders]
        else:
            branches = [mu]
        nu, units = np.stack([branch.numpy() for branch in branches]), np.stack([unit(row) for row in table.numpy()])
        nu = nu.min(0, keepdims=True) if clip == "vector" else nu
        h = np.stack([slow_h(critic.h, head, units) for head in range(len(critic.h.weights[0]))])
        worth = np.zeros(nu.shape[1:3]) if critic.worth is None else slow_worth(critic.worth, nu.mean(0))
    nu = np.repeat(nu, len(h) // len(nu), 0) if len(nu) < len(h) else nu
    h = np.repeat(h, len(nu) // len(h), 0) if len(h) < len(nu) else h
    return Eyes(mu.numpy(), nu, worth, policy.table.detach().numpy(), h)


def slow_h(net: nn.Module, head: int, units: Floats) -> Floats:
    """relu(e W + b) W' + b', or e W + b."""
    weights = [weight[head].detach().numpy() for weight in net.weights]  # type: ignore[union-attr]
    biases = [bias[head].detach().numpy() for bias in net.biases]  # type: ignore[union-attr]
    hidden = units @ weights[0] + biases[0]
    return np.asarray(hidden if len(weights) == 1 else np.maximum(hidden, 0) @ weights[1] + biases[1])


def slow_worth(net: nn.Sequential, nu: Floats) -> Floats:
    w, b, w2, b2 = (weight.detach().numpy() for weight in net.parameters())
    return np.asarray((np.maximum(nu @ w.T + b, 0) @ w2.T + b2)[..., 0])


def unit(vector: Floats) -> Floats:
    return np.asarray(vector / np.sqrt((vector**2).sum()))


def softmax(values: list[float]) -> list[float]:
    highest = max(values)
    masses = [math.exp(value - highest) for value in values]
    return [mass / sum(masses) for mass in masses]


def slow_bc(eyes: Eyes, batch: Batch) -> float:
    losses = []
    for place in PLACES:
        share = softmax(eyes.logits(place, CATALOGUE))[int(batch.target[place]) - 1]
        losses.append(-math.log(share))
    return float(np.mean(losses))


def slow_ahead(lagged: Eyes, guide: Eyes, place: Place, config: Any, *, j: int | None = None) -> float:
    """E_{i' ~ pi} [min_j Q_j(s', i') - entropy ln pi(i')]; of critic j alone if it is given."""
    logits = guide.logits(place, CATALOGUE)
    if config.xi == "topk":
        least = sorted(logits, reverse=True)[config.n1 - 1]
        logits = [logit if logit >= least else -math.inf for logit in logits]
    total = 0.0
    for item, share in zip(CATALOGUE, softmax(logits), strict=True):
        if share:
            q = lagged.q(place, item)
            total += share * ((min(q) if j is None else q[j]) - config.entropy * math.log(share))
    return total


def slow_aims(lagged: Eyes, guide: Eyes, batch: Batch, config: Any, *, j: int | None = None) -> dict[Place, float]:
    """y of every transition whose outcome is known: backwards along runs, G = r + g V(s') + g l (G' - Q(s', i'))."""
    found: dict[Place, float] = {}
    for b, t in reversed(WHOLE):
        found[b, t] = float(batch.reward[b, t])
        if not batch.done[b, t]:
            found[b, t] += config.gamma * slow_ahead(lagged, guide, (b, t + 1), config, j=j)
            if (b, t + 1) in found:
                own = min(lagged.q((b, t + 1), int(batch.target[b, t + 1])))
                found[b, t] += config.gamma * config.trace * (found[b, t + 1] - own)
    return found


def slow_td(eyes: Eyes, aims: dict[Place, float], batch: Batch) -> float:
    """sum_j mean (Q_j(s, i) - y)^2."""
    total = 0.0
    for place, y in aims.items():
        total += sum((q - y) ** 2 for q in eyes.q(place, int(batch.target[place]))) / len(aims)
    return total


def slow_reg(eyes: Eyes, logs: dict[Place, list[float]], batch: Batch, form: str = "weighted") -> float:
    """sum_j mean [explored Q_j - Q_j(s, i)]; `logs`: log weights of the catalogue in each state explored."""
    total = 0.0
    for place, log in logs.items():
        logged = eyes.advantages(place, int(batch.target[place]))
        explored = [eyes.advantages(place, item) for item in CATALOGUE]
        for j, own in enumerate(logged):
            q = [values[j] for values in explored]
            if form == "weighted":
                w = softmax([value + extra for value, extra in zip(q, log, strict=True)])
                total += (sum(share * value for share, value in zip(w, q, strict=True)) - own) / len(logs)
            elif form == "logsumexp":
                mean = sum(share * math.exp(value) for share, value in zip(softmax(log), q, strict=True))
                total += (math.log(mean) - own) / len(logs)
            else:
                gaps = [math.log1p(math.exp(value - own)) for value in q]
                total += sum(share * gap for share, gap in zip(softmax(log), gaps, strict=True)) / len(logs)
    return total


def policy_logs(eyes: Eyes) -> dict[Place, list[float]]:
    return {place: eyes.logits(place, CATALOGUE) for place in PLACES}


def gradient(weight: Tensor) -> Floats:
    return np.zeros(weight.shape) if weight.grad is None else weight.grad.to_dense().numpy()
