import re
from html.parser import HTMLParser

from sample import sample_document

from ecoc.reporting.document import Axis, Cell, Column, Document, Figure, Number, Point, Section, Series, Table
from ecoc.reporting.html import page

EVIL = '</style></title></pre><script>alert(1)</script><img src=x onerror=alert(1)>" onload="alert(1)" \' javascript:x'
TAGS = (
    "html head meta title style link body header h1 h2 h3 div p dl dt dd nav ol ul li a main section aside pre code "
    "footer figure figcaption span sup table thead tbody tr th td svg desc g path text rect defs use clippath pattern"
)


class Reader(HTMLParser):
    """Tags, attributes and text as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"{tag} is closed where another is open"


def evil_document() -> Document:
    cells: list[Cell] = [EVIL, Number(value=1.0, mark=EVIL, low=0.5, high=2.0)]
    table = Table(
        id=EVIL, title=EVIL, columns=[Column(name=EVIL, unit=EVIL), Column(name=EVIL, better="high")],
        rows=[cells, cells], groups=[EVIL, EVIL], note=EVIL,
    )  # fmt: skip
    series = [Series(name=EVIL, points=[Point(x=x, y=x, label=EVIL) for x in (0, 1)])] * 2
    axis = Axis(label=EVIL, names=[EVIL, EVIL])
    figures = [
        Figure(id=EVIL, title=EVIL, kind=kind, x=axis, y=Axis(label=EVIL), series=series, note=EVIL)
        for kind in ("lines", "bars", "points")
    ]
    section = Section(
        id=EVIL, title=EVIL, text=[EVIL], tables=[table], figures=figures, caveats=[EVIL], commands=[EVIL]
    )
    return Document(title=EVIL, summary=[EVIL], facts={EVIL: EVIL}, sections=[section, section])


def test_nothing_a_document_says_becomes_markup() -> None:
    found = Reader(page(evil_document()))
    assert not found.open, "everything that was opened is closed"
    assert {tag for tag, _ in found.tags} <= set(TAGS.split())
    for tag, attributes in found.tags:
        assert not [key for key in attributes if key.startswith("on")], tag
        assert not (attributes.get("href") or "#").startswith("javascript")


def test_every_field_of_a_document_is_on_the_page() -> None:
    text = page(evil_document())
    escaped = "&lt;/style&gt;&lt;/title&gt;&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
    # title twice, summary, fact and its value; of each section: contents, title, text, caveat, command,
    # a table's title, note, group, two columns and a unit, two rows' names and marks; figures have their own test
    assert text.count(escaped) > 5 + 2 * 15
    assert "<script" not in text.lower()
    assert "<img" not in text.lower()


def test_the_page_asks_for_nothing_from_outside() -> None:
    text = page(sample_document())
    assert not re.findall(r"https?://|xlink", text.replace('xmlns="http://www.w3.org/2000/svg"', ""))
    assert not re.search(r"<script|@import|url\((?!#)|srcset|<iframe|<object|<embed|<form", text, re.IGNORECASE)
    links = [attributes["href"] or "" for _, attributes in Reader(text).tags if "href" in attributes]
    assert {link[:1] for link in links} == {"#", "d"} and "data:," in links, "links lead to parts of the page only"
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in text
    assert text.index("Content-Security-Policy") < text.index("<style")
    loaded = [
        attributes for _, attributes in Reader(text).tags if {"src", "data", "poster", "action"} & attributes.keys()
    ]
    assert loaded == []


def test_ids_are_unique_and_every_reference_has_its_own() -> None:
    whole = page(sample_document())
    ids = [attributes["id"] for _, attributes in Reader(whole).tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "also between the drawings of a page"
    references = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', whole)
    assert len(references) > 100
    assert {a or b for a, b in references} <= set(ids)
    for drawing in re.findall(r"<svg.*?</svg>", whole, re.DOTALL):
        own = set(re.findall(r' id="([^"]+)"', drawing))
        assert {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawing)} <= own


def test_contents_lead_to_sections() -> None:
    found = Reader(page(sample_document()))
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    links = [(attributes.get("href") or "") for tag, attributes in found.tags if tag == "a"]
    assert len(links) == 4
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_sections_of_one_name_have_anchors_of_their_own() -> None:
    section = Section(id="same", title="T")
    text = page(Document(title="D", sections=[section, section]))
    assert 'id="s-same"' in text and 'id="s-same-2"' in text


def test_best_numbers_are_bold_with_small_spreads_and_marks() -> None:
    columns = [Column(name="m"), Column(name="x", better="high", digits=3), Column(name="y", better="low", digits=1)]
    rows: list[list[Cell]] = [
        ["a", Number(value=0.123, low=-0.11, high=0.135, mark="*"), Number(value=2, sd=0.5)],
        ["b", Number(value=0.1), Number(value=2)],
    ]
    text = page(
        Document(
            title="D",
            sections=[Section(id="s", title="S", tables=[Table(id="t", title="T", columns=columns, rows=rows)])],
        )
    )
    spread = '<span class="spread" style="min-width:15ch">[−0.110, 0.135]</span>'
    assert f'<span class="value best">0.123<sup>*</sup></span>{spread}' in text
    assert text.count('class="value best"') == 3, "ties are all bold"
    assert '<span class="spread" style="min-width:5ch">± 0.5</span>' in text
    assert text.count('<th scope="row">') == 2


def test_caveats_stand_in_a_box_and_commands_can_be_copied() -> None:
    text = page(sample_document())
    assert text.count("What this does not show") == 2
    assert "<pre><code>python benchmarks/train.py growth</code></pre>" in text


def test_an_empty_document_is_a_page_and_empty_tables_say_so() -> None:
    assert not Reader(page(Document(title=""))).open
    empty = Table(id="t", title="T", columns=[Column(name="x")], rows=[])
    assert "Nothing to show." in page(Document(title="D", sections=[Section(id="s", title="S", tables=[empty])]))


def test_a_table_too_long_for_a_page_is_cut_and_it_says_so() -> None:
    rows: list[list[Cell]] = [[f"row {place}"] for place in range(700)]
    long = Table(id="t", title="T", columns=[Column(name="x")], rows=rows)
    text = page(Document(title="D", sections=[Section(id="s", title="S", tables=[long])]))
    assert "row 499<" in text and "row 500<" not in text
    assert "200 more rows are in the Markdown and LaTeX files" in text


def test_the_same_document_is_the_same_page() -> None:
    assert page(sample_document()) == page(sample_document())
