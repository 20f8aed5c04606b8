"""ValuePolicy: a cloned policy and a critic, acting on both by one inner product.

    policy   mu . M_i                                     the actor alone: what the paper ranks by
    blend    [mu, w nu, w] . [M_i, mean_j h_j(e_i), -c_i]  pi(i|s) ~ beta(i|s) exp(w (Q(s, i) - c_i)): one vector a user
             and an item, hence one top-k or one index; w = 0 is the actor, and w can change at any time
    rerank   the actor's best m, in the order of min_j Q_j
    control  (mu + G(mu)) . M_i                           the blend distilled into a query over unchanged item vectors
    cosine   mu . M_i / |M_i|                             the actor's direction against unit item vectors

c_i is the diversity guard: what an item that crowds the lists is charged, in units of Q.
"""

from collections.abc import Callable
from copy import copy
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ecoc.batch import PAD, History
from ecoc.encoders import Encoder
from ecoc.errors import InputError
from ecoc.policies.base import RankBy, TiedPolicy, check_rank_by
from ecoc.policies.critic import Critic, q_of

_VALUED = ("blend", "rerank")  # ways of acting whose queries hold what the critic needs
LARGEST_W = 1_000_000
_GATHERED = 1 << 24  # most floats gathered at a time
_GUARD_LIST = 10  # places of a list that the guard looks at
_GUARD_EVEN = 4  # times the share that every item would have if all had the same: what anyone may have
_GUARD_FEWEST = 20  # lists that an item may be in; fewer cannot be told from chance
_GUARD_ROUNDS = 12
_GUARD_SCORES = 1 << 26  # most scores a round computes


