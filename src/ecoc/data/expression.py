"""Expressions over the columns of a log, such as `quantity*price` or `if(is_like, "like", "none")`: parsing and kinds.

    numbers, 'texts', columns, "column names or texts"      + - * /      == != < <= > >=      in (1, 2)
    and or not      min(a, b, …)  max(a, b, …)  abs(a)  log1p(a)  if(condition, a, b)

They are parsed here and never run as code; `expression_sql` writes them as SQL. A text in double quotes is a column if
the log has one of that name. The value of a column is a text; where a number is needed it is read as a number.
"""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeVar

from ecoc.errors import InputError, did_you_mean

Part = TypeVar("Part")
ValueKind = Literal["number", "text", "truth", "either"]
"""What an expression gives; a column may be read as a number or as a text."""

_TOKEN = re.compile(
    r"""\s*(?:((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|([^\W\d][\w.]*)|"([^"]*)"|'([^']*)'|([=!<>]=|[-+*/(),<>]))"""
)
_EXPECTED = (
    "expected columns, numbers and texts with + - * / ( ) == != < <= > >= and or not in, or min max if abs log1p"
)
_LONGEST = 1000
_MOST_TOKENS = 200
_DEEPEST = 50
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_ARITHMETIC = frozenset({"+", "-", "*", "/"})
_NOT, _SIGN = 3, 7  # precedence of the prefix operators
_PRECEDENCE = {"or": 1, "and": 2, "in": 4, "not": 4, "+": 5, "-": 5, "*": 6, "/": 6} | dict.fromkeys(COMPARISONS, 4)
_ARGUMENTS = {"min": (2, _MOST_TOKENS), "max": (2, _MOST_TOKENS), "abs": (1, 1), "log1p": (1, 1), "if": (3, 3)}


@dataclass(frozen=True)
class Constant:
    """A number or a text of the expression."""

    value: float | str


@dataclass(frozen=True)
class LogColumn:
    """A column of the log."""

    name: str


@dataclass(frozen=True)
class Operation:
    """`left operator right`: arithmetic, a comparison, `and`, `or`; a minus sign is `0 - right`."""

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True)
class Negation:
    """`not operand`."""

    operand: "Expression"


@dataclass(frozen=True)
class Membership:
    """`operand in (values)`; the values are all numbers or all texts."""

    operand: "Expression"
    values: tuple[Constant, ...]


@dataclass(frozen=True)
class Call:
    """`function(arguments)`."""

    function: str
    arguments: tuple["Expression", ...]


Expression = Constant | LogColumn | Operation | Negation | Membership | Call


@dataclass(frozen=True)
class _Token:
    kind: Literal["number", "word", "quoted", "text", "sign"]
    text: str


def parse(
    text: str, columns: Collection[str], option: str = "--reward-column", wanted: ValueKind = "number"
) -> Expression:
    """Parse an expression over `columns` that gives `wanted`. A text that equals a column's name is that column."""
    if text in columns:
        return LogColumn(text)
    if len(text) > _LONGEST:
        raise InputError(f"{option}: an expression longer than {_LONGEST} characters")

    def refusal(what: str) -> InputError:
        return InputError(f"{option} {text!r:.200}: {what}")

    tokens = _tokenize(text, refusal)
    expression = _Parser(tokens, columns, refusal).parse()
    kind = _Kinds(columns, refusal).of(expression)
    if kind == "text" and wanted != "text":
        raise refusal(f"it gives a text, but a {'condition' if wanted == 'truth' else 'number'} is needed")
    return expression


def columns_of(expression: Expression) -> list[str]:
    """Names of the columns an expression reads, each once, in order."""
    match expression:
        case LogColumn(name):
            return [name]
        case Constant():
            return []
        case Operation(_, left, right):
            parts: tuple[Expression, ...] = (left, right)
        case Negation(operand) | Membership(operand):
            parts = (operand,)
        case Call(_, arguments):
            parts = arguments
    return list(dict.fromkeys(name for part in parts for name in columns_of(part)))


