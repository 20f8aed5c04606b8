"""Item tables that are followed row by row: the same as following all of them, at the cost of the touched ones."""

import pytest
import torch
from torch import Tensor, nn

from ecoc.methods.targets import Targets

ROWS, WIDTH = 50, 4


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(ROWS, WIDTH))
        self.line = nn.Linear(3, 2)


def followed(tau: float) -> tuple[Net, Targets[Net], Targets[Net]]:
    torch.manual_seed(0)
    net = Net()
    whole, lazy = Targets(net, tau), Targets(net, tau)
    lazy.follow_rows([net.table])
    return net, whole, lazy


def move(net: Net, lazy: Targets[Net], rows: Tensor) -> None:
    """What a row-wise optimiser does."""
    lazy.sync_rows(rows, net.table)
    with torch.no_grad():
        net.table[rows] += torch.randn(len(rows), WIDTH)
        net.line.weight += 0.1


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.02, 0.3, 1.0])
def test_rows_that_are_read_are_where_they_would_be(tau: float) -> None:
    net, whole, lazy = followed(tau)
    for step in range(400):
        move(net, lazy, torch.randperm(ROWS)[:3])
        whole.update(step)
        lazy.update(step)
        if step % 37 == 0:
            some = torch.randint(0, ROWS, (9,))  # with repeats
            lazy.sync_rows(some)
            assert torch.allclose(lazy.copy.table[some], whole.copy.table[some], atol=1e-5)
    lazy.sync_rows()
    assert torch.allclose(lazy.copy.table, whole.copy.table, atol=1e-5)
    assert torch.equal(lazy.copy.line.weight, whole.copy.line.weight)


def test_without_the_catching_up_it_would_not_be_so() -> None:
    net, whole, lazy = followed(0.02)
    for step in range(50):
        move(net, lazy, torch.arange(3))
        whole.update(step)
        lazy.update(step)
    with torch.no_grad():
        net.table[10] += 5.0  # moved, and nobody was told
    for step in range(50, 60):
        whole.update(step)
        lazy.update(step)
    lazy.sync_rows()
    assert not torch.allclose(lazy.copy.table[10], whole.copy.table[10], atol=1e-2)
    assert torch.allclose(lazy.copy.table[:3], whole.copy.table[:3], atol=1e-5)


def test_reading_twice_changes_nothing() -> None:
    net, _, lazy = followed(0.02)
    for step in range(20):
        move(net, lazy, torch.randperm(ROWS)[:5])
        lazy.update(step)
    lazy.sync_rows(torch.arange(9))
    before = lazy.copy.table.clone()
    lazy.sync_rows(torch.arange(9))
    assert torch.equal(lazy.copy.table, before)


def test_a_saved_copy_goes_on_to_the_same_bits() -> None:
    net, _, lazy = followed(0.02)
    for step in range(30):
        move(net, lazy, torch.randperm(ROWS)[:5])
        lazy.update(step)
    resumed = Targets(net, 0.02)
    resumed.follow_rows([net.table])
    resumed.load({name: tensor.clone() for name, tensor in lazy.state().items()}, 30)
    for step in range(30, 60):
        rows = torch.randperm(ROWS)[:5]
        resumed.sync_rows(rows, net.table)
        move(net, lazy, rows)
        lazy.update(step)
        resumed.update(step)
    lazy.sync_rows()
    resumed.sync_rows()
    assert torch.equal(lazy.copy.table, resumed.copy.table)