class ValuePolicy(TiedPolicy):
    """The actor with a critic beside it."""

    critic: Critic

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__(encoder, init)
        self.head: nn.Module | None = None  # G
        self.rank_by: RankBy = "blend"
        self.w, self.m = 10.0, 20
        self.cost: Tensor
        self.register_buffer("cost", torch.zeros(self.items + 1))
        self._rest: dict[str, Tensor] = {}  # what a policy at rest derives from its weights once; views share it

    def train(self, mode: bool = True) -> "ValuePolicy":
        self._rest.clear()
        super().train(mode)
        return self

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def ranking_mode(self) -> str:
        return {"blend": f"blend-w{self.w:g}", "rerank": f"rerank-m{self.m}"}.get(self.rank_by, self.rank_by)

    def ranked_by(self, rank_by: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> Self:
        rank_by = rank_by or ("blend" if w is not None else "rerank" if m is not None else None)
        check_rank_by(rank_by)
        if (w is not None and rank_by != "blend") or (m is not None and rank_by != "rerank"):
            raise InputError(f"rank_by {rank_by} takes no {'w' if w is not None else 'm'}: w is blend's, m is rerank's")
        if rank_by == "control" and self.head is None:
            raise InputError("no control head was trained; set method.control above 0 and train again")
        if w is not None and not 0 <= w <= LARGEST_W:
            raise InputError(f"w {w}: the weight of the value lies in 0..{LARGEST_W}")
        if m is not None and m < 1:
            raise InputError(f"m {m}: at least 1 of the actor's items must be re-ranked")
        view = copy(self)
        view.rank_by, view.w, view.m = rank_by or self.rank_by, self.w if w is None else w, m or self.m
        return view

    def query(self, history: History) -> Tensor:
        """Mu [B, d] and, if the critic has a say, nu joined over critics, each nu, and V: [B, d + q + S d + 1]."""
        mu = super().query(history)
        if self.rank_by not in _VALUED:
            return mu
        nu = self.critic.last(history, mu, self._embedded(history))  # [S, B, d]
        return torch.cat([mu, self.critic.joined_states(nu), *nu, self.critic.value(nu)[:, None]], 1)

    def critic_states(self, history: History, mu: Tensor, items: Tensor) -> Tensor:
        """The critic's state vectors after every position, [S, B, L, d]; mu [B, L, d] and item vectors [V, d]."""
        embedded = self.encoder.embed(items, history) if self.critic.reads_embedded else None
        return self.critic.states(history, mu, embedded)

    def _embedded(self, history: History) -> Tensor | None:
        return self.encoder.embed(self.item_vectors(), history) if self.critic.reads_embedded else None

    def _parts(self, query: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mu [B, d], joined nu [B, q], nu [S, B, d] and V [B] of a query."""
        dim, width = self.encoder.dim, self.critic.width
        nu = query[:, dim + width : -1].reshape(len(query), -1, dim).transpose(0, 1)
        return query[:, :dim], query[:, dim : dim + width], nu, query[:, -1]

    def query_vector(self, query: Tensor) -> Tensor:
        if self.rank_by in ("policy", "cosine"):
            return query
        if self.rank_by == "control" and self.head is not None:
            return query + self.head(query)
        mu, joined, _, _ = self._parts(query)
        if self.rank_by == "rerank":
            return mu
        return torch.cat([mu, self.w * joined, torch.full_like(mu[:, :1], self.w)], 1)

    def item_matrix(self) -> Tensor:
        if self.rank_by == "cosine":
            return self._once("unit", lambda: normalize(super(ValuePolicy, self).item_matrix(), dim=1))
        if self.rank_by != "blend":
            return super().item_matrix()
        return self._once(
            "blend", lambda: torch.cat([super(ValuePolicy, self).item_matrix(), self._joined(), -self.cost[:, None]], 1)
        )

    def _actions(self) -> Tensor:
        """Action vectors of all items, [A, V, d]."""
        return self._once("actions", lambda: self.critic.actions(self.critic.table(self.item_vectors())))

    def _joined(self) -> Tensor:
        return self.critic.joined_actions(self._actions())

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if self.training:
            return make()
        if name not in self._rest:
            self._rest[name] = make().detach()
        return self._rest[name]

    def values(self, query: Tensor, items: Tensor, history: History) -> Tensor | None:
        if self.rank_by not in _VALUED:
            query = self.ranked_by("blend").query(history)
        _, joined, _, worth = self._parts(query)
        return worth[:, None] + (joined[:, None] * self._joined()[items]).sum(2)

    def ranks(self, query: Tensor, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        ranks = super().ranks(query, target, exclude)
        if self.rank_by != "rerank":
            return ranks
        near = (ranks <= self.m + 0.5).nonzero().squeeze(1)  # half: equals at the edge
        if len(near):
            left_out = None if exclude is None else exclude[near]
            best, _ = super().topk(query[near], self.m, exclude=left_out)
            inside = (best == target[near, None]).any(1)
            near, best = near[inside], best[inside]
            q = self._least(query[near], best).masked_fill(best == PAD, -torch.inf)
            own = q.gather(1, (best == target[near, None]).long().argmax(1, keepdim=True))
            ranks[near] = 1 + (q > own).sum(1).double() + ((q == own).sum(1).double() - 1) / 2
        return ranks

    def topk(
        self, query: Tensor, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if self.rank_by != "rerank":
            return super().topk(query, k, exclude=exclude, only=only)
        items, scores = super().topk(query, max(k, self.m), exclude=exclude, only=only)
        best = items[:, : self.m]
        q = self._least(query, best).masked_fill(best == PAD, -torch.inf)
        order = q.sort(dim=1, descending=True, stable=True).indices
        items = torch.cat([best.gather(1, order), items[:, self.m :]], 1)
        scores = torch.cat([scores[:, : self.m].gather(1, order), scores[:, self.m :]], 1)
        return items[:, :k], scores[:, :k]

    def _least(self, query: Tensor, items: Tensor) -> Tensor:
        """min_j Q_j of the given items, without V: [B, K]."""
        actions, result = self._actions(), torch.empty(items.shape)
        rows = max(1, _GATHERED // max(1, items.shape[1] * self.encoder.dim * len(actions)))
        for first in range(0, len(query), rows):
            _, _, nu, _ = self._parts(query[first : first + rows])
            result[first : first + rows] = q_of(nu[:, :, None], actions[:, items[first : first + rows]]).amin(0)
        return result

    def fit_diversity_penalty(self, query: Tensor, share: float) -> None:
        """Diversity guard: charge items until none is in more than `share` of the lists of these queries.

        Four times an even share, where that is more, is any item's right, and so is the share it has in the cloned
        policy's lists: what the log made popular is not the critic's crowding. In turns, each charge becomes what
        leaves its item in just that share of the lists as they are, or nothing.
        """
        self.cost.zero_()
        blend, query = self.ranked_by("blend"), query[: max(1, _GUARD_SCORES // self.items)]
        cap = max(share, _GUARD_EVEN * _GUARD_LIST / self.items)
        if not self.w or cap >= 1 or cap * len(query) < _GUARD_FEWEST:
            return
        caps = self._shares(self.ranked_by("policy").topk(query[:, : self.encoder.dim], _GUARD_LIST)[0]).clamp(min=cap)
        for _ in range(_GUARD_ROUNDS):
            self._rest.pop("blend", None)
            items, scores = blend.topk(query, _GUARD_LIST + 1)
            some = ((self._shares(items[:, :_GUARD_LIST]) > caps) | (self.cost > 0)).nonzero().squeeze(1)  # [C]
            if not len(some):
                break
            own = blend.query_vector(query) @ blend.item_matrix()[some].T  # [B, C]
            edge = torch.where(own >= scores[:, -2:-1], scores[:, -1:], scores[:, -2:-1])  # what would take its place
            rank = ((1 - caps[some]) * len(query)).ceil().long().clamp(min=1) - 1  # [C]
            self.cost[some] += (own - edge).sort(0).values.gather(0, rank[None]).squeeze(0) / self.w
            self.cost.clamp_(min=0)
        self._rest.pop("blend", None)

    def _shares(self, lists: Tensor) -> Tensor:
        """Share of the lists [n, k] that each item is in, [V]."""
        return torch.bincount(lists.flatten(), minlength=self.items + 1) / len(lists)
