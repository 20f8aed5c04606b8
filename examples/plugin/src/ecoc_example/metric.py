"""A metric: the reciprocal rank, not cut off."""

import numpy as np
from numpy.typing import NDArray


class ReciprocalRank:
    """1 / rank of the true item; its mean over cases is the mean reciprocal rank."""

    name = "reciprocal_rank"

    def __call__(self, ranks: NDArray[np.float64], /) -> NDArray[np.float64]:
        """Rank per case -> value per case; an item that cannot be ranked has rank infinity and counts 0."""
        return 1 / ranks
