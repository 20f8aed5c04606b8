"""What ECoC can be told. Letters have the paper's meaning."""

from typing import Literal, Self

from pydantic import Field, model_validator

from ecoc.losses.conservatism import Form
from ecoc.methods.behaviour_loss import ImitationConfig
from ecoc.methods.ecoc.exploration import Xi
from ecoc.policies.base import RankBy
from ecoc.policies.critic import Kind


class ECoCConfig(ImitationConfig):
    """Settings of ECoC; presets hold the paper's."""

    alpha: float = Field(0.1, ge=0, description="weight of the critic's conservatism, L_REG; 0: none")
    beta: float = Field(1.0, ge=0, description="weight of the behavioural constraint, L_BC; 0: none")
    gamma: float = Field(0.95, ge=0, le=1, description="discount of later rewards; 0: only the next one counts")
    tau: float = Field(0.02, ge=0, le=1, description="rate at which the lagged networks follow")
    tau_warmup: bool = Field(True, description="follow faster at first, by 1 / (step + 9); the paper: no")
    trace: float = Field(0.8, ge=0, le=1, description="lambda of the returns along the log; 0: one step, as the paper")
    dc: float = Field(0.0, ge=0, description="weight of directional control, L_DC; the paper: 1")

    critic: Kind = Field(
        "tower",
        description="state branch: tower, an encoder of its own that reads mu; shared, mu itself (the paper);"
        " separate, two encoders on the actor's embeddings (released code)",
    )
    critic_grad: float = Field(1.0, ge=0, le=1, description="shared: share of the critic's gradient that reaches mu")
    critic_dropout: float | None = Field(
        None, ge=0, lt=1, description="tower: dropout of its encoder's embeddings; none: as the actor's"
    )
    heads: Literal[1, 2] | None = Field(None, description="action networks h; none: 2, with separate branches 1")
    hidden: int = Field(64, ge=0, le=4096, description="width inside h; 0: one linear layer")
    dueling: bool = Field(True, description="add a value V(s) of the state alone")
    clip: Literal["q", "vector"] = Field("q", description="pessimism: least Q, or least vector (released code)")
    backup: Literal["expected", "sample"] = Field("expected", description="value of s': expected, or at one item drawn")
    next_from: Literal["target", "online"] = Field(
        "online", description="which actor explores at s'; the paper: target"
    )
    entropy: float = Field(0.0, ge=0, description="weight of -log pi(i'|s') in the value of s' (released code: 0.1)")

    xi: Literal["auto"] | Xi = Field(
        "auto", description="exploration: all, gumbel, cdf, topk, pool; auto: all for small catalogues, else pool"
    )
    n1: int = Field(500, ge=1, le=1_000_000, description="actions N1 explored for L_REG (gumbel, cdf, topk)")
    explorers: int = Field(
        256, ge=0, description="states of a step, drawn at random, in which actions are explored; 0: all of them"
    )
    pool: int = Field(256, ge=2, le=1_000_000, description="items in the pool of a step")
    index_from: int = Field(100_000, ge=1, description="topk: catalogue size from which an approximate index is used")
    index_every: int = Field(500, ge=1, description="topk: steps between two buildings of the index")
    candidates: int = Field(20_000, ge=1, description="topk: items of the index that a step looks at")
    kappa: float = Field(0.0, ge=0, description="explore by cosine with this concentration; 0: by inner product")
    reg: Form = Field("weighted", description="form of L_REG")
    reg_weights: Literal["grad", "detach"] = Field("grad", description="whether L_REG's weights carry gradient")

    dc_q: Literal["least", "first"] = Field("least", description="L_DC follows the least Q, or the first critic's")
    distil: float = Field(0.0, ge=0, description="weight of the actor's cross-entropy to softmax(Q) (released code)")
    awr: float = Field(0.0, ge=0, description="temperature of advantage-weighted L_BC, in standard deviations; 0: off")
    control: float = Field(0.0, ge=0, description="weight of a control head, distilled from the blend; 0: none")
    decay_actor: bool = Field(True, description="whether train.weight_decay applies to the actor")

    rank_by: RankBy = Field("blend", description="what lists are ordered by: policy, blend, rerank, control")
    w: float = Field(10.0, ge=0, le=1e6, description="blend: weight of the value; 0: the policy alone")
    m: int = Field(20, ge=1, description="rerank: how many of the policy's items are ordered by value")
    guard: float = Field(
        0.02, gt=0, le=1, description="diversity: largest share of lists an item may be in, but 4 even shares; 1: any"
    )

    @model_validator(mode="after")
    def _has_what_it_acts_by(self) -> Self:
        if self.rank_by == "control" and not self.control:
            raise ValueError("rank_by = control needs a control head: set control above 0")
        return self
