"""Reward expressions such as `quantity*price`: numbers, columns, + - * / ( ); parsed here, never run as code."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ecoc.errors import InputError, did_you_mean

_TOKEN = re.compile(r"""\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([^\W\d][\w.]*)|"([^"]+)"|([-+*/()]))""")
_LONGEST = 1000
_MOST_TOKENS = 200
_DEEPEST = 50


@dataclass(frozen=True)
class Number:
    """A literal."""

    value: float


@dataclass(frozen=True)
class Column:
    """A column of the log."""

    name: str


@dataclass(frozen=True)
class Operation:
    """`left operator right`; a sign is `0 - right`."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression = Number | Column | Operation


def parse(text: str, columns: Collection[str]) -> Expression:
    """Parse an arithmetic expression over `columns`. A text that is a column's name is that column."""
    if text in columns:
        return Column(text)
    if len(text) > _LONGEST:
        raise InputError(f"reward expression longer than {_LONGEST} characters")
    return _Parser(text, columns).whole()


def columns_of(expression: Expression) -> list[str]:
    """Names of the columns an expression reads, each once, in order."""
    if isinstance(expression, Column):
        return [expression.name]
    if isinstance(expression, Operation):
        return list(dict.fromkeys(columns_of(expression.left) + columns_of(expression.right)))
    return []


def render(expression: Expression, column: Callable[[str], str]) -> str:
    """Write the tree as SQL, from our own operators and number literals; `column` writes a column."""
    if isinstance(expression, Number):
        return f"{expression.value!r}::DOUBLE"
    if isinstance(expression, Column):
        return column(expression.name)
    left, right = render(expression.left, column), render(expression.right, column)
    if expression.operator == "/":
        right = f"nullif({right}, 0)"
    return f"({left} {expression.operator} {right})"


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str, columns: Collection[str]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = self._tokenize()
        self._depth = 0

    def whole(self) -> Expression:
        expression = self._sum()
        if self._tokens:
            raise self._error(f"unexpected '{self._tokens[0][1]}'")
        return expression

    def _tokenize(self) -> list[tuple[str, str]]:
        tokens = []
        position = 0
        text = self._text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"unexpected '{text[position:].strip()[:1]}'")
            number, name, quoted, sign = match.groups()
            tokens.append(("number", number) if number else ("sign", sign) if sign else ("name", name or quoted))
            position = match.end()
        if len(tokens) > _MOST_TOKENS:
            raise self._error(f"more than {_MOST_TOKENS} parts")
        return tokens

    def _sum(self) -> Expression:
        left = self._product()
        while self._tokens and self._tokens[0] in {("sign", "+"), ("sign", "-")}:
            left = Operation(self._tokens.pop(0)[1], left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._factor()
        while self._tokens and self._tokens[0] in {("sign", "*"), ("sign", "/")}:
            left = Operation(self._tokens.pop(0)[1], left, self._factor())
        return left

    def _factor(self) -> Expression:
        if not self._tokens:
            raise self._error("it ends too early")
        kind, text = self._tokens.pop(0)
        if kind == "number":
            if not math.isfinite(float(text)):
                raise self._error(f"{text} is too large a number")
            return Number(float(text))
        if kind == "name":
            if text not in self._columns:
                near = did_you_mean(text, self._columns)
                raise InputError(f"--reward-column {self._text!r}: no column '{text}' in the log; {near}")
            return Column(text)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"nested deeper than {_DEEPEST}")
        if text == "(":
            inner = self._sum()
            if not self._tokens or self._tokens.pop(0) != ("sign", ")"):
                raise self._error("a '(' is not closed")
        elif text in "+-":
            inner = self._factor() if text == "+" else Operation("-", Number(0.0), self._factor())
        else:
            raise self._error(f"unexpected '{text}'")
        self._depth -= 1
        return inner

    def _error(self, what: str) -> InputError:
        return InputError(
            f"--reward-column {self._text!r}: {what};"
            " expected a numeric column, or columns and numbers joined by + - * / ( )"
        )
