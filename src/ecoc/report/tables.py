"""Tables as text: Markdown and LaTeX, and what they share with the page: which cells are best, how a number reads."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from ecoc.report.document import Cell, Column, Number, Table

_LONGEST = 1e15  # from here on digits after the point mean nothing
_BETTER = {"high": "↑", "low": "↓", "none": ""}


@dataclass(frozen=True)
class Parts:
    """A number in parts, as each format puts them together."""

    value: str
    spread: str
    mark: str


def number_parts(number: Number, column: Column) -> Parts:
    """A number with the column's digits; its spread is `± sd`, `[low, high]` or both."""
    spread = [] if number.sd is None else [f"± {_decimal(number.sd, column.digits)}"]
    if number.low is not None or number.high is not None:
        ends = ("?" if end is None else _decimal(end, column.digits) for end in (number.low, number.high))
        spread.append(f"[{', '.join(ends)}]")
    return Parts(_decimal(number.value, column.digits), " ".join(spread), number.mark.strip())


def _decimal(value: float, digits: int) -> str:
    if abs(value) >= _LONGEST:
        return f"{value:.4g}"
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def heading(column: Column) -> str:
    """A column's name, unit and which way is better."""
    unit = f" ({column.unit})" if column.unit else ""
    return f"{column.name}{unit} {_BETTER[column.better]}".strip()


def cell_of(row: list[Cell], place: int) -> Cell:
    """A cell; none where the row is too short."""
    return row[place] if place < len(row) else None


def is_numeric(table: Table, place: int) -> bool:
    """Whether a column holds numbers, and is set flush right."""
    cells = [cell_of(row, place) for row in table.rows]
    return any(isinstance(cell, Number) for cell in cells)


def is_empty_table(table: Table) -> bool:
    """Whether no cell says anything."""
    return not any(isinstance(cell, Number) or cell for row in table.rows for cell in row)


def blocks(table: Table) -> Iterator[tuple[str, list[int]]]:
    """Neighbouring rows of one group: its name and their indices."""
    for name, rows in groupby(range(len(table.rows)), key=lambda row: _group(table, row)):
        yield name, list(rows)


def _group(table: Table, row: int) -> str:
    return table.groups[row] if row < len(table.groups) else ""


def best_cells(table: Table) -> set[tuple[int, int]]:
    """(row, column) of the best numbers of each group, all ties included.

    Numbers are compared as they are shown: two that read the same are both best. A number that is alone in its group
    and column is compared with nothing and so is not best.
    """
    best: set[tuple[int, int]] = set()
    for place, column in enumerate(table.columns):
        if column.better == "none":
            continue
        sign = 1 if column.better == "high" else -1
        by_group: dict[str, list[tuple[float, int]]] = {}
        for row, cells in enumerate(table.rows):
            cell = cell_of(cells, place)
            if isinstance(cell, Number) and cell.is_compared:
                by_group.setdefault(_group(table, row), []).append((sign * round(cell.value, column.digits), row))
        for found in by_group.values():
            top = max(found)[0]
            best |= {(row, place) for value, row in found if value == top and len(found) > 1}
    return best


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, its title above and its note below."""
    columns = range(len(table.columns))
    rule = ["---:" if is_numeric(table, place) else ":---" for place in columns]
    lines = [f"**{_plain_markdown(table.title)}**", ""] if table.title else []
    lines += [_pipes([_plain_markdown(heading(column)) for column in table.columns]), _pipes(rule)]
    best = best_cells(table)
    for group, rows in blocks(table):
        if group:
            lines.append(_pipes([f"*{_plain_markdown(group)}*", *[""] * (len(table.columns) - 1)]))
        for row in rows:
            cells = [(cell_of(table.rows[row], place), table.columns[place], (row, place) in best) for place in columns]
            lines.append(_pipes([_markdown_cell(*cell) for cell in cells]))
    if table.note:
        lines += ["", _plain_markdown(table.note)]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell, column: Column, is_best: bool) -> str:
    if not isinstance(cell, Number):
        return _plain_markdown(cell or "")
    written = number_parts(cell, column)
    value = f"**{written.value}**" if is_best else written.value
    mark = f"<sup>{_plain_markdown(written.mark)}</sup>" if written.mark else ""
    return f"{value}{mark} {written.spread}".strip()


def _plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~$#!])", r"\\\1", text)


def latex(table: Table) -> str:
    r"""The table in LaTeX with booktabs, for a `\input`."""
    columns = range(len(table.columns))
    width = len(table.columns)
    align = "".join("r" if is_numeric(table, place) else "l" for place in columns)
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_plain_latex(table.title)}}}", rf"\label{{tab:{re.sub('[^A-Za-z0-9:.-]', '-', table.id)}}}"]
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines.append(_ampersands([_plain_latex(heading(column)) for column in table.columns]))
    best = best_cells(table)
    for group, rows in blocks(table):
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_plain_latex(group)}}}}} \\")
        for row in rows:
            cells = [(cell_of(table.rows[row], place), table.columns[place], (row, place) in best) for place in columns]
            lines.append(_ampersands([_latex_cell(*cell) for cell in cells]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.note:
        lines += ["", rf"\smallskip{{\footnotesize {_plain_latex(table.note)}}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _ampersands(cells: list[str]) -> str:
    text = " & ".join(cells) + r" \\"
    return f"{{}}{text}" if text.startswith(("[", "*")) else text  # after the \\ of the row above they would be options


def _latex_cell(cell: Cell, column: Column, is_best: bool) -> str:
    if not isinstance(cell, Number):
        return _plain_latex(cell or "")
    written = number_parts(cell, column)
    value = _plain_latex(written.value)
    value = rf"\textbf{{{value}}}" if is_best else value
    mark = rf"\textsuperscript{{{_plain_latex(written.mark)}}}" if written.mark else ""
    return f"{value}{mark} {_plain_latex(written.spread)}".strip()


_GREEK = (  # from U+03B1 on; LaTeX has no command for two of them
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi . pi rho . sigma tau upsilon phi chi psi"
    " omega"
)
_LATEX = {
    **{chr(0x3B1 + place): rf"$\{name}$" for place, name in enumerate(_GREEK.split()) if name != "."},
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", '"': "''", "…": r"\ldots{}"},
    **{"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "→": r"$\to$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "∞": r"$\infty$", "√": r"$\surd$", "·": r"$\cdot$"},
    **{"†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "²": r"$^{2}$", "³": r"$^{3}$", "°": r"$^{\circ}$"},
}
_LATEX_NUMBER = re.compile(r"(?<![\w.])-(?=\d)")


def _plain_latex(text: str) -> str:
    """Text that LaTeX sets as it is, on one line; a hyphen before a number is a minus."""
    text = _LATEX_NUMBER.sub("−", " ".join(text.split()))
    return "".join(_LATEX.get(letter, letter) for letter in text if letter.isprintable())
