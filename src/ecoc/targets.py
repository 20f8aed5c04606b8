"""Targets: lagged copies of networks, moved a little towards them after every step."""

from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

M_co = TypeVar("M_co", bound=nn.Module, covariant=True)


class Targets(Generic[M_co]):
    """A copy that follows `module` by Polyak averaging: copy += rate * (module - copy). Always in evaluation mode.

    Early on the rate is higher, 1 / (step + 9), so that the copy forgets where it began.
    """

    def __init__(self, module: M_co, tau: float) -> None:
        self.tau = tau
        self.copy = deepcopy(module).train(False).requires_grad_(False)
        self._pairs = list(zip(self.copy.parameters(), module.parameters(), strict=True))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """One Polyak step after training step `step` (0 is the first)."""
        self.copy.train(False)  # also drops what the copy derived from its old weights
        mine, theirs = zip(*self._pairs, strict=True)
        torch._foreach_lerp_(list(mine), list(theirs), max(self.tau, 1 / (step + 9)))

    def state(self) -> dict[str, Tensor]:
        """The copy's weights, by name."""
        return self.copy.state_dict()

    def load(self, state: dict[str, Tensor]) -> None:
        """Take weights saved by `state`."""
        self.copy.load_state_dict(state)