def kind_of(expression: Expression) -> ValueKind:
    """What a parsed expression gives."""
    match expression:
        case LogColumn():
            return "either"
        case Constant(value):
            return "text" if isinstance(value, str) else "number"
        case Negation() | Membership():
            return "truth"
        case Operation(operator):
            return "number" if operator in _ARITHMETIC else "truth"
        case Call("if", (_, first, second)):
            kinds = {kind_of(first), kind_of(second)}
            return kinds.pop() if len(kinds) == 1 else "text" if "text" in kinds else "number"
    return "number"


def _tokenize(text: str, refusal: Callable[[str], InputError]) -> list[_Token]:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refusal("it is not valid Unicode") from None
    if "\0" in text:
        raise refusal("it holds a NUL character")
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            wrong = text[position:].strip()[:1]
            raise refusal(f"unexpected '{wrong}'; {'equality is ==' if wrong == '=' else _EXPECTED}")
        number, word, quoted, plain, sign = match.groups()
        if number and not math.isfinite(float(number)):
            raise refusal(f"{number[:40]} is too large a number")
        if number or word or sign:
            tokens.append(_Token("number" if number else "word" if word else "sign", number or word or sign))
        else:
            tokens.append(_Token("text", plain) if quoted is None else _Token("quoted", quoted))
        position = match.end()
    if len(tokens) > _MOST_TOKENS:
        raise refusal(f"more than {_MOST_TOKENS} parts")
    return tokens


