"""Reward expressions such as `quantity*price`: numbers, columns and + - * / ( ). They are parsed, never run as code.

The words of an expression are ours: column names may be Python keywords, hold dots or stand in quotes. Python's `ast`
builds the tree, from a text in which every number and column has a plain name; only four operators and signs pass.
"""

import ast
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ecoc.errors import InputError, did_you_mean

_TOKEN = re.compile(r"""\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([^\W\d][\w.]*)|"([^"]+)"|([-+*/()]))""")
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_LONGEST = 1000
_MOST_TOKENS = 200
_DEEPEST = 50


@dataclass(frozen=True)
class Constant:
    """A number in the text."""

    value: float


@dataclass(frozen=True)
class LogColumn:
    """A column of the log."""

    name: str


@dataclass(frozen=True)
class Operation:
    """`left operator right`; a minus sign is `0 - right`."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression = Constant | LogColumn | Operation


def parse(text: str, columns: Collection[str]) -> Expression:
    """Parse an arithmetic expression over `columns`. A text that equals a column's name is that column."""
    if text in columns:
        return LogColumn(text)
    if len(text) > _LONGEST:
        raise InputError(f"reward expression longer than {_LONGEST} characters")
    tokens = _tokenize(text)
    _check_order(text, tokens, columns)
    names = [token if kind == "sign" else f"x{place}" for place, (kind, token) in enumerate(tokens)]
    operands = {
        f"x{place}": Constant(float(token)) if kind == "number" else LogColumn(token)
        for place, (kind, token) in enumerate(tokens)
        if kind != "sign"
    }
    return _converted(ast.parse(" ".join(names), mode="eval").body, operands)


def columns_of(expression: Expression) -> list[str]:
    """Names of the columns an expression reads, each once, in order."""
    if isinstance(expression, LogColumn):
        return [expression.name]
    if isinstance(expression, Operation):
        return list(dict.fromkeys(columns_of(expression.left) + columns_of(expression.right)))
    return []


def render(expression: Expression, column: Callable[[str], str]) -> str:
    """Write the tree as SQL, from our own operators and number literals; `column` writes a column."""
    if isinstance(expression, Constant):
        return f"{expression.value!r}::DOUBLE"
    if isinstance(expression, LogColumn):
        return column(expression.name)
    left, right = render(expression.left, column), render(expression.right, column)
    if expression.operator == "/":
        right = f"nullif({right}, 0)"
    return f"({left} {expression.operator} {right})"


def _tokenize(text: str) -> list[tuple[str, str]]:
    """Split into (kind, token); a kind is `number`, `column` or `sign`."""
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            raise _refusal(text, f"unexpected '{text[position:].strip()[:1]}'")
        number, column, quoted, sign = match.groups()
        tokens.append(("number", number) if number else ("sign", sign) if sign else ("column", column or quoted))
        position = match.end()
    if len(tokens) > _MOST_TOKENS:
        raise _refusal(text, f"more than {_MOST_TOKENS} parts")
    return tokens


def _check_order(text: str, tokens: list[tuple[str, str]], columns: Collection[str]) -> None:
    """Refuse, by its first wrong token, what is not an expression over `columns`."""
    open_signs: list[str] = []  # each '(' that is not closed, and each + or - that waits for its operand
    is_complete = False  # whether the last token ended an operand
    for kind, part in tokens:
        if is_complete and (kind != "sign" or part == "("):
            raise _refusal(text, f"unexpected '{part}'")
        if is_complete and part in "+-*/":
            is_complete = False
        elif not is_complete and part in "+-(":
            open_signs.append(part)
            if len(open_signs) > _DEEPEST:
                raise _refusal(text, f"nested deeper than {_DEEPEST}")
        elif kind != "sign" or (is_complete and "(" in open_signs):
            if kind != "sign":
                _check_operand(text, kind, part, columns)
            else:
                open_signs.pop()  # the '(': the signs after it have their operands
            while open_signs and open_signs[-1] != "(":
                open_signs.pop()
            is_complete = True
        else:
            raise _refusal(text, f"unexpected '{part}'")
    if not is_complete:
        raise _refusal(text, "it ends too early")
    if open_signs:
        raise _refusal(text, "a '(' is not closed")


def _check_operand(text: str, kind: str, part: str, columns: Collection[str]) -> None:
    if kind == "number" and not math.isfinite(float(part)):
        raise _refusal(text, f"{part} is too large a number")
    if kind == "column" and part not in columns:
        near = did_you_mean(part, columns)
        raise InputError(f"--reward-column {text!r}: no column '{part}' in the log; {near}")


def _converted(node: ast.expr, operands: dict[str, Constant | LogColumn]) -> Expression:
    """Our tree from Python's; any node that is not listed here is refused."""
    match node:
        case ast.Name(id=name):
            return operands[name]
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _converted(operand, operands)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return Operation("-", Constant(0.0), _converted(operand, operands))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return Operation(_OPERATORS[type(operator)], _converted(left, operands), _converted(right, operands))
    raise TypeError(f"{ast.dump(node)} is no part of a reward expression")


def _refusal(text: str, what: str) -> InputError:
    return InputError(
        f"--reward-column {text!r}: {what}; expected a numeric column, or columns and numbers joined by + - * / ( )"
    )
