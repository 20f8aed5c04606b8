"""A tiny ValuePolicy, and its scores computed item by item."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecoc.batch import PAD, Dims, History
from ecoc.encoders import ENCODERS
from ecoc.methods import BuildContext
from ecoc.methods.ecoc.method import ECoC
from ecoc.policies.value_policy import ValuePolicy

Floats = NDArray[np.float64]
ITEMS, DIM, LENGTH = 30, 5, 4
KINDS: list[dict[str, Any]] = [
    {"critic": "tower", "heads": 2},
    {"critic": "tower", "heads": 1, "dueling": False},
    {"critic": "shared", "heads": 2},
    {"critic": "separate", "heads": 1},
    {"critic": "separate", "heads": 2},
]


def name(kind: dict[str, Any]) -> str:
    return f"{kind['critic']}-{kind['heads']}"


def make(items: int = ITEMS, seed: int = 0, **chosen: object) -> ValuePolicy:
    """At rest, in float64, with charges; padding's row would be everyone's favourite."""
    kind, dims = ENCODERS["gru4rec"], Dims(items)
    config = kind.Config.build({"dim": DIM, "length": LENGTH, "init": 0.8, "hidden": 6, "head": 0, "dropout": 0.3})
    told = {"hidden": 8, "dueling": True, "dc": 0.0, "control": 0.5, "rank_by": "blend", "w": 3.0, "m": 6} | chosen
    torch.manual_seed(seed)
    parts = BuildContext(dims, config, lambda **changes: kind(config.model_copy(update=changes), dims))
    policy = ECoC(ECoC.Config.build(told), parts).policy.double()
    with torch.no_grad():
        policy.cost[1:].uniform_(0, 0.3)
        policy.table[PAD] = 50.0
        for weight in policy.critic.h.parameters():
            weight.normal_()
    policy.train(False)
    return policy


def histories(rows: int = 7, seed: int = 1, items: int = ITEMS) -> History:
    draw = torch.Generator().manual_seed(seed)
    inside = torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (rows, 1), generator=draw)
    return History(torch.randint(1, items + 1, (rows, LENGTH), generator=draw) * inside)


class Hand:
    """What the policy should know of some histories, row by row: mu . M_i, V, and nu_j . h_j(i)."""

    @torch.no_grad()
    def __init__(self, policy: ValuePolicy, history: History) -> None:
        critic, table = policy.critic, policy.critic.table(policy.table)
        embedded = policy.encoder.embed(policy.table, history)
        mu = policy.encoder.last(embedded, history)
        nu = critic.last(history, mu, embedded).numpy()
        h = critic.h(table / table.norm(dim=1, keepdim=True)).numpy()
        self.logits: Floats = mu.numpy() @ policy.table.detach().numpy().T  # [B, V]
        self.q: Floats = np.stack(
            [nu[j % len(nu)] @ h[j % len(h)].T for j in range(max(len(nu), len(h)))]
        )  # [J, B, V], without V(s)
        self.worth: Floats = np.zeros(len(mu))
        if critic.worth is not None:
            self.worth = critic.worth(torch.from_numpy(nu.mean(0))).numpy()[:, 0]
        self.cost: Floats = policy.cost.numpy()

    def blend(self, w: float) -> Floats:
        return np.asarray(self.logits + w * (self.q.mean(0) - self.cost))

    def listed(self, row: int, m: int, left: set[int]) -> list[int]:
        """All candidates: the actor's best m in the order of min_j Q, then the rest in the actor's."""
        order = sorted(left, key=lambda i: -self.logits[row, i])
        return sorted(order[:m], key=lambda i: -self.q[:, row, i].min()) + order[m:]


def best(scores: Floats) -> list[list[int]]:
    """Items of each row by score, padding left out."""
    return [sorted(range(1, len(row)), key=lambda i, row=row: -row[i]) for row in scores]  # type: ignore[misc]
