"""A method: cross-entropy with label smoothing."""

from pydantic import Field
from torch.nn.functional import cross_entropy

from ecoc.methods import PAD, Batch, BuildContext, Loss, Method, MethodConfig, TiedPolicy


class Smoothed(Method):
    """L = CE(scores of all items, next item), where the target distribution gives a share to every item."""

    policy: TiedPolicy

    class Config(MethodConfig):
        """Settings of smoothed training."""

        smoothing: float = Field(0.1, ge=0, lt=1, description="share of the target that is spread over all items")

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.smoothing = config.smoothing
        self.policy = TiedPolicy(context.make_encoder(), context.encoder.init)

    def loss(self, batch: Batch) -> Loss:
        """What a training step lowers."""
        is_target = batch.target != PAD  # [B, L]
        scores = self.policy.states(batch.history)[is_target] @ self.policy.item_vectors()[PAD + 1 :].T  # [N, items]
        target = batch.target[is_target] - (PAD + 1)
        error = cross_entropy(scores, target, label_smoothing=self.smoothing, reduction="sum")
        bc = error / max(len(target), 1)
        return Loss(bc, {"bc": bc})
