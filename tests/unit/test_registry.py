"""What a registry holds, and how a script adds to it."""

import subprocess
import sys
from fractions import Fraction

import pytest

from ecoc.errors import InputError
from ecoc.registry import BUILT_IN, Registry


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


def test_a_class_given_by_its_place_is_imported_when_it_is_used() -> None:
    shapes: Registry[object] = Registry("shape", {"fraction": "fractions:Fraction", "missing": "nowhere:Nothing"})
    assert list(shapes) == ["fraction", "missing"]
    assert shapes["fraction"] is Fraction
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        shapes["missing"]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in BUILT_IN for name in BUILT_IN[kind]])
def test_everything_built_in_is_where_the_table_says(kind: str, name: str) -> None:
    registry: Registry[object] = Registry(kind)
    place = f"{registry[name].__module__}:{registry[name].__name__}"
    assert place == BUILT_IN[kind][name]


def test_names_are_listed_without_importing_anything() -> None:
    script = "import sys; from ecoc.registry import Registry; print(*Registry('encoder')); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names, modules = done.stdout.splitlines()
    assert "sasrec" in names.split()
    assert {"torch", "numpy", "ecoc.encoders"}.isdisjoint(modules.split())
