"""A document as one HTML file: no script, nothing from outside, for a screen, a phone and paper.

Whatever a document says is text; it passes `escaped` on its way in, and the page's own policy forbids the rest.
"""

from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import count

from ecoc.report.chart import NARROW, WIDE, draw
from ecoc.report.document import Column, Document, Figure, Number, Section, Table
from ecoc.report.lettering import escaped, slugs
from ecoc.report.marks import DARK, LIGHT, variables
from ecoc.report.tables import best_cells, blocks, cell_of, is_empty_table, is_numeric, number_parts

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_MOST_ROWS = 500
_BETTER = {"high": ("↑", "higher is better"), "low": ("↓", "lower is better")}


def page(document: Document) -> str:
    """The whole page."""
    anchors = slugs(section.id for section in document.sections)
    numbers = count(1), count(1)
    sections = [_section(section, anchor, numbers) for section, anchor in zip(document.sections, anchors, strict=True)]
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
    style = f":root{{{variables(LIGHT)}}}{dark}\n{(files('ecoc.report') / 'style.css').read_text(encoding='utf-8')}"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">\n<link rel="icon" href="data:,">',
            f"<title>{escaped(document.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>",
            f"<header>\n<h1>{escaped(document.title)}</h1>",
            _block("div", "summary", _paragraphs(document.summary)),
            _facts(document.facts),
            "</header>",
            _contents(document.sections, anchors),
            "<main>",
            *sections,
            "</main>\n<footer>Made by ecoc report from the files of the experiments; it needs no network.</footer>",
            "</body>\n</html>\n",
        ]
    )


def _block(name: str, kind: str, inside: str) -> str:
    return f'<{name} class="{kind}">{inside}</{name}>' if inside else ""


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{escaped(text.strip())}</p>\n" for text in texts if text.strip())


def _facts(facts: dict[str, str]) -> str:
    return _block("dl", "facts", "\n".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in facts.items()))


def _contents(sections: list[Section], anchors: list[str]) -> str:
    if len(sections) < 2:
        return ""
    entries = "".join(
        f'<li><a href="#s-{anchor}">{escaped(section.title)}</a></li>\n'
        for section, anchor in zip(sections, anchors, strict=True)
    )
    return f'<nav class="contents" aria-label="Contents"><h2>Contents</h2>\n<ol>\n{entries}</ol></nav>'


def _section(section: Section, anchor: str, numbers: tuple[Iterator[int], Iterator[int]]) -> str:
    parts = [f'<section id="s-{anchor}">\n<h2>{escaped(section.title)}</h2>', _paragraphs(section.text)]
    parts += [_table(table, next(numbers[0])) for table in section.tables]
    parts += [_figure(figure, next(numbers[1])) for figure in section.figures]
    caveats = "".join(f"<li>{escaped(text.strip())}</li>\n" for text in section.caveats if text.strip())
    if caveats:
        parts.append(f'<aside class="caveats"><h3>What this does not show</h3>\n<ul>\n{caveats}</ul></aside>')
    commands = [text.strip("\n") for text in section.commands if text.strip()]
    if commands:
        parts.append('<h3 class="again">To make this again</h3>')
        parts += [f"<pre><code>{escaped(text)}</code></pre>" for text in commands]
    return "\n".join([*(part for part in parts if part), "</section>"])


def _figure(figure: Figure, number: int) -> str:
    drawn = f'<div class="wide">{draw(figure, WIDE)}</div>\n<div class="narrow">{draw(figure, NARROW)}</div>'
    note = f"\n{escaped(figure.note.strip())}" if figure.note.strip() else ""
    caption = f'<span class="title"><span class="number">Figure {number}</span>{escaped(figure.title)}</span>{note}'
    return f'<figure id="figure-{number}">\n{drawn}\n<figcaption>{caption}</figcaption></figure>'


