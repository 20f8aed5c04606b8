"""`ecoc.x` and `from ecoc import x` give the same thing at all times, and help lists it."""

import re
import subprocess
import sys
from pkgutil import iter_modules

import pytest

import ecoc


def test_no_module_has_the_name_of_something_public() -> None:
    """Python sets an imported submodule as an attribute of its package, over whatever had that name."""
    assert set(ecoc.__all__).isdisjoint(module.name for module in iter_modules(ecoc.__path__))


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import ecoc.cli.report, ecoc.cli",
        "import ecoc.experiment.reproduce, ecoc.training.train, ecoc.evaluation.evaluate",
        "import ecoc.ope.simulate, ecoc.ope.choose_weight, ecoc.data.prepare",
        "import ecoc; ecoc.report; ecoc.train; ecoc.normtest; ecoc.reproduce",
    ],
)
def test_a_public_name_is_the_same_thing_whatever_was_imported_before(before: str) -> None:
    script = f"""
{before}
import types, ecoc
for _ in range(2):
    for name in ecoc.__all__:
        thing = getattr(__import__("ecoc", fromlist=[name]), name)  # from ecoc import name
        assert isinstance(thing, type | types.FunctionType), (name, thing)
        assert thing is getattr(ecoc, name) and thing.__name__ == name, (name, thing)
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_help_lists_every_public_name_with_its_signature() -> None:
    done = subprocess.run([sys.executable, "-c", "import ecoc; help(ecoc)"], capture_output=True, text=True, check=True)
    summary, _, rest = done.stdout.partition("PACKAGE CONTENTS")
    for name in ecoc.__all__:
        assert re.search(rf"^        {name} +\w", summary, re.MULTILINE), f"{name} has no line in the docstring"
        assert re.search(rf"^    (class )?{name}\(", rest, re.MULTILINE), f"{name} has no signature"
