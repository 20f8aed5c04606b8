"""ValuePolicy: a cloned policy and a critic; one inner product combines both; docs/equations.md §2.6.

    policy   mu . M_i                                      the actor alone, as in the paper
    blend    [mu, w nu, w] . [M_i, mean_j h_j(e_i), -c_i]  pi(i|s) ~ pi_0(i|s) exp(w (Q(s, i) - c_i)), pi_0 the actor
    rerank   the actor's best m items, in the order of min_j Q_j
    control  (mu + G(mu)) . M_i                            the blend distilled into a query for unchanged item vectors
    cosine   mu . M_i / |M_i|                              the actor's direction with unit item vectors

The blend needs one vector per user and one per item, so one top-k or one index serves it. w = 0 is the actor, and w can
be changed without retraining. c_i is the diversity penalty of item i, in units of Q.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from ecoc.batch import PAD, History
from ecoc.encoders import Encoder
from ecoc.errors import InputError
from ecoc.policies.base import RankBy, TiedPolicy, check_rank_by
from ecoc.policies.critic import Critic, q_of
from ecoc.policies.ranking import Query

LARGEST_W = 1_000_000
_GATHERED = 1 << 24  # most floats gathered at a time
_PENALTY_LIST = 10  # places of a list that the diversity penalty counts
_PENALTY_EVEN = 4  # an item may have this many times the share of an even distribution
_PENALTY_FEWEST = 20  # lists that an item may be in; fewer cannot be distinguished from chance
_PENALTY_ROUNDS = 12
_PENALTY_SCORES = 1 << 26  # most scores computed per round


@dataclass(frozen=True)
class ValueQuery(Query):
    """A query with what the critic needs."""

    mu: Tensor  # [B, d] the actor's state
    nu: Tensor  # [S, B, d] the critic's state vectors
    value: Tensor  # [B] V(s)

    def __getitem__(self, rows: slice | Tensor) -> "ValueQuery":
        return ValueQuery(self.vector[rows], self.mu[rows], self.nu[:, rows], self.value[rows])

    @classmethod
    def join(cls, queries: Sequence["ValueQuery"]) -> "ValueQuery":
        """The rows of all queries."""
        vector, mu, value = (torch.cat([getattr(q, name) for q in queries]) for name in ("vector", "mu", "value"))
        return cls(vector, mu, torch.cat([query.nu for query in queries], 1), value)


class ValuePolicy(TiedPolicy):
    """The actor with a critic beside it."""

    critic: Critic

    def __init__(self, encoder: Encoder, init: float) -> None:
        super().__init__(encoder, init)
        self.head: nn.Module | None = None  # G
        self.rank_by: RankBy = "blend"
        self.w, self.m = 10.0, 20
        self.cost: Tensor  # c; its name is part of saved models
        self.register_buffer("cost", torch.zeros(self.items + 1))

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def takes_counts(self) -> bool:
        return self.rank_by not in ("rerank", "cosine")

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

    def critic_states(self, history: History, mu: Tensor, items: Tensor) -> Tensor:
        """The critic's state vectors after every position, [S, B, L, d]; mu [B, L, d], the actor's items [V, d]."""
        embedded = self.encoder.embed(items, history) if self.critic.reads_embedded else None
        return self.critic.states(history, mu, embedded)

    def query(self, history: History) -> Query:
        if self.rank_by in ("blend", "rerank"):
            return self.value_query(history)
        mu = self.state(history)
        return Query(mu + self.head(mu) if self.rank_by == "control" and self.head is not None else mu)

    def value_query(self, history: History) -> ValueQuery:
        """The query with the critic's vectors."""
        return self.query_of(self.encoded(history))

    def encoded(self, history: History) -> ValueQuery:
        mu = self.state(history)
        embedded = self.encoder.embed(self.item_vectors(), history) if self.critic.reads_embedded else None
        nu = self.critic.last(history, mu, embedded)  # [S, B, d]
        return ValueQuery(mu, mu, nu, self.critic.value(nu))

    def query_of(self, encoded: Query, w: Tensor | None = None) -> ValueQuery:
        if not isinstance(encoded, ValueQuery):
            raise TypeError("the query must be one that `encoded` gave")
        mu = vector = encoded.mu
        if self.rank_by == "blend":
            weight = torch.full_like(mu[:, :1], self.w) if w is None else w.to(mu.dtype)[:, None]
            vector = torch.cat([mu, weight * self.critic.joined_states(encoded.nu), weight], 1)
        elif self.rank_by == "control" and self.head is not None:
            vector = mu + self.head(mu)
        return replace(encoded, vector=vector)

    def item_matrix(self) -> Tensor:
        if self.rank_by == "cosine":
            return self.unit_vectors()
        if self.rank_by != "blend":
            return self.item_vectors()
        return self._once("blend", self._blend_matrix)

    def finished(self) -> dict[str, Tensor]:
        self._once("blend", self._blend_matrix)
        return super().finished()

    def finished_shapes(self) -> dict[str, tuple[int, ...]]:
        rows, dim = self.table.shape
        heads = len(self.critic.h.weights[0])
        own = {"blend": (rows, dim + self.critic.width + 1), "actions": (heads, rows, dim)}
        return {**super().finished_shapes(), **own}

    def _blend_matrix(self) -> Tensor:
        return torch.cat([self.item_vectors(), self.critic.joined_actions(self._actions()), -self.cost[:, None]], 1)

    def _actions(self) -> Tensor:
        """Action vectors of all items, [A, V, d]."""
        return self._once("actions", lambda: self.critic.h(self.critic.table(self.item_vectors())))

    def values(self, query: Query, items: Tensor, history: History) -> Tensor | None:
        """V(s) + mean_j nu_j . h_j of the given items, [B, K]."""
        valued = query if isinstance(query, ValueQuery) else self.value_query(history)
        actions = self.critic.joined_actions(self._actions()[:, items])  # [B, K, q]
        return valued.value[:, None] + (self.critic.joined_states(valued.nu)[:, None] * actions).sum(2)

    def ranks(self, query: Query, target: Tensor, exclude: Tensor | None = None) -> Tensor:
        ranks = super().ranks(query, target, exclude)
        if self.rank_by != "rerank":
            return ranks
        rows = (ranks <= self.m + 0.5).nonzero().squeeze(1)  # half: ties at the edge
        if len(rows):
            best, _ = super().topk(query[rows], self.m, exclude=None if exclude is None else exclude[rows])
            inside = (best == target[rows, None]).any(1)
            rows, best = rows[inside], best[inside]
            q = self._least(query[rows], best).masked_fill(best == PAD, -torch.inf)
            own = q.gather(1, (best == target[rows, None]).long().argmax(1, keepdim=True))
            ranks[rows] = 1 + (q > own).sum(1).double() + ((q == own).sum(1).double() - 1) / 2
        return ranks

    def topk(
        self, query: Query, k: int, *, exclude: Tensor | None = None, only: Tensor | None = None
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

    def _least(self, query: Query, items: Tensor) -> Tensor:
        """min_j Q_j of the given items, without V: [B, K]."""
        if not isinstance(query, ValueQuery):
            raise TypeError("re-ranking needs the critic's vectors: make the query with the policy that re-ranks")
        actions, result = self._actions(), torch.empty(items.shape)
        rows = max(1, _GATHERED // max(1, items.shape[1] * self.encoder.dim * len(actions)))
        for first in range(0, len(query), rows):
            nu, part = query.nu[:, first : first + rows, None], items[first : first + rows]
            result[first : first + rows] = q_of(nu, actions[:, part]).amin(0)
        return result

    def fit_diversity_penalty(self, query: ValueQuery, share: float) -> None:
        """Raise c until no item is in more than `share` of the lists of these queries; docs/equations.md §2.6.

        An item may always have four times its even share, and its share in the cloned policy's lists: what is popular
        in the log is no effect of the critic. Each round sets the penalty of an item to what leaves it in just that
        share of the present lists, or to 0.
        """
        self.cost.zero_()
        blend, query = self.ranked_by("blend"), query[: max(1, _PENALTY_SCORES // self.items)]
        cap = max(share, _PENALTY_EVEN * _PENALTY_LIST / self.items)
        if not self.w or cap >= 1 or cap * len(query) < _PENALTY_FEWEST:
            return
        caps = self._shares(self.ranked_by("policy").topk(Query(query.mu), _PENALTY_LIST)[0]).clamp(min=cap)
        for _ in range(_PENALTY_ROUNDS):
            self._derived.pop("blend", None)
            items, scores = blend.topk(query, _PENALTY_LIST + 1)
            crowding = (self._shares(items[:, :_PENALTY_LIST]) > caps) | (self.cost > 0)
            changed = crowding.nonzero().squeeze(1)  # [C]
            if not len(changed):
                break
            own = query.vector @ blend.item_matrix()[changed].T  # [B, C]
            edge = torch.where(own >= scores[:, -2:-1], scores[:, -1:], scores[:, -2:-1])  # score that would replace it
            rank = ((1 - caps[changed]) * len(query)).ceil().long().clamp(min=1) - 1  # [C]
            self.cost[changed] += (own - edge).sort(0).values.gather(0, rank[None]).squeeze(0) / self.w
            self.cost.clamp_(min=0)
        self._derived.pop("blend", None)

    def _shares(self, lists: Tensor) -> Tensor:
        """Share of the lists [n, k] that each item is in, [V]."""
        return torch.bincount(lists.flatten(), minlength=self.items + 1) / len(lists)
