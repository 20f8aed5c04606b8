"""Tables of a document as text for a terminal."""

from collections.abc import Mapping
from typing import Any

from ecoc.report.document import Cell, Column, Number, Table


def table_text(values: Mapping[str, Any]) -> str:
    """A table with aligned columns; the best number of each group is followed by a ◂."""
    table = Table.build(values)
    groups = table.groups or [""] * len(table.rows)
    best = {
        (group, place): _best([row[place] for row, own in zip(table.rows, groups, strict=True) if own == group], column)
        for place, column in enumerate(table.columns)
        for group in set(groups)
    }
    heads = [column.name + (f", {column.unit}" if column.unit else "") for column in table.columns]
    lines: list[list[str] | str] = [heads]
    last = None
    for row, group in zip(table.rows, groups, strict=True):
        if group != last and group:
            lines.append(group)
        last = group
        lines.append(
            [
                _shown(cell, table.columns[place], isinstance(cell, Number) and cell.value == best[group, place])
                for place, cell in enumerate(row)
            ]
        )
    widths = [max(len(line[place]) for line in lines if not isinstance(line, str)) for place in range(len(heads))]
    body = [_line(line, widths) for line in lines]
    return "\n".join([table.title, *body, *([f"  {table.note}"] if table.note else [])])


def _line(line: list[str] | str, widths: list[int]) -> str:
    if isinstance(line, str):
        return f"  {line}"
    first, *others = (
        text.ljust(width) if not place else text.rjust(width)
        for place, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return ("    " + "  ".join([first, *others])).rstrip()


def _best(cells: list[Cell], column: Column) -> float | None:
    values = [cell.value for cell in cells if isinstance(cell, Number)]
    if column.better == "none" or len(values) < 2:
        return None
    return max(values) if column.better == "high" else min(values)


def _shown(cell: Cell, column: Column, is_best: bool) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell if len(cell) <= 60 else cell[:59] + "…"
    digits = column.digits
    spread = f" ± {cell.sd:.{digits}f}" if cell.sd is not None else ""
    if cell.low is not None and cell.high is not None:
        spread = f" [{cell.low:.{digits}f}, {cell.high:.{digits}f}]"
    return f"{cell.value:,.{digits}f}{spread}{cell.mark}{'◂' if is_best else ''}"
