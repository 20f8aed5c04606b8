"""Gradients by finite differences."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def slopes(value: Callable[[], float], weight: Tensor, step: float = 1e-6) -> Floats:
    """Central differences of `value` by each entry of a parameter."""
    found = np.zeros(weight.numel())
    flat = weight.detach().view(-1)
    for k in range(len(found)):
        old = float(flat[k])
        flat[k] = old + step
        above = value()
        flat[k] = old - step
        found[k] = (above - value()) / (2 * step)
        flat[k] = old
    return found.reshape(weight.shape)
