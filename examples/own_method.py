"""A method of your own: predict the next item, with each example weighted by its reward.

`python examples/own_method.py` checks it with the contract suite, then trains with it.
"""

import tempfile
from pathlib import Path

from pydantic import Field
from torch.nn.functional import cross_entropy

import ecoc
from ecoc.methods import METHODS, PAD, Batch, BuildContext, Loss, Method, MethodConfig, TiedPolicy
from ecoc.testing import check_method


class RewardWeighted(Method):
    """L = mean over transitions of (1 + strength · r) · CE(scores of all items after the history, next item)."""

    policy: TiedPolicy

    class Config(MethodConfig):
        """Settings of reward-weighted training."""

        strength: float = Field(1.0, ge=0, description="how much a unit of reward adds to the weight of an example")

    def __init__(self, config: Config, context: BuildContext) -> None:
        super().__init__(config, context)
        self.strength = config.strength
        self.policy = TiedPolicy(context.make_encoder(), context.encoder.init)

    def loss(self, batch: Batch) -> Loss:
        """What a training step lowers; `bc` is logged as `loss/bc`."""
        is_target = batch.target != PAD  # [B, L]
        states = self.policy.states(batch.history)[is_target]  # [N, d]
        scores = states @ self.policy.item_vectors()[PAD + 1 :].T  # [N, items]
        error = cross_entropy(scores, batch.target[is_target] - (PAD + 1), reduction="none")
        weight = 1 + self.strength * batch.reward[is_target].clamp(min=0)
        bc = (weight * error).sum() / weight.sum().clamp(min=1)
        return Loss(bc, {"bc": bc})


def main(folder: Path) -> None:
    """Check the method, register it for this process, train with it."""
    check_method(RewardWeighted)
    METHODS.register("reward_weighted", RewardWeighted)
    data = ecoc.prepare("world:small", folder / "data", format="world", events=5_000)
    run = ecoc.train(data, folder / "run", method="reward_weighted", config={"train": {"max_epochs": 2}})
    print(ecoc.evaluate(run.model, data))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
