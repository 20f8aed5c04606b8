"""What a registry holds, and how a script adds to it."""

import pytest

from ecoc.errors import InputError
from ecoc.registry import Registry


class Square: ...


class Circle: ...


@pytest.fixture
def shapes() -> Registry[object]:
    return Registry("shape", {"square": Square})


def test_a_registered_class_is_listed_and_found(shapes: Registry[object]) -> None:
    shapes.register("circle", Circle)
    assert list(shapes) == ["square", "circle"]
    assert shapes["circle"] is Circle


@pytest.mark.parametrize("name", ["square", "circle"])
def test_a_name_that_is_taken_is_refused(shapes: Registry[object], name: str) -> None:
    shapes.register("circle", Circle)
    with pytest.raises(InputError, match=f"shape '{name}' exists already; choose another name"):
        shapes.register(name, Circle)
    assert shapes["square"] is Square
