"""How a contract suite is run: checks are plain functions, a broken contract is an AssertionError that names it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

NEAR = 1e-5


def require(holds: object, message: str) -> None:
    """Raise AssertionError with a message unless something holds."""
    if not holds:
        raise AssertionError(message)


def require_near(values: Tensor, expected: Tensor, message: str) -> None:
    """Raise AssertionError unless two tensors are equal up to rounding."""
    try:
        torch.testing.assert_close(values, expected, rtol=NEAR, atol=NEAR)
    except AssertionError as error:
        raise AssertionError(f"{message} ({' '.join(str(error).split())[:200]})") from None


def run_checks(name: str, checks: Mapping[str, Callable[[T], None]], subject: T) -> None:
    """Run every check on a subject; the first that fails says which contract of what is broken."""
    for title, check in checks.items():
        try:
            with torch.random.fork_rng(devices=[]):  # torch's random numbers outside stay as they were
                check(subject)
        except AssertionError as error:
            raise AssertionError(f"{name}: {title}: {error}") from error


def titled(*checks: Callable[[Any], None]) -> dict[str, Callable[[Any], None]]:
    """Checks by what they state: the first line of their docstrings."""
    return {(check.__doc__ or check.__name__).splitlines()[0].rstrip("."): check for check in checks}
