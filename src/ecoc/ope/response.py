"""A response model: P(feedback | history, item), and P(item shown next | history) by the logging policy.

With e, k item vectors, f, c, g feedback vectors and decay rates rho_n, after events (i_1, b_1) .. (i_t, b_t):

    x_j      = e_{i_j} * g_{b_j} + f_{b_j}                            event
    S_t      = [GRU(x)_t, (1 - rho_n) sum_j rho_n^(t-j) x_j]          taste
    A_t      = sum_j rho_n^(t-j) (k_{i_j} + c_{b_j})                  after-effects
    z_t,i    = [e_i, q(S_t) * e_i, q(S_t).e_i]
    logit_b  = U_b z + bias_{i,b} + W_b A_t + MLP_b(S_t, A_t, z)      P(b | s, i)
    behaviour = softmax_i(p(S_t).e_i + bias'_i)                       P(i | s)

After-effects enter the logits linearly and add up, because a policy may tire its users more than any log shows, where
a recurrent net alone saturates. Both tasks share the item vectors: the items a log shows next carry more information
about an item than its few feedback events.
"""

from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import PAD, History
from ecoc.config import Config

_RATES = (0.02, 0.6, 0.85, 0.95)
_STOCK_SCALE = 0.3  # after-effects of a few steps are then of the size of the other inputs


class ResponseConfig(Config):
    """Sizes of a response model."""

    dim: int = Field(16, ge=1, le=1024, description="width of item vectors")
    hidden: int = Field(32, ge=1, le=1024, description="width of the recurrent state")
    lasting: int = Field(8, ge=1, le=256, description="width of the after-effects of an event")
    width: int = Field(64, ge=1, le=4096, description="hidden units of the feedback network")
    dropout: float = Field(0.1, ge=0, lt=1, description="of item vectors and hidden units")


@dataclass(frozen=True)
class UserState:
    """State of simulated users after their histories."""

    hidden: Tensor  # [B, h]
    stock: Tensor  # [B, rates, d + m], sums that decay

    def rows(self, index: Tensor | slice) -> "UserState":
        """Some of the histories."""
        return UserState(self.hidden[index], self.stock[index])

    def where(self, chosen: Tensor, other: "UserState") -> "UserState":
        """Rows of this state where chosen [B], rows of the other state elsewhere."""
        return UserState(
            torch.where(chosen[:, None], self.hidden, other.hidden),
            torch.where(chosen[:, None, None], self.stock, other.stock),
        )


class ResponseModel(nn.Module):
    """P(feedback | history, item) and P(item | history)."""

    def __init__(self, items: int, feedback: int, config: ResponseConfig) -> None:
        super().__init__()
        self.items, self.feedback, self.config = items, feedback, config
        d, m, rates = config.dim, config.lasting, len(_RATES)
        self.table = _embedding(items + 1, d, 0.1)
        self.lasting = _embedding(items + 1, m, 0.05)
        self.given = nn.Embedding(feedback + 1, d)  # code + 1; 0: unknown
        self.gate = nn.Embedding(feedback + 1, d)
        self.given_lasting = nn.Embedding(feedback + 1, m)
        nn.init.normal_(self.given.weight, std=0.1)
        nn.init.ones_(self.gate.weight)
        nn.init.normal_(self.given_lasting.weight, std=0.05)
        self.rate = nn.Parameter(torch.logit(torch.tensor(_RATES)))
        self.gru = nn.GRU(d, config.hidden, batch_first=True)
        taste = config.hidden + rates * d
        self.towards = nn.Linear(taste, d)
        self.shown = nn.Linear(taste, d)
        self.shown_bias = nn.Parameter(torch.zeros(items + 1))
        self.direct = nn.Linear(2 * d + 1, feedback)
        self.bias = nn.Embedding(items + 1, feedback)
        nn.init.zeros_(self.bias.weight)
        self.after = nn.Linear(rates * m, feedback, bias=False)
        self.mixed = nn.Sequential(
            nn.Linear(taste + rates * m + 2 * d + 1, config.width),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.width, feedback),
        )
        self.dropout = nn.Dropout(config.dropout)

    def all_states(self, history: History) -> UserState:
        """State after every position: [B, L, h] and [B, L, rates, d + m]."""
        happened = self._happened(history.items, history.feedback)
        steps = torch.arange(happened.shape[1])
        lag = steps[:, None] - steps
        weights = torch.sigmoid(self.rate)[:, None, None] ** lag.clamp(min=0) * (lag >= 0)  # [rates, L, L]
        stock = torch.einsum("nts,bsd->btnd", weights, happened)
        return UserState(self.gru(happened[..., : self.config.dim])[0], stock)

    def after_history(self, history: History) -> UserState:
        """State after the last event of each row; no row is empty."""
        states = self.all_states(history)
        row, last = torch.arange(len(history.items)), history.lengths - 1
        return UserState(states.hidden[row, last], states.stock[row, last])

    def after_event(self, state: UserState, items: Tensor, feedback: Tensor) -> UserState:
        """State after another event: items [B], feedback code + 1 [B]."""
        happened = self._happened(items, feedback)  # [B, d + m]
        _, hidden = self.gru(happened[:, None, : self.config.dim], state.hidden[None].contiguous())
        return UserState(hidden[0], state.stock * torch.sigmoid(self.rate)[:, None] + happened[:, None])

    def answers(self, state: UserState, items: Tensor) -> Tensor:
        """Logits of the feedback to items [...], [..., feedback]; states [..., h] and [..., rates, d + m]."""
        taste, after = self._read(state)
        vector = self.dropout(self.table(items))
        agreed = self.towards(taste) * vector
        direct = torch.cat([vector, agreed, agreed.sum(-1, keepdim=True)], -1)
        logits = self.direct(direct) + self.bias(items) + self.after(after)
        return torch.as_tensor(logits + self.mixed(torch.cat([taste, after, direct], -1)))

    def behaviour(self, state: UserState) -> Tensor:
        """Query [..., d + 1] whose product with `shown_vectors` scores the item that the log shows next."""
        query = self.shown(self._read(state)[0])
        return torch.cat([query, torch.ones_like(query[..., :1])], -1)

    def shown_vectors(self) -> Tensor:
        """[V, d + 1]; PAD's row first."""
        return torch.cat([self.table.weight, self.shown_bias[:, None]], 1)

    def _happened(self, items: Tensor, feedback: Tensor | None) -> Tensor:
        """Events as vectors, [..., d + m]."""
        given = torch.zeros_like(items) if feedback is None else feedback
        now = self.dropout(self.table(items) * self.gate(given) + self.given(given))
        return torch.cat([now, self.lasting(items) + self.given_lasting(given)], -1)

    def _read(self, state: UserState) -> tuple[Tensor, Tensor]:
        """Taste and after-effects."""
        d = self.config.dim
        recent = state.stock[..., :d] * (1 - torch.sigmoid(self.rate))[:, None]
        after = state.stock[..., d:].flatten(-2) * _STOCK_SCALE
        return torch.cat([state.hidden, recent.flatten(-2)], -1), after


def _embedding(rows: int, width: int, std: float) -> nn.Embedding:
    table = nn.Embedding(rows, width, padding_idx=PAD)
    nn.init.normal_(table.weight, std=std)
    with torch.no_grad():
        table.weight[PAD] = 0
    return table
