import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from data_case import prepare_text
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoc.data.engine import Engine
from ecoc.data.expression import columns_of, parse
from ecoc.data.expression_sql import number_sql
from ecoc.data.sql_columns import SqlColumn
from ecoc.errors import InputError

VALUES = {"price": 2.5, "quantity": 3.0, "_x1": -7.0, "a.b": 0.125, "odd name (€)": 11.0, "zero": 0.0}


@dataclass(frozen=True)
class Tree:
    """An expression built independently of the parser: its text, and its value by Python's own arithmetic."""

    text: str
    value: float | None  # None: division by zero
    binds: int  # 0 sum, 1 product, 2 factor


def _leaf(name: str) -> Tree:
    return Tree(name if name.replace(".", "").isidentifier() else f'"{name}"', VALUES[name], 2)


def _number(value: float) -> Tree:
    return Tree(repr(value), value, 2)


def _wrapped(tree: Tree, least: int, always: bool) -> str:
    return f"({tree.text})" if always or tree.binds < least else tree.text


def _apply(operator: str, left: float | None, right: float | None) -> float | None:
    if left is None or right is None or (operator == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "*": left * right, "/": left / right if right else 0.0}[operator]


def _binary(operator: str, left: Tree, right: Tree, always: bool, space: str) -> Tree:
    level = 0 if operator in "+-" else 1
    text = _wrapped(left, level, always) + space + operator + space + _wrapped(right, level + 1, always)
    return Tree(text, _apply(operator, left.value, right.value), level)


def _signed(sign: str, inner: Tree) -> Tree:
    value = None if inner.value is None else 0.0 - inner.value if sign == "-" else inner.value
    return Tree(sign + _wrapped(inner, 2, False), value, 2)


LEAVES = st.sampled_from(sorted(VALUES)).map(_leaf) | st.floats(0, 100, allow_nan=False).map(_number)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(_binary, st.sampled_from("+-*/"), inner, inner, st.booleans(), st.sampled_from(["", " ", "\t"]))
        | st.builds(_signed, st.sampled_from("+-"), inner)
    ),
    max_leaves=12,
)


def evaluated(text: str) -> float | None:
    """Parse and run an expression over one row of VALUES."""
    names = list(VALUES)
    sql = number_sql(parse(text, names), lambda name: SqlColumn(f"c{names.index(name)}", "number"))
    row = ", ".join(f"{value!r}::DOUBLE AS c{k}" for k, value in enumerate(VALUES.values()))
    value: float | None = engine().scalar(f"SELECT {sql} FROM (SELECT {row})")
    return value


@cache
def engine() -> Engine:
    return Engine()


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_any_expression_is_worth_what_python_says(tree: Tree) -> None:
    found = evaluated(tree.text)
    if tree.value is None:
        assert found is None, tree.text
    else:
        assert found is not None, tree.text
        assert found == tree.value or math.isclose(found, tree.value, rel_tol=1e-12) or not math.isfinite(tree.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1+2*3", 7.0),
        ("(1+2)*3", 9.0),
        ("10-4-3", 3.0),
        ("24/4/3", 2.0),
        ("2*-3", -6.0),
        ("--3", 3.0),
        ("-price*2", -5.0),
        ("-(price+1)*2", -7.0),
        ("+price", 2.5),
        ("1/zero", None),
        ("price/(quantity-3)", None),
        ("0*(1/zero)", None),
        ('"odd name (€)"+1', 12.0),
        ('"price" * a.b', 0.3125),
        ("odd name (€)", 11.0),
        (".5 + 1.", 1.5),
        ("1e3", 1000.0),
        (".5e3", 500.0),
    ],
)
def test_precedence_signs_parentheses_and_quoted_names(text: str, expected: float | None) -> None:
    assert evaluated(text) == expected


@pytest.mark.parametrize("name", ["class", "None", "lambda", "x0", "ﬁ", "a..b", "back\\slash"])
def test_a_column_may_have_a_name_that_python_would_read_differently(name: str) -> None:
    text = f'"{name}"' if "\\" in name else name
    assert columns_of(parse(f"{text}*2 - ({text}+1)", [name])) == [name]


def test_columns_are_listed_once_in_order() -> None:
    assert columns_of(parse("quantity*price - (quantity+zero)*2", list(VALUES))) == ["quantity", "price", "zero"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantty*price", r"no column 'quantty'.*did you mean 'quantity'\?"),
        ('"Price"*2', r"did you mean 'price'\?"),
        ("price*", "ends too early"),
        ("", "ends too early"),
        ("(price", r"'\(' is not closed"),
        ("price)", r"unexpected '\)'"),
        ("price price", "unexpected 'price'"),
        ("(price price)", "unexpected 'price'"),
        ("(1)(2)", r"unexpected '\('"),
        ("()", r"unexpected '\)'"),
        ("price # 2", "unexpected '#'"),
        ("1_000", "unexpected '_000'"),
        ("0x10", "unexpected 'x10'"),
        ("2price", "unexpected 'price'"),
        ("price; DROP TABLE staged", "unexpected ';'"),
        ("price ** 2", r"unexpected '\*'"),
        ("price % 2", "unexpected '%'"),
        ('"price', "unexpected '\"'"),
        ("sqrt(price)", "no function 'sqrt'"),
        ("(" * 60 + "price" + ")" * 60, "nested deeper"),
        ("-" * 60 + "price", "nested deeper"),
        ("price+" * 400, "longer than 1000"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text, list(VALUES))


HEADER = "u,i,t,price,quantity\n"


def test_rewards_are_worked_out_row_by_row(tmp_path: Path) -> None:
    log = HEADER + "a,x,1,2.5,4\na,y,2,1,-3\na,x,3,0,7\na,x,4,1,1\n"
    data = prepare_text(tmp_path, log, reward_column="quantity*price - 1", split="leave-one-out")
    assert data.rewards.tolist() == [9.0, -4.0, -1.0, 0.0]
    assert data.manifest.feedback.rewards is None


@pytest.mark.parametrize("row", ["1,0", "x,1", ",1", "1,nan", "1e400,1", "1,1e-300", "1_0,1"])
def test_no_finite_reward_is_a_bad_reward(row: str, tmp_path: Path) -> None:
    log = HEADER + f"a,x,1,6,2\na,y,2,{row}\na,x,3,6,3\na,x,4,1,1\n"
    with pytest.raises(InputError, match=r"log.csv:3: no finite reward from .*price="):
        prepare_text(tmp_path / "fail", log, reward_column="price/quantity", split="leave-one-out")
    data = prepare_text(tmp_path, log, reward_column="price/quantity", split="leave-one-out", bad_rows="skip")
    assert data.manifest.dropped == {"bad_reward": 1}
    assert data.rewards.tolist() == [3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    "text", ["price*1e400", "+".join("t" * 500), "+".join("1" * 500), "/".join("t" * 500)], ids=["inf", "t", "1", "/"]
)
def test_an_expression_within_the_limits_works_or_is_refused_in_words(text: str, tmp_path: Path) -> None:
    log = HEADER + "a,x,1,1,1\na,x,1,1,1\n"
    try:
        data = prepare_text(tmp_path, log, reward_column=text, split="leave-one-out")
    except InputError as error:
        assert "reward" in str(error)
    else:
        assert data.rewards.tolist() == [float(text.count("+") + 1)] * 2
