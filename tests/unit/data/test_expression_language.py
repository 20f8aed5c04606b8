"""The whole language of expressions: round trip of its text, and its value against a slow evaluator, row by row."""

import math
import re
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.data.engine import Engine
from ecoc.data.expression import (
    COMPARISONS,
    Call,
    Constant,
    Expression,
    LogColumn,
    Membership,
    Negation,
    Operation,
    columns_of,
    kind_of,
    parse,
)
from ecoc.data.expression_sql import number_sql, text_sql, truth_sql
from ecoc.data.sql_columns import SqlColumn, literal
from ecoc.errors import InputError

NAMES = ["a", "b.c", "if", "odd name"]
CELLS = [None, "", "0", "1", "-2.5", "3", "3.0", "1e2", "x", "X", " 7 ", "true", "False", "ä'", "nan", "1_0", "b"]
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")

# ------------------------------------------------------------------------------------------------ random trees

NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.5, 100.0, 7.0]).map(Constant)
TEXTS = st.sampled_from(["x", "X", "", "ä'", "true", "1", "and", "zz"]).map(Constant)
COLUMNS = st.sampled_from(NAMES).map(LogColumn)


def conditions(numeric: st.SearchStrategy[Expression], text: st.SearchStrategy[Expression]) -> st.SearchStrategy:
    compared = st.sampled_from(sorted(COMPARISONS))
    numbers = st.builds(Operation, compared, numeric.filter(lambda e: not isinstance(e, Constant)), numeric)
    texts = st.builds(Operation, compared, COLUMNS, text)
    inside = st.builds(Membership, COLUMNS, st.lists(NUMBERS, min_size=1, max_size=3).map(tuple))
    inside |= st.builds(Membership, COLUMNS, st.lists(TEXTS, min_size=1, max_size=3).map(tuple))
    base = numbers | texts | inside | COLUMNS
    return base | st.builds(Negation, base) | st.builds(Operation, st.sampled_from(["and", "or"]), base, base)


