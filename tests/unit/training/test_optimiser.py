from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ecoc.storage.checkpoint import load_checkpoint, save_checkpoint
from ecoc.training.optimiser import Optimiser

BETAS = (0.9, 0.98)
ROWS, DIM = 6, 3


pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    """A table that is looked up in, and something dense after it."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(ROWS, DIM))
        self.head = nn.Linear(DIM, 2)
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.sparse = sparse

    def forward(self, index: Tensor) -> Tensor:
        found = nn.functional.embedding(index, self.table, sparse=self.sparse)
        result: Tensor = (self.head(found) * torch.tensor([1.0, -0.5])).sin().sum()
        return result


def make(net: Net, *, decay: float = 0.0) -> Optimiser:
    return Optimiser(net, betas=BETAS, decay=decay, sparse={"table"} if net.sparse else set())


def rate(step: int) -> float:
    return 0.05 / (1 + step % 4)


def touched(step: int) -> Tensor:
    """Some rows, some of them several times."""
    draw = torch.Generator().manual_seed(step)
    return torch.randint(0, ROWS - 1, (5,), generator=draw)  # the last row never


def everything(step: int) -> Tensor:
    """All rows, in an order and with repeats of the step's own."""
    return torch.cat([torch.arange(ROWS), touched(step)])


def take(net: Net, optimiser: Optimiser, index: Callable[[int], Tensor], steps: range, clip: float = 0.0) -> None:
    for step in steps:
        net(index(step)).backward()
        optimiser.step(rate(step), clip)
        optimiser.zero()


def take_reference(
    net: Net, optimisers: list[torch.optim.Optimizer], index: Callable[[int], Tensor], steps: range
) -> None:
    for step in steps:
        net.zero_grad(set_to_none=True)
        net(index(step)).backward()
        for optimiser in optimisers:
            optimiser.param_groups[0]["lr"] = rate(step)
            optimiser.step()


def assert_near(one: nn.Module, other: nn.Module) -> None:
    for (name, mine), theirs in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=1e-6, msg=name)


def plain_adam(parameters: list[nn.Parameter], decay: float = 0.0) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, betas=BETAS, weight_decay=decay, fused=False, foreach=False)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_dense_path_is_adam(decay: float) -> None:
    ours, theirs = Net(sparse=False), Net(sparse=False)
    start = deepcopy(ours)
    take(ours, make(ours, decay=decay), touched, range(20))
    used = [theirs.table, *theirs.head.parameters()]
    take_reference(theirs, [plain_adam(used, decay)], touched, range(20))
    assert_near(ours, theirs)
    assert (ours.table[:-1] != start.table[:-1]).all()
    assert torch.equal(ours.unused, start.unused)
    assert torch.equal(ours.frozen, start.frozen)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_row_wise_path_is_adam_where_every_row_is_touched(decay: float) -> None:
    ours, theirs = Net(sparse=True), Net(sparse=False)
    take(ours, make(ours, decay=decay), everything, range(20))
    used = [theirs.table, *theirs.head.parameters()]
    take_reference(theirs, [plain_adam(used, decay)], everything, range(20))
    assert_near(ours, theirs)


def test_the_row_wise_path_is_lazy_adam_where_some_rows_are_touched() -> None:
    ours, theirs = Net(sparse=True), Net(sparse=True)
    start = ours.table.detach().clone()
    take(ours, make(ours), touched, range(20))
    lazy = torch.optim.SparseAdam([theirs.table], betas=BETAS)
    take_reference(theirs, [lazy, plain_adam(list(theirs.head.parameters()))], touched, range(20))
    assert_near(ours, theirs)
    assert torch.equal(ours.table[-1], start[-1])


def test_rows_that_a_step_does_not_touch_stay_as_they_are() -> None:
    """Neither weight nor moment nor decay moves them."""
    net = Net(sparse=True)
    optimiser = make(net, decay=0.1)
    take(net, optimiser, everything, range(3))
    before = {name: tensor.clone() for name, tensor in optimiser.state().items() if name.startswith("table")}
    table = net.table.detach().clone()
    take(net, optimiser, lambda step: torch.tensor([1, 4, 1]), range(3, 6))
    still = torch.tensor([0, 2, 3, 5])
    moved = torch.tensor([1, 4])
    for name, tensor in before.items():
        assert torch.equal(optimiser.state()[name][still], tensor[still])
        assert (optimiser.state()[name][moved] != tensor[moved]).any(1).all()
    assert torch.equal(net.table[still], table[still])
    assert (net.table[moved] != table[moved]).all()


