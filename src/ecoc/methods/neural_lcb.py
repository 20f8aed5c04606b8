"""NeuralLCB: an offline contextual bandit that is pessimistic where it has seen little (Nguyen-Tang et al., 2022).

Adapted to large catalogues, see docs/equations.md §3.5. x(s) is the mean and the last of the history's embeddings, phi
an MLP of width d_phi, and gradients are those of the last layer:

    f(s, i)     = phi(s) . w_i + b_i
    Lambda_i    = lambda_0 + sum over the logged pairs (s, i) of phi(s)^2 / d_phi        a diagonal
    conf(s, i)^2 = sum_k phi_k(s)^2 / Lambda_ik / d_phi
    score(s, i) = f(s, i) - beta conf(s, i)

    L = mean 1/2 (f(s, i) - r)^2 + 1/2 mean f(s, j)^2 over shared uniform j != i + lambda/2 ||W||^2

Logged rewards alone cannot rank where all of them are positive; the sampled items stand for a reward of 0.
"""

from collections.abc import Iterable
from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import EncoderConfig
from ecoc.encoders.base import at
from ecoc.methods.base import BuildContext, Loss, Method, MethodConfig
from ecoc.policies.base import Head, Policy, item_table, with_one
from ecoc.policies.ranking import Query

_ROUNDING = 2e-6  # of the sum of absolute terms; two ways to sum some hundred of them differ by less


class LCBConfig(MethodConfig):
    """Settings of NeuralLCB."""

    beta_lcb: float = Field(
        0.1,
        ge=0,
        description="weight of the confidence width; 1, the best value for tens of arms, ranks a large catalogue by"
        " popularity, because an item seen once loses about 2 and no reward is much above 1",
    )
    lam0: float = Field(0.1, gt=0, description="lambda_0: Lambda of an item that was never logged")
    lam: float = Field(1e-4, ge=0, description="lambda: weight decay in the loss; train.weight_decay does not apply")
    negatives: int = Field(
        100, gt=0, le=10_000_000, description="number of items drawn uniformly per step, with reward 0"
    )
    hidden: int = Field(100, gt=0, le=65536, description="width d_phi of both hidden layers")


class LCBPolicy(Policy):
    """Ranks by the lower confidence bound of the reward. The query vector is phi(s)."""

    def __init__(self, config: LCBConfig, encoder: EncoderConfig, dims: Dims) -> None:
        super().__init__()
        self.items, self.length = dims.items, encoder.length
        self.beta, self.lam0 = config.beta_lcb, config.lam0
        self.scale = encoder.dim**0.5 if encoder.scale else 1.0
        self.table = item_table(dims.items, encoder.dim, encoder.init)
        width = config.hidden
        self.body = nn.Sequential(
            *(nn.Linear(2 * encoder.dim, width), nn.LayerNorm(width), nn.ReLU()),
            *(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()),
        )
        self.head = Head(width, dims.items)
        self.precision: Tensor  # Lambda
        self.register_buffer("precision", torch.full((dims.items + 1, width), config.lam0))

    def contexts(self, history: History) -> Tensor:
        """x(s) after every position, [B, L, 2 d]."""
        vectors = self.scale * embedding(history.items, self.table, padding_idx=PAD)
        counts = torch.arange(1, vectors.shape[1] + 1, dtype=vectors.dtype, device=vectors.device)
        return torch.cat([vectors.cumsum(1) / counts[:, None], vectors], 2)

    def query(self, history: History) -> Query:
        return Query(self.body(at(self.contexts(history), history.lengths - 1)))

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        phi = query.vector
        squared = phi.square() @ self.precision[first:last].reciprocal().T / phi.shape[1]
        return with_one(phi) @ self.head.weight[first:last].T - self.beta * squared.sqrt()

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        phi = query.vector
        products = with_one(phi)[:, None] * self.head.weight[items]  # [B, K, d_phi + 1]
        squared = (phi.square()[:, None] / self.precision[items]).sum(2) / phi.shape[1]  # [B, K]
        pessimism = self.beta * squared.sqrt()
        return products.sum(2) - pessimism, (products.abs().sum(2) + pessimism) * _ROUNDING

    def vectors(self) -> Tensor:
        return self.table


class NeuralLCB(Method):
    """Regression of the reward, then a lower confidence bound. A bandit: later rewards do not count (gamma = 0)."""

    policy: LCBPolicy
    has_encoder = False

    class Config(LCBConfig):
        """Settings of NeuralLCB."""

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.policy = LCBPolicy(config, context.encoder, context.dims)
        self.lam, self.negatives = config.lam, config.negatives
        self.pairs = 0

    def decays(self, name: str) -> bool:
        return False  # the loss has its own weight decay

    def fit_statistics(self, sessions: TrainSequences) -> None:
        """Count the logged pairs: every event but the first of a sequence is a target."""
        self.pairs = len(sessions.items) - (len(sessions.offsets) - 1)

    def loss(self, batch: Batch) -> Loss:
        policy, wanted = self.policy, batch.target != PAD
        target, reward = batch.target[wanted], batch.reward[wanted]  # [N]
        with self.clock("encode"):
            contexts = batch.states_before(policy.contexts(batch.history))
            phi = with_one(policy.body(contexts))  # [N, d_phi + 1]
        with self.clock("loss"):
            drawn = torch.randint(PAD + 1, policy.items + 1, (self.negatives,))
            logged = (phi * embedding(target, policy.head.weight)).sum(1)
            fit = 0.5 * (logged - reward).square().mean()
            negative = 0.5 * _squares(phi @ policy.head.weight[drawn].T, drawn != target[:, None])
            decay = 0.5 * self.lam * self._squared_norm(batch.history, torch.cat([target, drawn]))
        diagnostics = {"f/logged": logged.detach().mean()} if self.collect_diagnostics else {}
        return Loss(fit + negative + decay, {"fit": fit, "negative": negative, "decay": decay}, diagnostics)

    def _squared_norm(self, history: History, scored: Tensor) -> Tensor:
        """||W||^2 of the weights that this step reads.

        Adam makes a full step of any gradient, however small. Decay alone would take a row to 0 between two steps that
        read it, and in a large catalogue these are far apart.
        """
        rows = (
            self.policy.head.weight[torch.unique(scored)],
            self.policy.table[torch.unique(history.items)],  # PAD's row is zero
        )
        return torch.stack([part.square().sum() for part in (*rows, *self.policy.body.parameters())]).sum()

    @torch.no_grad()
    def calibrate(self, policy: Policy, batches: Iterable[Batch]) -> None:
        """Compute Lambda with the present phi, from a sample of the logged pairs, scaled to all of them."""
        policy = cast(LCBPolicy, policy)
        total, count = torch.zeros_like(policy.precision), 0
        for batch in batches:
            wanted = batch.target != PAD
            phi = policy.body(batch.states_before(policy.contexts(batch.history)))  # [N, d_phi]
            total.index_add_(0, batch.target[wanted], phi.square() / phi.shape[1])
            count += len(phi)
        policy.precision = policy.lam0 + total * max(1.0, self.pairs / max(1, count))

    def describe(self) -> dict[str, str]:
        return {"encoder": "the method's own, a mean and an MLP; of encoder.* only dim, length, init and scale apply"}


def _squares(values: Tensor, kept: Tensor) -> Tensor:
    """Mean over states of the mean square of the values where `kept`: [N, K] both."""
    return ((values.square() * kept).sum(1) / kept.sum(1).clamp(min=1)).mean()
