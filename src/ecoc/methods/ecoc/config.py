"""Settings of ECoC. Letters have the paper's meaning; docs/equations.md §2."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ecoc.losses.conservatism import Form
from ecoc.methods.behaviour_loss import BehaviourLossConfig
from ecoc.methods.ecoc.exploration import Xi
from ecoc.policies.base import RankBy
from ecoc.policies.critic import Kind


class ECoCConfig(BehaviourLossConfig):
    """Settings of ECoC. The presets paper and released hold the values of the paper and of the authors' code."""

    removed: ClassVar[dict[str, object]] = {
        "awr": 0.0,
        "kappa": 0.0,
        "reg_weights": "grad",
        "critic_dropout": None,
    }

    alpha: float = Field(0.1, ge=0, description="weight of the conservatism term L_REG; 0 switches it off")
    beta: float = Field(1.0, ge=0, description="weight of the behavioural constraint L_BC; 0 switches it off")
    gamma: float = Field(0.95, ge=0, le=1, description="discount of later rewards; 0: only the next reward counts")
    tau: float = Field(0.02, ge=0, le=1, description="rate at which the lagged networks follow")
    tau_warmup: bool = Field(
        True, description="follow faster in the first steps, at rate 1 / (step + 9); the paper does not"
    )
    trace: float = Field(
        0.8, ge=0, le=1, description="lambda of the returns along the log; 0: one-step targets, as in the paper"
    )
    dc: float = Field(0.0, ge=0, description="weight of directional control L_DC; 0 switches it off; the paper: 1")

    critic: Kind = Field(
        "tower",
        description="state branch of the critic: tower, an encoder of its own that reads mu; shared, mu itself (the"
        " paper); separate, two encoders on the actor's embeddings (released code)",
    )
    critic_grad: float = Field(
        1.0, ge=0, le=1, description="shared: share of the critic's gradient that reaches the actor"
    )
    heads: Literal[1, 2] | None = Field(
        None, description="number of action networks h; none: 2, for separate state branches 1"
    )
    hidden: int = Field(64, ge=0, le=4096, description="hidden width of h; 0: a single linear layer")
    dueling: bool = Field(True, description="add a value V(s) that depends on the state alone")
    clip: Literal["q", "vector"] = Field(
        "q", description="pessimistic value: q, the least Q; vector, the element-wise least vector (released code)"
    )
    backup: Literal["expected", "sample"] = Field(
        "expected", description="value of the next state: expected under the policy, or sample, at one item drawn"
    )
    next_from: Literal["target", "online"] = Field(
        "online", description="actor that explores at the next state: target, the lagged one (the paper), or online"
    )
    entropy: float = Field(
        0.0, ge=0, description="weight of the entropy term in the value of the next state (released code: 0.1)"
    )

    xi: Literal["auto"] | Xi = Field(
        "auto", description="exploration: all, pool, gumbel, cdf or topk; auto: all up to 1,000 items, else pool"
    )
    n1: int = Field(500, ge=1, le=1_000_000, description="number N1 of explored actions (gumbel, cdf, topk)")
    explorers: int = Field(
        256, ge=0, description="states per step, drawn at random, in which actions are explored; 0: all"
    )
    pool: int = Field(256, ge=2, le=1_000_000, description="items in the pool of a step")
    index_from: int = Field(100_000, ge=1, description="topk: catalogue size from which an approximate index is used")
    index_every: int = Field(500, ge=1, description="topk: steps after which the index is rebuilt")
    candidates: int = Field(20_000, ge=1, description="topk: items of the index that a step considers")
    reg: Form = Field("weighted", description="form of L_REG: weighted (the paper), logsumexp or bpr")

    dc_q: Literal["least", "first"] = Field(
        "least", description="L_DC follows the least Q, or the Q of the first critic"
    )
    distil: float = Field(
        0.0,
        ge=0,
        description="weight of the actor's cross-entropy to softmax(Q) (an option of the released code); 0 switches it"
        " off",
    )
    control: float = Field(
        0.0, ge=0, description="weight of the control head's loss; the head is distilled from the blend; 0: no head"
    )
    optimise: Literal["together", "in_turn"] = Field(
        "together",
        description="one optimiser for the sum of all losses, or two in turn: the critic's step, then the actor's"
        " (released code)",
    )
    decay_actor: bool = Field(True, description="whether train.weight_decay applies to the actor (released code: no)")

    rank_by: RankBy = Field(
        "blend", description="score that orders the lists: policy, blend, rerank, control or cosine"
    )
    w: float = Field(10.0, ge=0, le=1e6, description="blend: weight w of the long-term value; 0: the policy alone")
    m: int = Field(20, ge=1, description="rerank: number of the policy's best items that are ordered by value")
    guard: float = Field(
        0.02,
        gt=0,
        le=1,
        description="blend: no item may appear in more than this share of lists (never less than four times its even"
        " share); 1 switches the limit off",
    )

    @model_validator(mode="after")
    def _check_control(self) -> Self:
        if self.rank_by == "control" and not self.control:
            raise ValueError("rank_by = control needs a control head: set control above 0")
        if self.optimise == "in_turn" and (self.distil or self.control or self.critic == "tower"):
            raise ValueError("optimise = in_turn is for critic = shared or separate, without distil and control")
        return self