def gradients(net: Net, index: Tensor) -> list[Tensor]:
    net.zero_grad(set_to_none=True)
    net(index).backward()
    return [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.01, 1e6])
def test_the_norm_counts_table_and_rest_and_clipping_shrinks_both(is_sparse: bool, clip: float) -> None:
    net = Net(sparse=is_sparse)
    index = torch.tensor([2, 2, 2, 0, 5])  # a row that comes thrice counts as the sum of its gradients
    whole = [gradient.clone() for gradient in gradients(net, index)]
    norm = float(torch.cat([gradient.flatten() for gradient in whole]).double().norm())
    optimiser = make(net)
    assert optimiser.step(0.1, clip) == pytest.approx(norm, rel=1e-5)
    scale = clip / norm if 0 < clip < norm else 1.0
    names = [name for name, p in net.named_parameters() if p.grad is not None]
    assert names == ["table", "head.weight", "head.bias"]
    for name, gradient in zip(names, whole, strict=True):
        state = optimiser.state()
        torch.testing.assert_close(state[f"{name}.exp_avg"], (1 - BETAS[0]) * scale * gradient)
        torch.testing.assert_close(state[f"{name}.exp_avg_sq"], (1 - BETAS[1]) * (scale * gradient) ** 2)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_norm_that_is_not_finite_is_told(is_sparse: bool) -> None:
    net = Net(sparse=is_sparse)
    with torch.no_grad():
        net.head.weight[0, 0] = torch.nan
    net(torch.tensor([1])).backward()
    assert not torch.tensor(make(net).step(0.1, 5.0)).isfinite()


def test_zero_forgets_gradients() -> None:
    for is_sparse in (False, True):
        net = Net(sparse=is_sparse)
        optimiser = make(net)
        net(touched(0)).backward()
        optimiser.zero()
        assert all(p.grad is None for p in net.parameters())
        before = [p.detach().clone() for p in net.parameters()]
        assert optimiser.step(0.1, 1.0) == 0
        assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 7])
def test_a_saved_state_goes_on_to_the_same_bits(is_sparse: bool, taken: int, tmp_path: Path) -> None:
    net = Net(sparse=is_sparse)
    optimiser = make(net, decay=0.01)
    take(net, optimiser, touched, range(taken), clip=0.5)
    save_checkpoint(tmp_path, "step-1", optimiser.state(), {})
    other = Net(sparse=is_sparse)
    other.load_state_dict(net.state_dict())
    resumed = make(other, decay=0.01)
    resumed.load(load_checkpoint(tmp_path, "step-1").tensors)
    for one, chosen in ((net, optimiser), (other, resumed)):
        take(one, chosen, touched, range(taken, taken + 6), clip=0.5)
    assert all(torch.equal(p, old) for p, old in zip(other.parameters(), net.parameters(), strict=True))
    assert set(resumed.state()) == set(optimiser.state())
    assert all(torch.equal(resumed.state()[name], tensor) for name, tensor in optimiser.state().items())


def test_a_loaded_state_is_a_copy() -> None:
    for is_sparse in (False, True):
        net = Net(sparse=is_sparse)
        optimiser = make(net)
        take(net, optimiser, touched, range(2))
        saved = {name: tensor.clone() for name, tensor in optimiser.state().items()}
        kept = {name: tensor.clone() for name, tensor in saved.items()}
        optimiser.load(saved)
        take(net, optimiser, touched, range(2, 4))
        assert all(torch.equal(tensor, kept[name]) for name, tensor in saved.items())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=9), min_size=1, max_size=6), st.booleans())
def test_rows_however_often_and_in_whatever_order_they_come(indices: list[list[int]], is_sorted: bool) -> None:
    """Lazy Adam written as a loop over rows."""
    net = Net(sparse=True)
    optimiser = make(net)
    weight = net.table.detach().double().clone()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, rows in enumerate(indices):
        net.table.grad = None
        net(torch.tensor(sorted(rows) if is_sorted else rows)).backward()
        assert net.table.grad is not None
        gradient = net.table.grad.to_dense().double()
        optimiser.step(0.1, 0.0)
        optimiser.zero()
        for row in set(rows):
            first[row] = BETAS[0] * first[row] + (1 - BETAS[0]) * gradient[row]
            second[row] = BETAS[1] * second[row] + (1 - BETAS[1]) * gradient[row] ** 2
            mean, square = first[row] / (1 - BETAS[0] ** (step + 1)), second[row] / (1 - BETAS[1] ** (step + 1))
            weight[row] -= 0.1 * mean / (square.sqrt() + 1e-8)
    torch.testing.assert_close(net.table.detach().double(), weight, rtol=1e-4, atol=1e-5)
