"""Folders with results -> report.html, and each table as Markdown and LaTeX beside it."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from ecoc.arguments import as_path, as_paths, as_text
from ecoc.config import Config
from ecoc.errors import InputError
from ecoc.reporting.document import REPORT, Document, Section, load_document
from ecoc.reporting.drawable import is_empty
from ecoc.reporting.escaping import slugs
from ecoc.reporting.figures import Kind, picture
from ecoc.reporting.html import page
from ecoc.reporting.sections.run import run_sections
from ecoc.reporting.tables import is_empty_table, latex, markdown
from ecoc.runs.folder import is_run
from ecoc.storage.atomic import write_whole
from ecoc.storage.trusted import is_there

PAGE, TABLES, FIGURES = "report.html", "tables", "figures"
_LONGEST_NAME = 300
_SHARED = ("comparison", "simulation", "normtest")  # sections of several runs, which each of them keeps


class ReportFiles(Config):
    """What `report` wrote."""

    report: str  # path of the page
    sections: int
    tables: list[str]  # names of the files in tables/
    figures: list[str]
    empty: list[str]  # tables and figures with nothing to show


def report(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
    figures: Kind | None = None,
) -> ReportFiles:
    """Write the report of one or several folders that hold a report.json or a run.

    `out` is a file, or a folder that exists; without it the page goes into the first folder. `figures` also writes
    each figure as a file of that kind (svg, pdf or png) into figures/ beside the page.
    """
    folders = as_paths(paths, "paths")
    page_file = None if out is None else as_path(out, "out")
    title = None if title is None else as_text(title, "title")
    if not folders:
        raise InputError("no folder given; give folders that hold a report.json, or runs")
    if figures not in (None, "svg", "pdf", "png"):
        raise InputError(f"figures {figures!r:.40}: expected svg, pdf or png")
    document = _joined([_open(path) for path in folders], title)
    target = _target(folders[0], page_file)
    tables = [table for section in document.sections for table in section.tables]
    drawn = [figure for section in document.sections for figure in section.figures]
    names = slugs(table.id for table in tables)
    content = page(document)  # before anything is written
    for name, table in zip(names, tables, strict=True):
        write_whole(_open_folder(target.parent / TABLES) / f"{name}.md", [markdown(table).encode()])
        write_whole(target.parent / TABLES / f"{name}.tex", [latex(table).encode()])
    if figures is not None:
        for name, figure in zip(slugs(figure.id for figure in drawn), drawn, strict=True):
            write_whole(_open_folder(target.parent / FIGURES) / f"{name}.{figures}", [picture(figure, figures)])
    write_whole(target, [content.encode()])
    empty = [name for name, table in zip(names, tables, strict=True) if is_empty_table(table)]
    return ReportFiles(
        report=str(target),
        sections=len(document.sections),
        tables=names,
        figures=[figure.id for figure in drawn],
        empty=[*empty, *(figure.id for figure in drawn if is_empty(figure))],
    )


def _open(path: Path) -> Document:
    """The document of a folder: its report.json, else what is known about its run."""
    if is_there(path / REPORT):
        return load_document(path)
    if is_run(path):
        sections = run_sections(path)
        return Document(title=sections[0].title, sections=sections)
    what = "no such folder" if not path.exists() else f"neither a {REPORT} nor a run in it"
    raise InputError(f"{path}: {what}; give a folder that an ecoc experiment or ecoc train wrote")


def _joined(documents: Sequence[Document], title: str | None) -> Document:
    """One document of several; what they have in common appears once."""
    sections: list[Section] = []
    for section in (section for document in documents for section in document.sections):
        if section.id not in _SHARED or section not in sections:
            sections.append(section)
    ids = slugs(section.id for section in sections)
    return Document(
        title=(title or _title(documents))[:_LONGEST_NAME],
        summary=[text for document in documents for text in document.summary],
        facts=_provenance(documents),
        sections=[section.model_copy(update={"id": name}) for section, name in zip(sections, ids, strict=True)],
    )


def _title(documents: Sequence[Document]) -> str:
    titles = list(dict.fromkeys(document.title for document in documents))
    return "; ".join(titles) if len(titles) < 4 else f"{titles[0][:200]} and {len(titles) - 1} more"


def _provenance(documents: Sequence[Document]) -> dict[str, str]:
    """A fact that differs between documents is given for each of them."""
    provenance: dict[str, str] = {}
    documents = [document for document in documents if document.facts]
    for key in dict.fromkeys(key for document in documents for key in document.facts):
        values = {document.facts.get(key) for document in documents}
        if len(values) == 1:
            provenance[key] = documents[0].facts[key]
            continue
        for place, document in enumerate(documents, 1):
            if key in document.facts:
                provenance[f"{key} ({place}: {document.title})"[:_LONGEST_NAME]] = document.facts[key]
    return provenance


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
