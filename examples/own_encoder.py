"""An encoder of your own: the state is a decaying sum of what the user did.

`python examples/own_encoder.py` checks it with the contract suite, then trains with it.
"""

import tempfile
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor, nn

import ecoc
from ecoc.encoders import ENCODERS, Dims, Encoder, EncoderConfig, History
from ecoc.testing import check_encoder


class DecayingSum(Encoder):
    """State after position t: W · sum over s ≤ t of decay^(t−s) · e_s, with one learned decay per dimension."""

    class Config(EncoderConfig):
        """Settings of the decaying sum."""

        half_life: float = Field(3.0, gt=0, description="events after which an item counts half, at the start")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        rate = torch.tensor(0.5) ** (1 / config.half_life)
        self.decay = nn.Parameter(torch.logit(rate).repeat(config.dim))
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        """[B, L, d] -> [B, L, d]; position t reads positions up to t only."""
        steps = torch.arange(embedded.shape[1], device=embedded.device)
        age = (steps[:, None] - steps[None, :]).clamp(min=0)  # [L, L]
        weight = self.decay.sigmoid() ** age[..., None] * (steps[:, None] >= steps[None, :])[..., None]  # [L, L, d]
        return self.out(torch.einsum("tsd,bsd->btd", weight, embedded))


def main(folder: Path) -> None:
    """Check the encoder, register it for this process, train with it."""
    check_encoder(DecayingSum)
    ENCODERS.register("decaying_sum", DecayingSum)
    data = ecoc.prepare("world:small", folder / "data", format="world", events=5_000)
    run = ecoc.train(data, folder / "run", encoder="decaying_sum", config={"train": {"max_epochs": 2}})
    print(ecoc.evaluate(run.model, data))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