class _Parser:
    """Precedence climbing over the tokens of one expression."""

    def __init__(self, tokens: list[_Token], columns: Collection[str], refusal: Callable[[str], InputError]) -> None:
        self._tokens = tokens
        self._columns = columns
        self._refusal = refusal
        self._next = 0
        self._depth = 0

    def parse(self) -> Expression:
        expression = self._expression(1)
        if self._next < len(self._tokens):
            raise self._unexpected()
        return expression

    def _expression(self, least: int) -> Expression:
        """An expression whose binary operators outside parentheses have precedence `least` or higher."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._refusal(f"nested deeper than {_DEEPEST}")
        left = self._operand(least)
        is_compared = False
        while (operator := self._operator()) and _PRECEDENCE[operator] >= least:
            precedence = _PRECEDENCE[operator]
            if is_compared and precedence == _PRECEDENCE["in"]:
                raise self._unexpected()
            is_compared = precedence == _PRECEDENCE["in"]
            self._next += 1
            if operator in {"in", "not"}:
                if operator == "not":
                    self._expect("in")
                inside = Membership(left, self._values())
                left = Negation(inside) if operator == "not" else inside
            else:
                left = Operation(operator, left, self._expression(precedence + 1))
        self._depth -= 1
        return left

    def _operand(self, least: int) -> Expression:
        token = self._take()
        is_called = self._peek() == _Token("sign", "(")
        match token:
            case _Token("number", text):
                return Constant(float(text))
            case _Token("text", text):
                return Constant(text)
            case _Token("quoted", text):
                return LogColumn(text) if text in self._columns else Constant(text)
            case _Token("sign", "("):
                return self._closed()
            case _Token("sign", "+"):
                return self._expression(_SIGN)
            case _Token("sign", "-"):
                return Operation("-", Constant(0.0), self._expression(_SIGN))
            case _Token("word", "not") if least <= _NOT:
                return Negation(self._expression(_NOT))
            case _Token("word", text) if is_called and text not in _PRECEDENCE:
                return self._call(text)
            case _Token("word", text) if text not in _PRECEDENCE:
                if text not in self._columns:
                    near = did_you_mean(text, self._columns)
                    raise self._refusal(f"no column '{text[:60]}' in the log; {near}")
                return LogColumn(text)
        self._next -= 1
        raise self._unexpected()

    def _closed(self) -> Expression:
        expression = self._expression(1)
        if self._peek() is None:
            raise self._refusal("a '(' is not closed")
        self._expect(")")
        return expression

    def _call(self, function: str) -> Expression:
        if function not in _ARGUMENTS:
            raise self._refusal(f"no function '{function[:60]}'; {did_you_mean(function, _ARGUMENTS)}")
        arguments = self._listed(lambda: self._expression(1))
        fewest, most = _ARGUMENTS[function]
        if not fewest <= len(arguments) <= most:
            needed = f"{fewest}" if fewest == most else f"{fewest} or more"
            raise self._refusal(f"{function} takes {needed} arguments, not {len(arguments)}")
        return Call(function, arguments)

    def _values(self) -> tuple[Constant, ...]:
        """The values of `in`: numbers or texts, in parentheses. Here a text in double quotes is always a text."""
        values = self._listed(self._value)
        if len({type(value.value) for value in values}) > 1:
            raise self._refusal("numbers and texts in one list")
        return values

    def _value(self) -> Constant:
        token = self._take()
        sign = 1.0
        if token in {_Token("sign", "-"), _Token("sign", "+")}:
            sign = -1.0 if token.text == "-" else 1.0
            token = self._take()
            if token.kind != "number":
                self._next -= 1
                raise self._unexpected()
        if token.kind == "number":
            return Constant(sign * float(token.text) + 0.0)
        if token.kind not in {"text", "quoted"}:
            self._next -= 1
            raise self._unexpected()
        return Constant(token.text)

    def _listed(self, part: Callable[[], Part]) -> tuple[Part, ...]:
        self._expect("(")
        parts = [part()]
        while self._peek() == _Token("sign", ","):
            self._next += 1
            parts.append(part())
        if self._peek() is None:
            raise self._refusal("a '(' is not closed")
        self._expect(")")
        return tuple(parts)

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _operator(self) -> str | None:
        token = self._peek()
        is_operator = token is not None and token.kind in {"word", "sign"} and token.text in _PRECEDENCE
        return token.text if token is not None and is_operator else None

    def _take(self) -> _Token:
        token = self._peek()
        if token is None:
            raise self._refusal(f"it ends too early; {_EXPECTED}")
        self._next += 1
        return token

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.kind not in {"word", "sign"} or token.text != text:
            self._next -= 1
            raise self._unexpected()

    def _unexpected(self) -> InputError:
        return self._refusal(f"unexpected '{self._tokens[self._next].text[:60]}'; {_EXPECTED}")


class _Kinds:
    """Checks that no text stands where a number or a condition is needed."""

    def __init__(self, columns: Collection[str], refusal: Callable[[str], InputError]) -> None:
        self._columns = columns
        self._refusal = refusal

    def of(self, expression: Expression) -> ValueKind:
        match expression:
            case Operation(operator, left, right) if operator in COMPARISONS:
                self._compared(left, right)
            case Operation(_, left, right):
                self._not_text(left, right)
            case Negation(operand):
                self._not_text(operand)
            case Membership(operand, values):
                self._compared(operand, values[0])
            case Call("if", (condition, first, second)):
                self._not_text(condition)
                kinds = {self.of(first), self.of(second)}
                if "text" in kinds and not kinds <= {"text", "either"}:
                    raise self._refusal("if gives a text in one case and a number in the other")
            case Call(_, arguments):
                self._not_text(*arguments)
        return kind_of(expression)

    def _compared(self, left: Expression, right: Expression) -> None:
        kinds = {self.of(left), self.of(right)}
        if isinstance(left, Constant) and isinstance(right, Constant):
            hint = did_you_mean(str(left.value), self._columns)
            raise self._refusal(f"it compares two constants, {left.value!r:.60} and {right.value!r:.60}; {hint}")
        if "text" in kinds and not kinds <= {"text", "either"}:
            raise self._refusal("it compares a text with a number")

    def _not_text(self, *parts: Expression) -> None:
        for part in parts:
            if self.of(part) != "text":
                continue
            if isinstance(part, Constant):
                name = str(part.value)
                hint = did_you_mean(name, self._columns)
                raise self._refusal(f"no column '{name[:60]}' in the log, and a text is no number; {hint}")
            raise self._refusal("a text where a number or a condition is needed")
