"""Expressions of `expression` as SQL, made of our own operators, literals and the SQL of each column.

A value that is not known (a column that is blank or no number, a division by zero, a logarithm of 0 or less) is NULL.
What is computed from it is NULL too, but `if` takes an unknown condition as false. Each part of the tree is written
once, so the SQL is never much longer than the expression.
"""

from collections.abc import Callable

from ecoc.data.expression import (
    COMPARISONS,
    Call,
    Constant,
    Expression,
    LogColumn,
    Membership,
    Negation,
    Operation,
    kind_of,
)
from ecoc.data.sql_columns import SqlColumn, literal

ColumnOf = Callable[[str], SqlColumn]


def number_sql(expression: Expression, column: ColumnOf) -> str:
    """The expression as a DOUBLE; true is 1 and false is 0."""
    match expression:
        case Constant(value):
            return f"{value!r}::DOUBLE"
        case LogColumn(name):
            return column(name).number
        case Operation("+" | "-" | "*" | "/" as operator, left, right):
            second = number_sql(right, column)
            if operator == "/":
                is_short = isinstance(right, Constant | LogColumn)
                second = f"nullif({second}, 0)" if is_short else _applied(second, "CASE WHEN v <> 0 THEN v END")
            return f"({number_sql(left, column)} {operator} {second})"
        case Call("if", (condition, first, second)):
            return _choice(condition, number_sql(first, column), number_sql(second, column), column)
        case Call("min" | "max" as function, arguments):
            order = "<=" if function == "min" else ">="
            listed = ", ".join(number_sql(part, column) for part in arguments)
            # least and greatest would pass over NULL
            return f"list_reduce([{listed}], lambda x, y: CASE WHEN x {order} y THEN x WHEN y {order} x THEN y END)"
        case Call("abs", (operand,)):
            return f"abs({number_sql(operand, column)})"
        case Call("log1p", (operand,)):
            return _applied(number_sql(operand, column), "CASE WHEN v > -1 THEN ln(1 + v) END")
    return f"CAST({truth_sql(expression, column)} AS DOUBLE)"


def truth_sql(expression: Expression, column: ColumnOf) -> str:
    """The expression as a BOOLEAN: a number is true unless it is 0; a column may also hold `true` and `false`."""
    match expression:
        case Operation("and" | "or" as operator, left, right):
            return f"({truth_sql(left, column)} {operator} {truth_sql(right, column)})"
        case Operation(operator, left, right) if operator in COMPARISONS:
            return _comparison(operator, left, right, column)
        case Negation(operand):
            return f"(NOT {truth_sql(operand, column)})"
        case Membership(operand, values):
            is_text = isinstance(values[0].value, str)
            write = text_sql if is_text else number_sql
            return f"({write(operand, column)} IN ({', '.join(write(value, column) for value in values)}))"
        case LogColumn(name):
            word = f"lower(trim({column(name).text}))"
            number = f"{column(name).number} <> 0"
            return f"(CASE WHEN {word} = 'true' THEN true WHEN {word} = 'false' THEN false ELSE {number} END)"
        case Call("if", (condition, first, second)):
            return _choice(condition, truth_sql(first, column), truth_sql(second, column), column)
    return f"({number_sql(expression, column)} <> 0)"


def text_sql(expression: Expression, column: ColumnOf) -> str:
    """The expression as a VARCHAR that is never NULL; a whole number has no decimal point."""
    match expression:
        case Constant(str(value)):
            return literal(value)
        case LogColumn(name):
            return f"coalesce({column(name).text}, '')"
        case Call("if", (condition, first, second)) if kind_of(expression) in {"text", "either"}:
            return _choice(condition, text_sql(first, column), text_sql(second, column), column)
    return f"coalesce({_applied(number_sql(expression, column), SqlColumn('v', 'number').text)}, '')"


def _applied(value: str, function: str) -> str:
    """`function`, SQL over the name v, of a value. The value stands there once: nested copies would double each time.

    The engine itself copies the operand of nullif, so that is for short operands only.
    """
    return f"list_transform([{value}], lambda v: {function})[1]"


def _choice(condition: Expression, first: str, second: str, column: ColumnOf) -> str:
    return f"(CASE WHEN {truth_sql(condition, column)} THEN {first} ELSE {second} END)"


def _comparison(operator: str, left: Expression, right: Expression, column: ColumnOf) -> str:
    """Two columns are equal if their texts are; less and greater compare them as numbers."""
    kinds = {kind_of(left), kind_of(right)}
    is_text = "text" in kinds or (kinds == {"either"} and operator in {"==", "!="})
    write = text_sql if is_text else number_sql
    sign = {"==": "=", "!=": "<>"}.get(operator, operator)
    return f"({write(left, column)} {sign} {write(right, column)})"
