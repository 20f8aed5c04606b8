"""Tables of a document as text for a terminal."""

from collections.abc import Mapping
from typing import Any

from ecoc.report.document import Number, Table
from ecoc.report.tables import best_cells, blocks, cell_of, is_numeric, number_parts

_WIDEST = 60


def table_text(values: Mapping[str, Any]) -> str:
    """A table with aligned columns; the best numbers of a group are followed by ◂."""
    table = Table.build(values)
    columns, best = table.columns, best_cells(table)
    heads = [column.name + (f", {column.unit}" if column.unit else "") for column in columns]
    body = [[_shown(table, row, place, (row, place) in best) for place in range(len(columns))] for row in _rows(table)]
    widths = [max(len(line[place]) for line in [heads, *body]) for place in range(len(columns))]
    is_right = [is_numeric(table, place) for place in range(len(columns))]

    def line(cells: list[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_right, strict=True)
        )
        return ("    " + "  ".join(padded)).rstrip()

    lines = [table.title, line(heads)]
    for group, rows in blocks(table):
        lines += [f"  {group}"] * bool(group) + [line(body[row]) for row in rows]
    return "\n".join([*lines, *([f"  {table.note}"] if table.note else [])])


def _rows(table: Table) -> range:
    return range(len(table.rows))


def _shown(table: Table, row: int, place: int, is_best: bool) -> str:
    cell = cell_of(table.rows[row], place)
    if not isinstance(cell, Number):
        text = cell or ""
        return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
    parts = number_parts(cell, table.columns[place])
    return f"{' '.join(filter(None, (parts.value, parts.spread)))}{parts.mark}{'◂' if is_best else ''}"
