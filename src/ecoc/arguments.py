"""Checks of arguments from outside: each gives the value in the type the code works with, or refuses it in one line.

A refusal is an `InputError` that names the argument, what is expected and what was found. Numbers of numpy count as
numbers; a bool never does.
"""

import math
import os
import reprlib
from collections.abc import Iterable, Mapping, Set
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ecoc.errors import InputError, did_you_mean

StrPath = str | os.PathLike[str]
"""A path as every public function takes it."""


def as_path(value: object, name: str) -> Path:
    """A file or folder."""
    if not isinstance(value, str | os.PathLike):
        raise refusal(name, "a path (text or pathlib.Path)", value)
    path = os.fspath(value)
    if not isinstance(path, str) or "\0" in path:
        raise refusal(name, "a path without null characters, as text", value)
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:  # the libraries that read and write files take names in UTF-8 only
        raise refusal(name, "a path in UTF-8; rename it", path) from None
    return Path(path)


def as_paths(value: object, name: str) -> list[Path]:
    """One path, or several."""
    values = [value] if isinstance(value, str | os.PathLike) else as_list(value, name, "a path, or a list of paths")
    return [as_path(entry, f"{name}[{place}]" if len(values) > 1 else name) for place, entry in enumerate(values)]


def as_list(value: object, name: str, expected: str) -> list[Any]:
    """The members of any iterable; text, bytes and mappings are refused: their members are not what was meant."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise refusal(name, expected, value)
    return list(value)


def as_text(value: object, name: str) -> str:
    """Text."""
    if not isinstance(value, str):
        raise refusal(name, "text", value)
    return value


def as_id(value: object, name: str) -> str:
    """The id of an item or a user: text, or a whole number as logs often have it."""
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise refusal(name, "an id (text or a whole number)", value)
    return str(value)


def as_count(value: object, name: str, *, least: int = 0, most: int | None = None) -> int:
    """A whole number."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        count = int(value)
        if count >= least and (most is None or count <= most):
            return count
    raise refusal(name, f"a whole number, {_range(least, most)}", value)


def as_number(value: object, name: str, *, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise refusal(name, "a number", value)
    number = float(value)
    if not (math.isfinite(number) and least <= number <= most):
        raise refusal(name, f"a finite number, {_range(least, None if most == math.inf else most)}", value)
    return number


def as_flag(value: object, name: str) -> bool:
    """True or False, nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise refusal(name, "True or False", value)
    return value


def as_choice(value: object, name: str, choices: Iterable[str]) -> str:
    """One of some names."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{name}: unknown value {shown(value)}; {did_you_mean(str(value)[:100], choices)}")
    return value


def as_mapping(value: object, name: str) -> Mapping[str, Any]:
    """Settings by name."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(name, "a mapping of settings by name", value)
    return value


def refusal(name: str, expected: str, value: object) -> InputError:
    """The error for a wrong argument, in one line."""
    return InputError(f"{name}: expected {expected}; found {shown(value)}")


def shown(value: object) -> str:
    """A value in a message: short, in one line, with the name of its type where that is not plain to see."""
    try:
        text = " ".join(reprlib.repr(value).split())[:60]
    except ValueError:  # Python refuses to write whole numbers of thousands of digits
        return f"an object of type {type(value).__name__}"
    if value is None or isinstance(value, bool | str | int | float):
        return text
    if isinstance(value, list | tuple | dict | Set):
        return f"{type(value).__name__} {text}"
    return f"an object of type {type(value).__name__}"


def _range(least: float, most: float | None) -> str:
    if least == -math.inf:
        return "of any size" if most is None else f"at most {most:g}"
    return f"{least:g} or more" if most is None else f"from {least:g} to {most:g}"
