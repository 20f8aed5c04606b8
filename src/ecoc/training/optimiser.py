"""Adam for all parameters; item tables are updated either densely or only in the rows that a step touched."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

_EPS = 1e-8


class Optimiser:
    """Adam over a module's parameters. Parameters whose gradient is row-sparse get the lazy, row-wise update.

    Lazy: the moments of rows that a step does not touch stay unchanged, so its cost does not depend on the catalogue.
    `trains` chooses the parameters by name. `before_rows_move` is called with a table and the rows of it that are about
    to change.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        betas: tuple[float, float],
        decay: float,
        sparse: set[str],
        trains: Callable[[str], bool] = lambda name: True,
        decays: Callable[[str], bool] = lambda name: True,
        clip_group: Callable[[str], str] = lambda name: "",
        before_rows_move: Callable[[nn.Parameter, Tensor], None] = lambda table, rows: None,
    ) -> None:
        named = {name: p for name, p in module.named_parameters() if p.requires_grad and trains(name)}
        self._dense = {name: p for name, p in named.items() if name not in sparse}
        self._rows = {name: p for name, p in named.items() if name in sparse}
        self._betas, self._decay, self._decays, self._clip_group = betas, decay, decays, clip_group
        self._before_rows_move = before_rows_move
        self._moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self._rows.items()}
        self._steps = 0
        decayed, free = ([p for name, p in self._dense.items() if decays(name) is chosen] for chosen in (True, False))
        settings = [{"params": decayed, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
        self._adam = torch.optim.Adam(
            [group for group in settings if group["params"]], lr=0.0, betas=betas, eps=_EPS, fused=True
        )

    def zero(self) -> None:
        """Clear the gradients."""
        for p in (*self._dense.values(), *self._rows.values()):
            p.grad = None

    def step(self, lr: float, clip: float) -> float:
        """Clip the gradients of each group to norm `clip` (0: no limit) and take a step; returns the unclipped norm."""
        rows = {name: _coalesced(p.grad) for name, p in self._rows.items() if p.grad is not None}
        groups: dict[str, list[Tensor]] = {}
        for name, p in self._dense.items():
            if p.grad is not None:
                groups.setdefault(self._clip_group(name), []).append(p.grad)
        for name, (_, values) in rows.items():
            groups.setdefault(self._clip_group(name), []).append(values)
        norms = {name: float(get_total_norm(gradients, foreach=True)) for name, gradients in groups.items()}
        for name, norm in norms.items():
            if clip and norm > clip:
                torch._foreach_mul_(groups[name], clip / norm)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self._steps += 1
        for name, (index, values) in rows.items():
            self._row_step(name, index, values, lr)
        return math.hypot(*norms.values())

    def reset(self) -> None:
        """Clear the moments, as at the start of training."""
        self._steps = 0
        self._adam.state.clear()
        for first, second in self._moments.values():
            first.zero_()
            second.zero_()

    @torch.no_grad()
    def _row_step(self, name: str, index: Tensor, gradient: Tensor, lr: float) -> None:
        weight, (first, second), (beta1, beta2) = self._rows[name], self._moments[name], self._betas
        self._before_rows_move(weight, index)
        rows = weight[index]
        if self._decay and self._decays(name):
            gradient = gradient + self._decay * rows
        mean = first[index].lerp_(gradient, 1 - beta1)
        square = second[index].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        first[index], second[index] = mean, square
        scale = (1 - beta2**self._steps) ** 0.5 / (1 - beta1**self._steps)
        weight[index] = rows.addcdiv_(
            mean, square.sqrt_().add_(_EPS * (1 - beta2**self._steps) ** 0.5), value=-lr * scale
        )

    def state(self) -> dict[str, Tensor]:
        """The moments and the step count, by name."""
        result = {"steps": torch.tensor(self._steps)}
        for name, p in self._dense.items():
            result |= {f"{name}.{key}": value for key, value in self._adam.state[p].items()}
        for name, (first, second) in self._moments.items():
            result |= {f"{name}.exp_avg": first, f"{name}.exp_avg_sq": second}
        return result

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for name, p in (*self._dense.items(), *self._rows.items()):
            for key in ("exp_avg", "exp_avg_sq"):
                moment = state.get(f"{name}.{key}")
                if moment is not None and (moment.shape != p.shape or moment.dtype != p.dtype):
                    raise ValueError(f"{name}.{key} is {moment.dtype} {list(moment.shape)}, expected {list(p.shape)}")
        self._steps = int(state["steps"])
        for name, p in self._dense.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            self._adam.state[p] = {key: state[f"{name}.{key}"].clone() for key in keys if f"{name}.{key}" in state}
        for name in self._rows:
            self._moments[name] = (state[f"{name}.exp_avg"].clone(), state[f"{name}.exp_avg_sq"].clone())


def _coalesced(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """A row-sparse gradient as its distinct rows and the sum of the entries of each row."""
    index, column = torch.unique(gradient._indices()[0], return_inverse=True)
    values = gradient._values()
    return index, values.new_zeros(len(index), values.shape[1]).index_add_(0, column, values)
