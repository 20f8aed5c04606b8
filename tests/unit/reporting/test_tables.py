import re
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ecoc.reporting.document import Cell, Column, Document, Number, Section, Table
from ecoc.reporting.html import page
from ecoc.reporting.tables import best_cells, is_empty_table, latex, markdown, text, written

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
    tex = latex(evil)
    assert r"a\textbar{}b \textbackslash{} \_c\_ 50\% \& \#1 \{x\} \$y\$ \textasciitilde{} \textasciicircum{}" in tex
    for line in tex.splitlines()[1:]:
        bare = line.replace("\\\\", "").replace(r"\&", "").replace(r"\%", "").replace(r"\#", "")
        assert "%" not in bare and "#" not in bare
        assert bare.count("{") - bare.count("\\{") == bare.count("}") - bare.count("\\}")


def test_greek_and_minus_signs_become_commands() -> None:
    tex = latex(table([["α − β ≤ 2 × 10", Number(value=-1.0)]], [Column(name="γ"), Column(name="x", digits=0)]))
    assert r"$\alpha$ $-$ $\beta$ $\leq$ 2 $\times$ 10 & $-$1 \\" in tex
    assert "first-order" in latex(table([["first-order"]], [Column(name="x")])), "a hyphen stays one"


def test_a_row_that_begins_like_an_option_is_not_one() -> None:
    tex = latex(table([["[2pt]"], ["*"]], [Column(name="x")]))
    assert "{}[2pt]" in tex and "{}* " in tex


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
    cell = written(number, Column(name="x", digits=digits))
    assert (cell.value, cell.spread) == (value, spread)


def test_a_table_without_a_word_is_empty() -> None:
    assert is_empty_table(table([], NAMED))
    assert is_empty_table(table([["", None, None]], NAMED))
    assert not is_empty_table(SMALL)


CELLS = st.none() | st.text(max_size=20) | st.builds(Number, value=st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.tuples(st.lists(CELLS, min_size=3, max_size=3), st.text(max_size=5)), max_size=6), st.booleans())
def test_any_table_can_be_written(lines: list[tuple[list[Cell], str]], is_grouped: bool) -> None:
    rows = [row for row, _ in lines]
    any_table = table(rows, NAMED, [group for _, group in lines] if is_grouped else None)
    marked = markdown(any_table)
    assert len({line.replace("\\\\", "").replace("\\|", "").count("|") for line in marked.splitlines()[2:]}) == 1
    assert latex(any_table).count("\\\\\n") == 1 + len(rows) + marked.count("\n| *")
    assert text(any_table)


def test_a_table_is_aligned_grouped_and_marks_the_best_of_each_group() -> None:
    shown = Table(
        id="t",
        title="Quality",
        columns=[Column(name="method"), Column(name="HR@10", better="high", digits=2), Column(name="Δ", digits=1)],
        rows=[
            ["a", Number(value=0.5, sd=0.01), None],
            ["bbb", Number(value=0.25), Number(value=-0.25, low=-0.3, high=-0.1, mark="*")],
            ["c", Number(value=0.1), None],
            ["d", "not run", None],
        ],
        groups=["one", "one", "two", "two"],
        note="A note.",
    )
    assert text(shown).splitlines() == [
        "Quality",
        "    method         HR@10                   Δ",
        "  one",
        "    a       0.50 ± 0.01◂",
        "    bbb             0.25  -0.2 [-0.3, -0.1]*",
        "  two",
        "    c               0.10",
        "    d            not run",
        "  A note.",
    ]


def test_all_renderers_show_the_same_numbers_spreads_marks_and_best() -> None:
    expected = [
        ("0.50", "[-0.10, 0.60]", "", True), ("3.0", "", "", False), ("0.50", "± 0.02", "*", True),
        ("2.0", "", "", True), ("0.30", "", "", True), ("-0.40", "", "", False), ("12,345.6", "", "", False),
    ]  # fmt: skip
    whole = page(Document(title="D", sections=[Section(id="s", title="S", tables=[SMALL])])).replace("−", "-")
    cell = r'class="value( best)?">([-\d.,]+)(?:<sup>(.)</sup>)?</span>(?:<span[^>]*>([^<]*))?'
    on_page = [(value, spread, mark, bool(best)) for best, value, mark, spread in re.findall(cell, whole)]
    assert on_page == expected
    tex = latex(SMALL).replace("$-$", "-").replace(r"$\pm$", "±")
    for value, spread, mark, is_best in expected:
        assert f"{' '.join(filter(None, (value, spread)))}{mark}{'◂' * is_best}" in text(SMALL)
        star = rf"<sup>\{mark}</sup>" if mark else ""
        assert f"{f'**{value}**' if is_best else value}{star} {spread}".strip() in markdown(SMALL)
        star = rf"\textsuperscript{{{mark}}}" if mark else ""
        bold = rf"\textbf{{{value}}}" if is_best else value
        assert f"{bold}{star} {spread}".strip() in tex
