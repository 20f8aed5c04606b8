"""Tables as text for a terminal, Markdown and LaTeX; a page uses the same written cells."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ecoc.reporting.document import Cell, Column, Number, Table
from ecoc.storage.trusted import printable

_LONGEST = 1e15  # from here on digits after the point mean nothing
_WIDEST = 60  # letters of a text on a terminal
_BETTER = {"high": "↑", "low": "↓", "none": ""}


@dataclass(frozen=True)
class Written:
    """A cell in words, in parts that each format puts together."""

    value: str
    spread: str = ""  # `± sd`, `[low, high]` or both
    mark: str = ""
    is_best: bool = False
    is_number: bool = False


def written(cell: Cell, column: Column, is_best: bool = False) -> Written:
    """A cell with the column's digits."""
    if not isinstance(cell, Number):
        return Written(cell or "")
    spread = [] if cell.sd is None else [f"± {_decimal(cell.sd, column.digits)}"]
    if cell.low is not None or cell.high is not None:
        ends = ("?" if end is None else _decimal(end, column.digits) for end in (cell.low, cell.high))
        spread.append(f"[{', '.join(ends)}]")
    return Written(_decimal(cell.value, column.digits), " ".join(spread), cell.mark.strip(), is_best, is_number=True)


def _decimal(value: float, digits: int) -> str:
    if abs(value) >= _LONGEST:
        return f"{value:.4g}"
    text = f"{value:,.{digits}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def blocks(table: Table) -> Iterator[tuple[str, list[list[Written]]]]:
    """Neighbouring rows of one group: its name and their cells."""
    best = best_cells(table)
    for name, places in groupby(range(len(table.rows)), key=lambda row: _group(table, row)):
        yield (
            name,
            [
                [written(cell, table.columns[at], (row, at) in best) for at, cell in enumerate(table.rows[row])]
                for row in places
            ],
        )


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
            cell = cells[place]
            if isinstance(cell, Number) and cell.is_compared:
                by_group.setdefault(_group(table, row), []).append((sign * round(cell.value, column.digits), row))
        for values in by_group.values():
            top = max(values)[0]
            best |= {(row, place) for value, row in values if value == top and len(values) > 1}
    return best


def _group(table: Table, row: int) -> str:
    return table.groups[row] if table.groups else ""


def heading(column: Column) -> str:
    """A column's name, unit and which way is better."""
    unit = f" ({column.unit})" if column.unit else ""
    return f"{column.name}{unit} {_BETTER[column.better]}".strip()


def is_numeric(table: Table, place: int) -> bool:
    """Whether a column holds numbers, and is set flush right."""
    return any(isinstance(row[place], Number) for row in table.rows)


def is_empty_table(table: Table) -> bool:
    """Whether no cell says anything."""
    return not any(isinstance(cell, Number) or cell for row in table.rows for cell in row)


def text(table: Table) -> str:
    """The table for a terminal, its columns aligned; ◂ follows the best numbers of a group."""
    heads = [printable(column.name + (f", {column.unit}" if column.unit else "")) for column in table.columns]
    groups = [(name, [[_text_cell(cell) for cell in row] for row in rows]) for name, rows in blocks(table)]
    body = [row for _, rows in groups for row in rows]
    widths = [max(len(line[place]) for line in [heads, *body]) for place in range(len(heads))]
    is_right = [is_numeric(table, place) for place in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_right, strict=True)
        )
        return ("    " + "  ".join(padded)).rstrip()

    lines = [printable(table.title)] * bool(table.title) + [line(heads)]
    for name, rows in groups:
        lines += [f"  {printable(name)}"] * bool(name) + [line(row) for row in rows]
    return "\n".join([*lines, *([f"  {printable(table.note)}"] if table.note else [])])


def _text_cell(cell: Written) -> str:
    if not cell.is_number:
        value = printable(cell.value)
        return value if len(value) <= _WIDEST else value[: _WIDEST - 1] + "…"
    return f"{' '.join(filter(None, (cell.value, cell.spread)))}{cell.mark}{'◂' if cell.is_best else ''}"


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, its title above and its note below."""
    rule = ["---:" if is_numeric(table, place) else ":---" for place in range(len(table.columns))]
    lines = [f"**{_plain_markdown(table.title)}**", ""] if table.title else []
    lines += [_pipes([_plain_markdown(heading(column)) for column in table.columns]), _pipes(rule)]
    for group, rows in blocks(table):
        if group:
            lines.append(_pipes([f"*{_plain_markdown(group)}*", *[""] * (len(table.columns) - 1)]))
        lines += [_pipes([_markdown_cell(cell) for cell in row]) for row in rows]
    if table.note:
        lines += ["", _plain_markdown(table.note)]
    return "\n".join(lines) + "\n"


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Written) -> str:
    if not cell.is_number:
        return _plain_markdown(cell.value)
    value = f"**{cell.value}**" if cell.is_best else cell.value
    mark = f"<sup>{_plain_markdown(cell.mark)}</sup>" if cell.mark else ""
    return f"{value}{mark} {cell.spread}".strip()


def _plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~$#!])", r"\\\1", text)


def latex(table: Table) -> str:
    r"""The table in LaTeX with booktabs, for a `\input`."""
    width = len(table.columns)
    align = "".join("r" if is_numeric(table, place) else "l" for place in range(width))
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_plain_latex(table.title)}}}", rf"\label{{tab:{re.sub('[^A-Za-z0-9:.-]', '-', table.id)}}}"]
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines.append(_ampersands([_plain_latex(heading(column)) for column in table.columns]))
    for group, rows in blocks(table):
        lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_plain_latex(group)}}}}} \\")
        lines += [_ampersands([_latex_cell(cell) for cell in row]) for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.note:
        lines += ["", rf"\smallskip{{\footnotesize {_plain_latex(table.note)}}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _ampersands(cells: list[str]) -> str:
    text = " & ".join(cells) + r" \\"
    return f"{{}}{text}" if text.startswith(("[", "*")) else text  # after the \\ of the row above they would be options


def _latex_cell(cell: Written) -> str:
    value = _plain_latex(cell.value)
    if not cell.is_number:
        return value
    value = rf"\textbf{{{value}}}" if cell.is_best else value
    mark = rf"\textsuperscript{{{_plain_latex(cell.mark)}}}" if cell.mark else ""
    return f"{value}{mark} {_plain_latex(cell.spread)}".strip()


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
