"""A report in a real browser: nothing from outside, nothing cut off, on a desk, a phone and paper."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from ecoc.reporting.document import (
    Axis,
    Cell,
    Column,
    Document,
    Figure,
    Number,
    Point,
    Section,
    Series,
    Table,
    save_document,
)
from ecoc.reporting.write import report

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "reporting"))
from sample import sample_document
from test_run_report import known_run

WIDTHS = (1280, 390, 360)

OVERFLOWING_TEXT = """() => {
  const cut = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      const isWithin = box.left >= frame.left - 1 && box.right <= frame.right + 1
        && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      if (!isWithin) cut.push(text.textContent);
    }
  }
  for (const element of document.querySelectorAll("h1, h2, h3, p, li, dt, dd, figcaption, pre")) {
    const box = element.getBoundingClientRect();
    if (box.width && (element.scrollWidth > element.clientWidth + 1 || box.right > innerWidth + 1 || box.left < -1))
      cut.push(element.textContent);
  }
  return cut;
}"""

CUT_OFF = """() => {
  const cut = [];
  const isWithin = box => box.left >= -1 && box.right <= innerWidth + 1;
  for (const element of document.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || element.closest(".scroll table") || element.closest("svg *")) continue;
    const name = `${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`;
    if (!isWithin(box)) cut.push(`${name}: outside the page`);
    const clips = getComputedStyle(element).overflowX !== "visible";
    if (clips && !element.matches(".scroll, svg") && element.scrollWidth > element.clientWidth + 1)
      cut.push(`${name}: clipped`);
  }
  for (const box of document.querySelectorAll(".scroll")) {  // the last column can be scrolled to
    box.scrollLeft = box.scrollWidth;
    const frame = box.getBoundingClientRect();
    for (const cell of box.querySelectorAll("tr > :last-child"))
      if (cell.getBoundingClientRect().right > frame.right + 1) cut.push(`${cell.textContent}: out of reach`);
    box.scrollLeft = 0;
  }
  return cut;
}"""

OVERLAPPING_TEXT = """() => {
  const clashes = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.getBoundingClientRect().width) continue;
    const texts = [...svg.querySelectorAll("text")].filter(text => text.textContent);
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > 4) clashes.push(`${a} | ${b}`);
    }));
  }
  return clashes;
}"""


@dataclass
class Opened:
    """A page and what it did."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is not installed; apt-get install --no-install-recommends chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def hard_document() -> Document:
    """What people do not write but files may hold: endless words, many columns, deep names."""
    word = "W" * 290
    rows: list[list[Cell]] = [[word, *(Number(value=k * 1.5, low=-1, high=9, mark="†") for k in range(15))]] * 3
    columns = [Column(name="a name"), *(Column(name=f"metric number {k}", better="high") for k in range(15))]
    axis = Axis(label=word, names=[f"{word}{k}"[-280:] for k in range(5)])
    series = [Series(name=f"{k} {word}", points=[Point(x=x, y=x * k, label=word) for x in range(5)]) for k in range(3)]
    figures = [
        Figure(id=kind, title=word, kind=kind, x=axis, y=Axis(label=word, line=2), series=series, note=word)
        for kind in ("lines", "bars", "points")
    ]
    table = Table(id="t", title=word, columns=columns, rows=rows, groups=[word] * 3, note=word)
    section = Section(
        id="s", title=word, text=[word], tables=[table], figures=figures, caveats=[word], commands=[f"ecoc {word}"]
    )
    return Document(title=word, summary=[word], facts={word: word}, sections=[section, section])


