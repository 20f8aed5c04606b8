"""Caser: convolutional sequence embedding (Tang and Wang, 2018); docs/equations.md §4.4."""

from functools import reduce

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from ecoc.batch import Dims, History
from ecoc.encoders.base import Encoder, EncoderConfig
from ecoc.encoders.dropout import Dropout


class Caser(Encoder):
    """Filters over the image of the last `window` item vectors, with zero rows before the first; then a linear layer.

    Differs from the paper: no user vector, no output table of its own (tied weights), no ReLU after the linear layer,
    and L_BC with the next item as the only target.
    """

    class Config(EncoderConfig):
        """Settings of Caser."""

        window: int = Field(5, gt=0, le=64, description="number of most recent items that a state depends on")
        vertical: int = Field(
            4, gt=0, le=4096, description="number of vertical filters, each a weighted sum over the window"
        )
        horizontal: int = Field(16, gt=0, le=4096, description="number of horizontal filters of each height 1..window")
        conv_dropout: float = Field(
            0.25, ge=0, lt=1, description="share of the filters' outputs set to zero in training"
        )

    def __init__(self, config: Config, dims: Dims) -> None:
        super().__init__(config, dims)
        self.window = config.window
        self.vertical = nn.Parameter(torch.empty(config.window, config.vertical))
        self.vertical_bias = nn.Parameter(torch.zeros(config.vertical))
        self.horizontal = nn.ParameterList(  # rows of each filter, oldest first
            torch.empty(config.dim, height, config.horizontal) for height in range(1, config.window + 1)
        )
        self.horizontal_bias = nn.Parameter(torch.zeros(config.window * config.horizontal))
        self.conv_dropout = Dropout(config.conv_dropout)
        self.out = nn.Linear(config.vertical * config.dim + config.window * config.horizontal, config.dim)
        nn.init.normal_(self.vertical, std=config.window**-0.5)
        for height, rows in enumerate(self.horizontal, 1):
            nn.init.normal_(rows, std=(height * config.dim) ** -0.5)

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return self.out(self.conv_dropout(self._filter(embedded)))

    def last(self, embedded: Tensor, history: History) -> Tensor:
        steps = torch.arange(-self.window, 0, device=embedded.device)
        index = history.lengths[:, None] + steps  # [B, window]; negative before the first item
        image = embedded.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, self.dim))
        features = self._filter(image * (index >= 0)[..., None])[:, -1]
        return self.out(self.conv_dropout(features))

    def _filter(self, embedded: Tensor) -> Tensor:
        """All filters on the window that ends at each position: [B, L, d] -> [B, L, vertical d + window horizontal]."""
        padded = pad(embedded, (0, 0, self.window - 1, 0))  # the window of position t starts at row t
        return torch.cat((self._vertical(padded), self._horizontal(padded)), -1)

    def _vertical(self, padded: Tensor) -> Tensor:
        length = padded.shape[1] - self.window + 1
        parts = (
            padded[:, row : row + length, None] * weight[:, None]  # [B, L, vertical, d]
            for row, weight in enumerate(self.vertical)
        )
        return reduce(torch.add, parts, self.vertical_bias[:, None]).flatten(2)

    def _horizontal(self, padded: Tensor) -> Tensor:
        """Each filter once per position, although windows overlap; then its maximum over the window."""
        filters = torch.cat([rows.flatten(1) for rows in self.horizontal], 1)
        products = iter(
            (padded @ filters).chunk(self.window * (self.window + 1) // 2, -1)
        )  # one product per row of a filter
        highest = []
        for height in range(1, self.window + 1):
            places = padded.shape[1] - height + 1  # where a filter can start
            applied = reduce(torch.add, [next(products)[:, row : row + places] for row in range(height)])
            highest.append(applied.unfold(1, self.window - height + 1, 1).amax(-1))  # [B, L, horizontal]
        return torch.relu(torch.cat(highest, -1) + self.horizontal_bias)