def numeric_layer(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return (
        st.builds(Operation, st.sampled_from("+-*/"), inner, inner)
        | st.builds(Call, st.sampled_from(["min", "max"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Call, st.sampled_from(["abs", "log1p"]), st.tuples(inner))
        | st.builds(Call, st.just("if"), st.tuples(conditions(inner, TEXTS), inner, inner))
        | conditions(inner, TEXTS)
    )


NUMERIC = st.recursive(NUMBERS | COLUMNS, numeric_layer, max_leaves=8)
TEXTUAL = st.recursive(
    TEXTS | COLUMNS,
    lambda inner: st.builds(Call, st.just("if"), st.tuples(conditions(NUMERIC, inner), inner, inner)),
    max_leaves=5,
)
CONDITIONS = conditions(NUMERIC, TEXTUAL)

# ------------------------------------------------------------------------------------------------ slow reference


def as_text(cell: str | None) -> str:
    return "" if cell is None else cell


def as_number(cell: str | None) -> float | None:
    return float(cell) if cell is not None and NUMBER.fullmatch(cell) and math.isfinite(float(cell)) else None


def number(e: Expression, row: dict[str, str | None]) -> float | None:
    if isinstance(e, Constant):
        return float(e.value)
    if isinstance(e, LogColumn):
        return as_number(row[e.name])
    if isinstance(e, Operation) and e.operator in "+-*/":
        x, y = number(e.left, row), number(e.right, row)
        if x is None or y is None or (e.operator == "/" and y == 0):
            return None
        return {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else 0.0}[e.operator]
    if isinstance(e, Call) and e.function == "if":
        return number(e.arguments[1 if truth(e.arguments[0], row) else 2], row)
    if isinstance(e, Call):
        values = [number(part, row) for part in e.arguments]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        if e.function == "log1p":
            return math.log(1 + known[0]) if known[0] > -1 else None
        return abs(known[0]) if e.function == "abs" else min(known) if e.function == "min" else max(known)
    known_truth = truth(e, row)
    return None if known_truth is None else float(known_truth)


def truth(e: Expression, row: dict[str, str | None]) -> bool | None:
    match e:
        case LogColumn(name):
            word = as_text(row[name]).strip(" ").lower()
            if word in {"true", "false"}:
                return word == "true"
        case Negation(operand):
            value = truth(operand, row)
            return None if value is None else not value
        case Operation("and" | "or" as operator, left, right):
            decides = operator == "or"
            values = {truth(left, row), truth(right, row)}
            return decides if decides in values else None if None in values else not decides
        case Operation(operator, left, right) if operator in COMPARISONS:
            kinds = {kind_of(left), kind_of(right)}
            if "text" in kinds or (kinds == {"either"} and operator in {"==", "!="}):
                return compared(operator, text(left, row).encode(), text(right, row).encode())
            return compared(operator, number(left, row), number(right, row))
        case Membership(operand, values):
            if isinstance(values[0].value, str):
                return text(operand, row) in [value.value for value in values]
            held = number(operand, row)
            return None if held is None else held in [constant.value for constant in values]
        case Call("if", (condition, first, second)):
            return truth(first if truth(condition, row) else second, row)
    plain = number(e, row)
    return None if plain is None else plain != 0


def compared(operator: str, left: object, right: object) -> bool | None:
    if left is None or right is None:
        return None
    values = {"==": left == right, "!=": left != right}
    if operator not in values:
        values |= {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}  # type: ignore[operator]
    return values[operator]


def text(e: Expression, row: dict[str, str | None]) -> str:
    match e:
        case Constant(value):
            return str(value)
        case LogColumn(name):
            return as_text(row[name])
        case Call("if", (condition, first, second)):
            return text(first if truth(condition, row) else second, row)
    raise AssertionError(e)


# ------------------------------------------------------------------------------------------------ text of a tree

LEVELS = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6} | dict.fromkeys(COMPARISONS, 4)


def written(e: Expression, least: int = 1) -> str:
    """The expression as a text, with parentheses only where they are needed."""
    match e:
        case Constant(str(value)):
            return f'"{value}"' if "'" in value else f"'{value}'"
        case Constant(value):
            return repr(value)
        case LogColumn(name):
            return name if name.replace(".", "").isidentifier() and name != "in" else f'"{name}"'
        case Call(function, arguments):
            return f"{function}({', '.join(map(written, arguments))})"
        case Negation(operand):
            return wrapped("not " + written(operand, 3), 3, least)
        case Membership(operand, values):
            return wrapped(f"{written(operand, 5)} in ({', '.join(map(written, values))})", 4, least)
        case Operation(operator, left, right):
            level = LEVELS[operator]
            first = written(left, level + (operator in COMPARISONS))
            return wrapped(f"{first} {operator} {written(right, level + 1)}", level, least)


def wrapped(text: str, level: int, least: int) -> str:
    return f"({text})" if level < least else text


@cache
def engine() -> Engine:
    return Engine()


def evaluated(sql: str, rows: Sequence[dict[str, str | None]]) -> list[object]:
    cells = [[literal(row[name] or "") if row[name] is not None else "NULL" for name in NAMES] for row in rows]
    listed = ", ".join(f"({place}, {', '.join(row)})" for place, row in enumerate(cells))
    query = f"SELECT {sql} FROM (VALUES {listed}) AS given(place, c0, c1, c2, c3) ORDER BY place"
    return [value for (value,) in engine().run(query)]


ROWS = st.lists(st.fixed_dictionaries({name: st.sampled_from(CELLS) for name in NAMES}), min_size=1, max_size=6)


def column(name: str) -> SqlColumn:
    return SqlColumn(f"c{NAMES.index(name)}")


@settings(max_examples=250, deadline=None)
@given(NUMERIC, ROWS)
def test_numbers_are_those_of_the_slow_evaluator(e: Expression, rows: list[dict[str, str | None]]) -> None:
    parsed = parse(written(e), NAMES)
    assert parsed == e, "round trip"
    for value, row in zip(evaluated(number_sql(parsed, column), rows), rows, strict=True):
        expected = number(e, row)
        if expected is None or value is None:
            assert value is expected is None, (written(e), row)
        elif math.isfinite(expected):
            assert value == pytest.approx(expected, rel=1e-12, abs=1e-12), (written(e), row)


@settings(max_examples=250, deadline=None)
@given(CONDITIONS, ROWS)
def test_conditions_are_those_of_the_slow_evaluator(e: Expression, rows: list[dict[str, str | None]]) -> None:
    parsed = parse(written(e), NAMES, "--where", "truth")
    assert parsed == e, "round trip"
    assert evaluated(truth_sql(parsed, column), rows) == [truth(e, row) for row in rows], written(e)


@settings(max_examples=150, deadline=None)
@given(TEXTUAL, ROWS)
def test_texts_are_those_of_the_slow_evaluator(e: Expression, rows: list[dict[str, str | None]]) -> None:
    parsed = parse(written(e), NAMES, "--feedback", "text")
    assert parsed == e, "round trip"
    assert evaluated(text_sql(parsed, column), rows) == [text(e, row) for row in rows], written(e)


PIECES = ["a", "b.c", "if", "min", "in", "not", "and", "or", "(", ")", ",", "==", "=", "<", ">=", "+", "-", "*", "/"]
PIECES += ["1", "2.5", "'x'", '"x"', '"odd name"', "'", '"', "\0", "\udcff", "log1p", "#", "\n", "1e999"]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_is_an_expression_or_an_input_error(given_text: str) -> None:
    for wanted in ("number", "truth", "text"):
        try:
            parsed = parse(given_text, NAMES, "--where", wanted)
        except InputError as error:
            assert str(error).startswith("--where")
            assert "\n" not in str(error)
        else:
            assert set(columns_of(parsed)) <= set(NAMES)
            write = {"number": number_sql, "truth": truth_sql, "text": text_sql}[wanted]
            assert len(evaluated(write(parsed, column), [dict.fromkeys(NAMES, "1")])) == 1


@pytest.mark.parametrize(
    ("given_text", "message"),
    [
        ("a = 1", "equality is =="),
        ("'x' == 'y'", "compares two constants"),
        ('"A" == "x"', "compares two constants, 'A' and 'x'; did you mean 'a'?"),
        ("a == 1 == 2", "unexpected '=='"),
        ("a in (1, 'x')", "numbers and texts in one list"),
        ("a in (b.c)", "unexpected 'b.c'"),
        ("a in ()", "unexpected '\\)'"),
        ("a in (1", "is not closed"),
        ("a not b.c", "unexpected 'b.c'"),
        ("1 + not a", "unexpected 'not'"),
        ("a + 1 == 'x'", "compares a text with a number"),
        ("if(a, 'x', 1) == 'x'", "a text in one case and a number in the other"),
        ("if(a, 1)", "if takes 3 arguments, not 2"),
        ("min(a)", "min takes 2 or more arguments, not 1"),
        ("abs('x') > 1", "no column 'x' in the log, and a text is no number"),
        ("a and if(a, 'x', 'y')", "a text where a number or a condition is needed"),
        ("if(a, 'x', 'y')", "gives a text, but a condition is needed"),
        ("maximum(a, 1) > 0", "no function 'maximum'; did you mean 'max'"),
        ("a > 1\0", "NUL"),
        ("a == '\udcff'", "not valid Unicode"),
        ("not " * 60 + "a", "nested deeper"),
        ("if(" * 55 + "a", "nested deeper"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(given_text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(given_text, NAMES, "--where", "truth")


def test_the_deepest_and_longest_expressions_can_be_evaluated() -> None:
    deep = "if(a, 1, " * 25 + "2" + ")" * 25
    nested = "min(" * 35 + "a" + ", 2)" * 35
    long = " or ".join(["a"] * 100)
    divided, within = "1/(" * 20 + "a" + ")" * 20, "(" * 30 + "a" + " in (1))" * 30
    for given_text in (deep, nested, long, divided, within, "log1p(" * 45 + "a" + ")" * 45, "-" * 45 + "a"):
        sql = number_sql(parse(given_text, NAMES), column)
        assert len(sql) < 400 * len(given_text)
        assert evaluated(sql, [dict.fromkeys(NAMES, "1")])[0] is not None
