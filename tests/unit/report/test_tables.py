from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ecoc.report.document import Cell, Column, Number, Table
from ecoc.report.tables import best_cells, is_empty_table, latex, markdown, number_parts

EVIL = "a|b \\ _c_ 50% & #1 {x} $y$ ~ ^ <b> *d* `e` [f](g)\nsecond"


def table(rows: list[list[Cell]], columns: list[Column], groups: list[str] | None = None, note: str = "") -> Table:
    return Table(id="t 1", title="Title", columns=columns, rows=rows, groups=groups or [], note=note)


def numbers(*values: float | None) -> list[Cell]:
    return [None if value is None else Number(value=value) for value in values]


NAMED = [Column(name="method"), Column(name="NDCG", better="high", digits=2), Column(name="ms", better="low", digits=1)]
SMALL = table(
    [
        ["one_a", Number(value=0.504, low=-0.1, high=0.6), Number(value=3.0)],
        ["b", Number(value=0.496, sd=0.02, mark="*"), Number(value=2.04)],
        ["c", Number(value=0.3), None],
        ["d", Number(value=-0.4), Number(value=12345.6)],
    ],
    NAMED,
    ["g & h", "g & h", "", ""],
    note="95 % intervals",
)


def test_the_best_of_each_group_and_column_is_found_the_way_its_column_says() -> None:
    assert best_cells(SMALL) == {(0, 1), (1, 1), (1, 2), (2, 1)}


def test_numbers_that_read_the_same_are_both_best() -> None:
    column = [Column(name="x", better="high", digits=2)]
    assert best_cells(table([numbers(0.501), numbers(0.499), numbers(0.49)], column)) == {(0, 0), (1, 0)}
    assert best_cells(table([numbers(0.501), numbers(0.489)], column)) == {(0, 0)}


def test_a_lonely_number_and_a_column_without_a_direction_have_no_best() -> None:
    assert best_cells(table([numbers(1.0), ["text"], [None]], [Column(name="x", better="high")])) == set()
    assert best_cells(table([numbers(1.0), numbers(2.0)], [Column(name="x")])) == set()


def test_groups_are_compared_by_name_even_if_rows_are_apart() -> None:
    column = [Column(name="x", better="high")]
    found = best_cells(table([numbers(1.0), numbers(9.0), numbers(2.0), numbers(8.0)], column, ["a", "b", "a", "b"]))
    assert found == {(2, 0), (1, 0)}


def test_rows_and_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValidationError, match="every row"):
        table([["a"], ["b", Number(value=1.0)]], NAMED)
    with pytest.raises(ValidationError, match="groups"):
        table([["b", Number(value=1.0), None]], NAMED, ["g", "h"])


def test_markdown_reads_as_written_here() -> None:
    assert markdown(SMALL) == dedent("""\
        **Title**

        | method | NDCG ↑ | ms ↓ |
        | :--- | ---: | ---: |
        | *g &amp; h* |  |  |
        | one\\_a | **0.50** [-0.10, 0.60] | 3.0 |
        | b | **0.50**<sup>\\*</sup> ± 0.02 | **2.0** |
        | c | **0.30** |  |
        | d | -0.40 | 12,345.6 |

        95 % intervals
        """)


def test_latex_reads_as_written_here() -> None:
    assert latex(SMALL) == dedent(r"""
        % needs \usepackage{booktabs}
        \begin{table}
        \centering
        \caption{Title}
        \label{tab:t-1}
        \begin{tabular}{lrr}
        \toprule
        method & NDCG $\uparrow$ & ms $\downarrow$ \\
        \midrule
        \multicolumn{3}{l}{\textit{g \& h}} \\
        one\_a & \textbf{0.50} [$-$0.10, 0.60] & 3.0 \\
        b & \textbf{0.50}\textsuperscript{*} $\pm$ 0.02 & \textbf{2.0} \\
        \midrule
        c & \textbf{0.30} &  \\
        d & $-$0.40 & 12,345.6 \\
        \bottomrule
        \end{tabular}

        \smallskip{\footnotesize 95 \% intervals}
        \end{table}
        """).removeprefix("\n")


def test_signs_of_either_language_stay_signs() -> None:
    evil = table([[EVIL, Number(value=1.0, mark=EVIL)]], [Column(name=EVIL, unit=EVIL), Column(name="x")], [EVIL], EVIL)
    lines = [line for line in markdown(evil).splitlines() if line.startswith("|")]
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3, line
    assert "<b>" not in markdown(evil)
    text = latex(evil)
    assert r"a\textbar{}b \textbackslash{} \_c\_ 50\% \& \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{}" in text
    for line in text.splitlines()[1:]:
        bare = line.replace("\\\\", "").replace(r"\&", "").replace(r"\%", "").replace(r"\#", "")
        assert "%" not in bare and "#" not in bare
        assert bare.count("{") - bare.count("\\{") == bare.count("}") - bare.count("\\}")


def test_greek_and_minus_signs_become_commands() -> None:
    text = latex(table([["α − β ≤ 2 × 10", Number(value=-1.0)]], [Column(name="γ"), Column(name="x", digits=0)]))
    assert r"$\alpha$ $-$ $\beta$ $\leq$ 2 $\times$ 10 & $-$1 \\" in text
    assert "first-order" in latex(table([["first-order"]], [Column(name="x")])), "a hyphen stays one"


def test_a_row_that_begins_like_an_option_is_not_one() -> None:
    text = latex(table([["[2pt]"], ["*"]], [Column(name="x")]))
    assert "{}[2pt]" in text and "{}* " in text


@pytest.mark.parametrize(
    ("number", "digits", "value", "spread"),
    [
        (Number(value=0.12345), 4, "0.1235", ""),
        (Number(value=-0.00001), 2, "0.00", ""),
        (Number(value=1234567), 0, "1,234,567", ""),
        (Number(value=1e300), 4, "1e+300", ""),
        (Number(value=1, low=0.5, high=1.5, sd=0.1), 1, "1.0", "± 0.1 [0.5, 1.5]"),
        (Number(value=1, low=0.5), 1, "1.0", "[0.5, ?]"),
    ],
)
def test_a_number_reads_with_its_columns_digits(number: Number, digits: int, value: str, spread: str) -> None:
    written = number_parts(number, Column(name="x", digits=digits))
    assert (written.value, written.spread) == (value, spread)


def test_a_table_without_a_word_is_empty() -> None:
    assert is_empty_table(table([], NAMED))
    assert is_empty_table(table([["", None, None]], NAMED))
    assert not is_empty_table(SMALL)


CELLS = st.none() | st.text(max_size=20) | st.builds(Number, value=st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.tuples(st.lists(CELLS, min_size=3, max_size=3), st.text(max_size=5)), max_size=6), st.booleans())
def test_any_table_can_be_written(lines: list[tuple[list[Cell], str]], is_grouped: bool) -> None:
    rows = [row for row, _ in lines]
    any_table = table(rows, NAMED, [group for _, group in lines] if is_grouped else None)
    text = markdown(any_table)
    assert len({line.replace("\\\\", "").replace("\\|", "").count("|") for line in text.splitlines()[2:]}) == 1
    assert latex(any_table).count("\\\\\n") == 1 + len(rows) + text.count("\n| *")
