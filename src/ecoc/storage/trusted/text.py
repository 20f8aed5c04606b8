"""Text for people, JSON and TOML, with limits."""

import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from ecoc.errors import ArtifactError, InputError
from ecoc.storage.trusted.files import read_bytes

LARGEST_JSON = 16 << 20
"""Bytes of a JSON file, unless its reader sets another limit."""
_LARGEST_TOML = 1 << 20
_DEEPEST = 64  # levels of JSON
_MOST_VALUES = 1_000_000  # of JSON; a value takes up to about 65 bytes
_LONGEST_INTEGER = 20  # digits, as many as 2^64 has

# C0, DEL, C1; marks, embeddings and isolates of direction; line separators; halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def printable(text: str, *, keep: str = "") -> str:
    r"""Text for a terminal or a message: control characters are shown as `\x1b` or `\u202e`, except those in `keep`."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def printable_json(text: str) -> str:
    """JSON for a terminal: what JSON leaves as it is and a terminal may obey is written as JSON's own escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def load_json(path: Path, *, largest: int = LARGEST_JSON, remedy: str, folder: Path | None = None) -> dict[str, Any]:
    """The JSON object that a file holds; `remedy` says what to do if it holds none."""
    try:
        content = parse_json(read_bytes(path, largest=largest, folder=folder))
    except ValueError as error:
        raise ArtifactError(f"{path}: not readable as JSON ({error}); {remedy}") from None
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {remedy}") from None
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: holds no JSON object; {remedy}")
    return content


def parse_json(content: bytes, *, most_values: int = _MOST_VALUES, finite: bool = True) -> Any:
    """A JSON value in UTF-8 of limited depth and number of values, finite ones if `finite`; else a ValueError."""
    if sum(content.count(mark) for mark in b",:[{") > most_values or content.count(b'"') > 2 * most_values:
        raise ValueError(f"more than {most_values:,} values")
    _check_depth(content)
    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _finite} if finite else {}
    try:
        return json.loads(content.decode("utf-8"), parse_int=_integer, object_pairs_hook=_object, **hooks)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError(f"more than {_DEEPEST} levels") from None


def _check_depth(content: bytes) -> None:
    if content.count(b"[") + content.count(b"{") <= _DEEPEST:
        return
    depth = 0
    for token in _BRACKET.finditer(content):
        mark = content[token.start()]
        depth += 1 if mark in b"[{" else -1 if mark in b"]}" else 0
        if depth > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; with a key in it twice, two readers of the file could see two different things."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key appears twice in an object")
    return values


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > _LONGEST_INTEGER:
        raise ValueError(f"an integer of more than {_LONGEST_INTEGER} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number that is not finite")
    return number


def load_toml(path: Path, *, folder: Path = Path("/")) -> dict[str, Any]:
    """Read a TOML file of settings; a wrong one is an InputError, because people write it."""
    try:
        text = read_bytes(path, largest=_LARGEST_TOML, folder=folder).decode("utf-8")
        return tomllib.loads(text)
    except ArtifactError as error:
        raise InputError(f"{error}; give a readable TOML file") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {str(error)[:200]}") from None