def _table(table: Table, number: int) -> str:
    title = f'<p class="title"><span class="number">Table {number}</span>{escaped(table.title)}</p>'
    note = _block("p", "note", escaped(table.note.strip()))
    if is_empty_table(table):
        return f'<div class="table" id="table-{number}">{title}<p class="nothing">Nothing to show.</p>{note}</div>'
    left = max(0, len(table.rows) - _MOST_ROWS)
    if left:
        note += f'<p class="note">{left:,} more rows are in the Markdown and LaTeX files beside this page.</p>'
    kinds = ["table"] + ["short"] * (len(table.rows) <= 30)
    kinds += ["widest-table"] if len(table.columns) > 12 else ["wide-table"] * (len(table.columns) > 7)
    kinds += ["small"] * (len(table.columns) < 4)
    head = "".join(_heading(table, place) for place in range(len(table.columns)))
    head = f"<thead><tr>{head}</tr></thead>\n" if any(column.name or column.unit for column in table.columns) else ""
    rooms = _spread_rooms(table)
    stacked = ""
    if sum(map(bool, rooms)) > 3:  # too many to stand beside their numbers
        stacked, rooms = ' class="stacked"', [0] * len(rooms)
    return (
        f'<div class="{" ".join(kinds)}" id="table-{number}">{title}\n'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table {number}"><table{stacked}>\n'
        f"{head}{_body(table, rooms)}</table></div>{note}</div>"
    )


def _spread_rooms(table: Table) -> list[int]:
    """Letters of the longest spread of each column."""
    return [
        max((len(number_parts(cell, column).spread) for cell in cells if isinstance(cell, Number)), default=0)
        for place, column in enumerate(table.columns)
        for cells in [[cell_of(row, place) for row in table.rows]]
    ]


def _heading(table: Table, place: int) -> str:
    column = table.columns[place]
    unit = f' <span class="unit">{escaped(column.unit)}</span>' if column.unit else ""
    better = ""
    if column.better != "none":
        sign, told = _BETTER[column.better]
        better = f' <span class="better" title="{told}">{sign}</span>'
    side = ' class="right"' if is_numeric(table, place) else ""
    return f'<th scope="col"{side}>{escaped(column.name)}{unit}{better}</th>'


def _body(table: Table, rooms: list[int]) -> str:
    best, numeric = best_cells(table), [is_numeric(table, place) for place in range(len(table.columns))]
    parts = []
    for group, rows in blocks(table):
        name = f"<span>{escaped(group)}</span>"
        head = f'<tr class="group"><th colspan="{len(table.columns)}" scope="rowgroup">{name}</th></tr>'
        kept = [row for row in rows if row < _MOST_ROWS]
        lines = []
        for row in kept:
            cells = [
                _cell(cell, column, rooms[place], (row, place) in best)
                if isinstance(cell := cell_of(table.rows[row], place), Number)
                else _text_cell(cell, place, numeric[place])
                for place, column in enumerate(table.columns)
            ]
            lines.append(f"<tr>{''.join(cells)}</tr>\n")
        if kept:
            parts.append(f"<tbody>{head if group else ''}\n{''.join(lines)}</tbody>\n")
    return "".join(parts)


def _text_cell(cell: str | None, place: int, is_right: bool) -> str:
    text = escaped(cell or "")
    return (
        f'<th scope="row">{text}</th>' if place == 0 else f'<td class="{"right" if is_right else "text"}">{text}</td>'
    )


def _cell(number: Number, column: Column, room: int, is_best: bool) -> str:
    """A number; `room` letters are kept for its spread, so that those of a column line up with and without one."""
    written = number_parts(number, column)
    value = escaped(written.value.replace("-", "−"))
    mark = ""
    if written.mark:
        long = ' class="long"' if len(written.mark) > 2 else ""
        mark = f"<sup{long}>{escaped(written.mark)}</sup>"
    spread = escaped(written.spread.replace("-", "−"))
    kept = f' style="min-width:{room}ch"' if room else ""
    beside = f'<span class="spread"{kept}>{spread}</span>' if spread or room else ""
    return f'<td class="right"><span class="value{" best" * is_best}">{value}{mark}</span>{beside}</td>'
