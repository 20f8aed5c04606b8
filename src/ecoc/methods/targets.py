"""Targets: lagged copies of networks, which follow them after every step; docs/equations.md §2.4."""

import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

M_co = TypeVar("M_co", bound=nn.Module, covariant=True)

_DUE = "rows up to date/"


class Targets(Generic[M_co]):
    """A copy that follows `module` by Polyak averaging: copy += rate * (module - copy). Always in evaluation mode.

    With warm-up the rate is 1 / (step + 9) in the first steps, so that the copy forgets its start; a rate of 0 stays 0.

    Item tables of which a step updates only some rows can be followed lazily. A row that did not move for k steps is
    brought up to date by a single update of the k-fold rate, when it is read or before it moves. The result is equal.
    """

    def __init__(self, module: M_co, tau: float, *, warmup: bool = True) -> None:
        self.tau, self.warmup = tau, warmup
        self.copy = deepcopy(module).train(False).requires_grad_(False)
        names = [name for name, _ in module.named_parameters()]
        pairs = zip(self.copy.parameters(), module.parameters(), strict=True)
        self._pairs = dict(zip(names, pairs, strict=True))
        self._due: dict[str, Tensor] = {}  # by table: the step up to which each row is up to date
        self._step = 0

    def follow_rows(self, tables: Iterable[nn.Parameter]) -> None:
        """Follow these parameters of the module lazily; call `sync_rows` before their rows are updated or read."""
        lazy = {id(table) for table in tables}
        for name, (mine, theirs) in self._pairs.items():
            if id(theirs) in lazy:
                self._due[name] = torch.zeros(len(mine), dtype=torch.int64)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """One Polyak step after training step `step` (0 is the first)."""
        self.copy.train(False)  # also drops what the copy computed from its old weights
        dense = [pair for name, pair in self._pairs.items() if name not in self._due]
        mine, theirs = zip(*dense, strict=True)
        torch._foreach_lerp_(list(mine), list(theirs), self._rate(step))
        self._step = step + 1

    @torch.no_grad()
    def sync_rows(self, rows: Tensor | None = None, table: nn.Parameter | None = None) -> None:
        """Bring rows (none: all) of the lazily followed tables, or of one of them, up to date."""
        for name, due in self._due.items():
            mine, theirs = self._pairs[name]
            if table is not None and theirs is not table:
                continue
            late = (due < self._step).nonzero().squeeze(1) if rows is None else rows[due[rows] < self._step]
            if len(late):
                late = late.unique() if rows is not None else late  # type: ignore[no-untyped-call]
                kept = self._log_kept(torch.tensor(self._step)) - self._log_kept(due[late])
                mine[late] = torch.lerp(theirs[late], mine[late], kept.exp().to(mine.dtype)[:, None])
                due[late] = self._step

    def _rate(self, step: int) -> float:
        return max(self.tau, 1 / (step + 9)) if self.tau and self.warmup else self.tau

    def _log_kept(self, steps: Tensor) -> Tensor:
        """Logarithm of the weight of its start value that a copy keeps after so many steps."""
        if not self.tau:
            return torch.zeros(steps.shape, dtype=torch.float64)
        turn = max(0, math.ceil(1 / self.tau) - 9) if self.warmup else 0  # the rate is tau from this step on
        early = steps.clamp(max=turn).double()
        late = (steps - turn).clamp(min=0).double() * (math.log1p(-self.tau) if self.tau < 1 else -1e4)
        return math.log(8) - (early + 8).log() + late

    def state(self) -> dict[str, Tensor]:
        """The copy's weights by name, and the step of each lazily followed row."""
        return {**self.copy.state_dict(), **{f"{_DUE}{name}": due for name, due in self._due.items()}}

    def load(self, state: dict[str, Tensor], step: int) -> None:
        """Restore what `state` returned after `step` steps."""
        self._step = step
        for name, due in self._due.items():
            due.copy_(state[f"{_DUE}{name}"])
        self.copy.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(_DUE)})
