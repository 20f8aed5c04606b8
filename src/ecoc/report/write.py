"""Folders with results -> report.html, and each table as Markdown and LaTeX beside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ecoc.errors import InputError
from ecoc.report.chart import is_empty
from ecoc.report.curves import run_section
from ecoc.report.document import REPORT, Document, Section, load_document
from ecoc.report.html import page
from ecoc.report.lettering import slugs
from ecoc.report.tables import is_empty_table, latex, markdown
from ecoc.runs.folder import is_run
from ecoc.storage.atomic import write_whole

PAGE, TABLES = "report.html", "tables"
_LONGEST_NAME = 300


def report(folders: Sequence[str | Path], out: str | Path | None = None, *, title: str | None = None) -> dict[str, Any]:
    """Write the report of folders that hold a report.json or a run; what was written where.

    `out` is a file, or a folder that exists; without it the page goes into the first folder.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise InputError("no folder given; give folders that hold a report.json, or runs")
    document = _joined([_open(path) for path in paths], title)
    target = _target(paths[0], None if out is None else Path(out))
    tables = [table for section in document.sections for table in section.tables]
    figures = [figure for section in document.sections for figure in section.figures]
    names = slugs(table.id for table in tables)
    content = page(document)  # before anything is written
    for name, table in zip(names, tables, strict=True):
        write_whole(_open_folder(target.parent / TABLES) / f"{name}.md", [markdown(table).encode()])
        write_whole(target.parent / TABLES / f"{name}.tex", [latex(table).encode()])
    write_whole(target, [content.encode()])
    empty = [name for name, table in zip(names, tables, strict=True) if is_empty_table(table)]
    empty += [figure.id for figure in figures if is_empty(figure)]
    return {
        "report": str(target),
        "sections": len(document.sections),
        "tables": names,
        "figures": [figure.id for figure in figures],
        "empty": empty,
    }


def _open(path: Path) -> Document:
    """What a folder tells: its report, else its run."""
    if (path / REPORT).is_file():
        return load_document(path)
    if is_run(path):
        section = run_section(path)
        return Document(title=section.title, sections=[section])
    what = "no such folder" if not path.exists() else f"neither a {REPORT} nor a run in it"
    raise InputError(f"{path}: {what}; give a folder that an ecoc experiment or ecoc train wrote")


def _joined(documents: Sequence[Document], title: str | None) -> Document:
    """One document of several; what they have in common is told once."""
    sections = [section for document in documents for section in document.sections]
    ids = slugs(section.id for section in sections)
    return Document(
        title=(title or _title(documents))[:_LONGEST_NAME],
        summary=[text for document in documents for text in document.summary],
        facts=_facts(documents),
        sections=[_named(section, name) for section, name in zip(sections, ids, strict=True)],
    )


def _title(documents: Sequence[Document]) -> str:
    titles = list(dict.fromkeys(document.title for document in documents))
    return "; ".join(titles) if len(titles) < 4 else f"{titles[0][:200]} and {len(titles) - 1} more"


def _facts(documents: Sequence[Document]) -> dict[str, str]:
    """A fact that differs between documents is told of each; runs have theirs in their sections."""
    facts: dict[str, str] = {}
    documents = [document for document in documents if document.facts]
    for key in dict.fromkeys(key for document in documents for key in document.facts):
        values = {document.facts.get(key) for document in documents}
        if len(values) == 1:
            facts[key] = documents[0].facts[key]
            continue
        for place, document in enumerate(documents, 1):
            if key in document.facts:
                facts[f"{key} ({place}: {document.title})"[:_LONGEST_NAME]] = document.facts[key]
    return facts


def _named(section: Section, name: str) -> Section:
    return section.model_copy(update={"id": name})


def _target(first: Path, out: Path | None) -> Path:
    """Where the page goes."""
    if out is None:
        return first / PAGE
    return out / PAGE if out.is_dir() else _open_folder(out.parent) / out.name


def _open_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; choose another place with -o") from None
    return folder