@pytest.fixture(scope="module", params=["sample", "hard", "run"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    if request.param == "run":
        known_run(folder)
    else:
        save_document(folder, sample_document() if request.param == "sample" else hard_document())
    return Path(report([folder]).report)


def opened(browser: Browser, path: Path, width: int, scheme: str = "light") -> Opened:
    page = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    result = Opened(page)
    page.on("console", lambda message: result.messages.append(message.text))
    page.on("pageerror", lambda error: result.messages.append(str(error)))
    page.on("request", lambda request: result.requests.append(request.url))
    page.goto(path.as_uri())
    return result


@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_reads_well_at_any_width(browser: Browser, written: Path, width: int) -> None:
    view = opened(browser, written, width)
    page = view.page
    assert view.messages == []
    assert [url for url in view.requests if not url.startswith("data:")] == [written.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    figures = page.locator("figure")
    assert figures.count() > 0
    for place in range(figures.count()):
        boxes = [box for svg in figures.nth(place).locator("svg").all() if (box := svg.bounding_box())]
        assert [box for box in boxes if box["width"] > 200 and box["height"] > 50], f"figure {place} cannot be seen"
        assert len(boxes) == 1, "one drawing of each, the one for this width"
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(OVERFLOWING_TEXT) == []
    assert page.evaluate(OVERLAPPING_TEXT) == []
    letters = page.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().width).map(s =>"
        " s.getBoundingClientRect().width / s.viewBox.baseVal.width)"
    )
    assert min(letters) > 0.88, "no drawing is shrunk until its letters cannot be read"
    page.close()


def test_names_of_rows_stay_in_sight_while_a_table_scrolls(browser: Browser, written: Path) -> None:
    page = opened(browser, written, 390).page
    areas = page.locator(".scroll").all()
    area = next(area for area in areas if area.evaluate("e => e.scrollWidth > e.clientWidth + 200"))
    name = area.locator("tbody th[scope=row]").first
    before = name.bounding_box()
    area.evaluate("e => e.scrollLeft = 200")
    after = name.bounding_box()
    assert before is not None and after is not None
    assert before["x"] == pytest.approx(after["x"], abs=1)
    assert after["width"] < 390 * 0.6, "and leave room for numbers"
    page.close()


def test_numbers_of_a_column_line_up(browser: Browser, tmp_path: Path) -> None:
    save_document(tmp_path, sample_document())
    page = opened(browser, Path(report([tmp_path]).report), 1280).page
    for table in (1, 2):
        edges = page.evaluate(
            f"""[...document.querySelectorAll('#table-{table} tbody tr:not(.group)')].map(row =>
            [...row.children].slice(1, 4).map(cell => {{
              const value = cell.querySelector('.value');
              if (!value) return null;
              const range = document.createRange();
              range.selectNode(value.firstChild);
              return Math.round(range.getBoundingClientRect().right);
            }}))"""
        )
        for column in zip(*edges, strict=True):
            known = {edge for edge in column if edge is not None}
            assert len(known) == 1
    page.close()


def test_a_dark_page_is_dark_and_paper_is_white(browser: Browser, tmp_path: Path) -> None:
    save_document(tmp_path, sample_document())
    page = opened(browser, Path(report([tmp_path]).report), 1280, "dark").page
    background = "getComputedStyle(document.body).backgroundColor"
    colour = "getComputedStyle(document.querySelector('figure .wide svg path[style*=--c1]')).fill"
    dark = page.evaluate(background), page.evaluate(colour)
    page.emulate_media(media="print")
    paper = page.evaluate(background), page.evaluate(colour)
    assert dark[0] == "rgb(23, 24, 26)"
    assert paper[0] == "rgb(255, 255, 255)"
    assert dark[1] != paper[1]
    page.close()


def test_a_report_prints_on_a4_without_losing_anything(browser: Browser, written: Path, tmp_path: Path) -> None:
    view = opened(browser, written, 680)  # the width of A4 between its margins
    view.page.emulate_media(media="print")
    cut = view.page.evaluate(
        "[...document.querySelectorAll('.scroll, svg')].filter(e => e.getBoundingClientRect().width"
        " && getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1).length"
    )
    assert cut == 0, "nothing scrolls on paper"
    wide = view.page.evaluate(
        "[...document.querySelectorAll('figure, .table:not(.widest-table) table')].filter(e =>"
        " e.getBoundingClientRect().right > 681).length"
    )
    assert wide == 0, "nothing runs off the paper"
    view.page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF") and content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 3
    view.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_of_a_run_fit_on_a_desk_and_scroll_in_their_box_on_a_phone(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    path = Path(report([known_run(tmp_path / "ecoc")]).report)
    wide, narrow = opened(browser, path, 1280, scheme).page, opened(browser, path, 390, scheme).page
    hidden = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert wide.locator(".scroll").count() >= 8
    assert wide.evaluate(hidden) == 0, "no column has to be scrolled to at 1,280 pixels"
    assert narrow.evaluate(hidden) > 0
    assert narrow.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for page in (wide, narrow):
        assert page.evaluate(CUT_OFF) == []
        page.close()
