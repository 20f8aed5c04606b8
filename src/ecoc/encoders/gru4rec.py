"""GRU4Rec: session-based recommendation with a recurrent net (Hidasi et al., 2016); docs/equations.md §4.1."""

from pydantic import Field
from torch import Tensor, nn

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder, EncoderConfig, at, mlp


class GRU4Rec(Encoder):
    """A GRU layer; the state after each item is a head of its hidden state.

    Differs from the paper: item embeddings are read and score (tied weights), windows are trained by L_BC instead of
    session-parallel batches with TOP1, and a head with a ReLU follows the GRU.
    """

    class Config(EncoderConfig):
        """Settings of GRU4Rec."""

        hidden: int = Field(128, gt=0, le=65536, description="width of the GRU state")
        head: int = Field(256, ge=0, le=65536, description="hidden width of the head; 0 for a single linear layer")

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.gru = nn.GRU(config.dim, config.hidden, batch_first=True)
        self.head = mlp(config.hidden, config.head, config.dim)
        start(self.gru, self.head)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.head(self.gru(embedded)[0])

    def last(self, embedded: Tensor, history: History) -> Tensor:
        return self.head(at(self.gru(embedded)[0], history.lengths - 1))


def start(gru: nn.GRU, head: nn.Sequential) -> None:
    """Xavier input weights, orthogonal recurrence, He head: with torch's smaller defaults training starts slowly."""
    for name, values in gru.named_parameters():
        if name.startswith("weight_ih"):
            nn.init.xavier_uniform_(values)
        elif name.startswith("weight_hh"):
            for gate in values.chunk(3):
                nn.init.orthogonal_(gate)
        else:
            nn.init.zeros_(values)
    for layer in head:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
