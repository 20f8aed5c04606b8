"""Supervised: the encoder alone, trained to predict the next item by L_BC; docs/equations.md §3.6."""

from ecoc.batch import Batch, TrainSequences
from ecoc.methods.base import BuildContext, Loss, Method
from ecoc.methods.behaviour_loss import BehaviourLoss, BehaviourLossConfig
from ecoc.policies.base import TiedPolicy


class Supervised(Method):
    """The logged item should be ranked first: L = L_BC."""

    policy: TiedPolicy

    class Config(BehaviourLossConfig):
        """Settings of supervised training."""

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.policy = TiedPolicy(context.make_encoder(), context.encoder.init)
        self.bc = BehaviourLoss(config, context.dims.items)

    def sparse_parameters(self) -> set[str]:
        return {"policy.table"} if self.bc.touches_sparse_rows(self.policy.encoder) else set()

    def fit_statistics(self, sessions: TrainSequences) -> None:
        super().fit_statistics(sessions)
        self.bc.fit_statistics(sessions)

    def loss(self, batch: Batch) -> Loss:
        with self.clock("encode"):
            items = self.policy.item_vectors()
            task = self.policy.encoder.prediction_task(items, batch)
        with self.clock("loss"):
            bc = self.bc(task.states, task.target, items, sparse=self.policy.encoder.sparse)
            total = sum(task.extra.values(), bc)
        return Loss(total, {"bc": bc, **task.extra})

    def describe(self) -> dict[str, str]:
        return {"loss": self.bc.describe()}
