"""Supervised: the backbone alone, trained to predict the next item by L_BC; methods.md section 3.6."""

from ecoc.batch import Batch, Sessions
from ecoc.methods.base import Loss, Method, Parts
from ecoc.methods.behaviour_loss import BehaviourLoss, ImitationConfig
from ecoc.policies.base import TiedPolicy


class Supervised(Method):
    """Rank the logged item first: L = L_BC."""

    policy: TiedPolicy

    class Config(ImitationConfig):
        """Settings of supervised training."""

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        self.policy = TiedPolicy(parts.make_encoder(), parts.encoder.init)
        self.bc = BehaviourLoss(config, parts.dims.items)

    def few_rows(self) -> set[str]:
        return {"policy.table"} if self.bc.touches_few_rows(self.policy.encoder) else set()

    def learn(self, sessions: Sessions) -> None:
        super().learn(sessions)
        self.bc.learn(sessions)

    def loss(self, batch: Batch) -> Loss:
        with self.clock("encode"):
            items = self.policy.item_vectors()
            asked = self.policy.imitate(batch, items)
        with self.clock("loss"):
            bc = self.bc(asked.states, asked.target, items, sparse=self.policy.encoder.sparse)
            total = sum(asked.extra.values(), bc)
        return Loss(total, {"bc": bc, **asked.extra})

    def choices(self) -> dict[str, str]:
        return {"loss": self.bc.choice()}
