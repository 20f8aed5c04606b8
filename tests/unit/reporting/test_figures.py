"""Figures: what is on them, what they say to a screen reader, and that the same figure gives the same bytes."""

import itertools
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import many_lines, ope_bars, sample_document, scaling

import ecoc.reporting
from ecoc.reporting.document import Axis, Figure, Point, Series
from ecoc.reporting.drawable import drawable, is_empty
from ecoc.reporting.figures import NARROW, WIDE, Kind, draw, picture
from ecoc.reporting.plot import GRID, INK, MUTED, PAPER, SERIES

Shape = Literal["lines", "bars", "points"]
SHAPES: tuple[Shape, ...] = ("lines", "bars", "points")
NS = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parsed(svg).iter(f"{NS}text")]


def figure(
    *series: list[tuple[float, float]], kind: Shape = "lines", x: Axis | None = None, y: Axis | None = None
) -> Figure:
    lines = [
        Series(name=f"s{place}", points=[Point(x=a, y=b) for a, b in points]) for place, points in enumerate(series)
    ]
    return Figure(id="f", title="F", kind=kind, x=x or Axis(label="x"), y=y or Axis(label="y"), series=lines)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, 1.0, -1.0, 1e-310, 1.7e308, -1.7e308]
)
NAMES = st.text(max_size=40)
POINTS = st.builds(
    Point,
    x=NUMBERS | st.integers(0, 5).map(float),
    y=NUMBERS,
    low=st.none() | NUMBERS,
    high=st.none() | NUMBERS,
    label=NAMES,
)
AXES = st.builds(
    Axis,
    label=NAMES,
    log=st.booleans(),
    line=st.none() | NUMBERS,
    ticks=st.lists(NUMBERS, max_size=5),
    names=st.lists(NAMES, max_size=6),
)
FIGURES = st.builds(
    Figure,
    id=NAMES,
    title=NAMES,
    kind=st.sampled_from(SHAPES),
    x=AXES,
    y=AXES,
    series=st.lists(
        st.builds(Series, name=NAMES, points=st.lists(POINTS, max_size=6), dashed=st.booleans()), min_size=1, max_size=5
    ),
)


@settings(max_examples=60, deadline=None)
@given(FIGURES, st.sampled_from([NARROW, WIDE]))
def test_any_figure_is_drawn(any_figure: Figure, width: int) -> None:
    svg = draw(any_figure, width).svg
    root = parsed(svg)
    assert root.attrib["width"] == str(width)
    numbers = " ".join(
        value for e in root.iter() for key, value in e.attrib.items() if key in ("d", "x", "y", "viewBox", "transform")
    )
    assert "nan" not in numbers and "inf" not in numbers
    assert is_empty(any_figure) == ("Nothing to show." in texts(svg))


@pytest.mark.parametrize("kind", SHAPES)
def test_the_same_figure_gives_the_same_bytes(kind: Shape) -> None:
    drawn = next(one for section in sample_document().sections for one in section.figures if one.kind == kind)
    formats: tuple[Kind, ...] = ("svg", "pdf", "png")
    for file in formats:
        first = picture(drawn, file)
        assert first == picture(drawn, file)
        assert first.startswith({"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}[file])
        assert b"20" + b"26" not in re.sub(rb"[\d.]*\d\.\d+", b"", first) or file == "png", "no date"


def test_another_process_draws_the_same_bytes() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from sample import ope_bars;"
        "from ecoc.reporting.figures import picture; sys.stdout.buffer.write(picture(ope_bars(), 'svg'))"
    )
    source = str(Path(ecoc.reporting.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        check=True,
        env={"PYTHONPATH": source, "PYTHONHASHSEED": "7", "MPLBACKEND": "pdf"},
    )
    assert done.stdout == picture(ope_bars(), "svg")


def test_pyplot_is_never_loaded_and_importing_is_light() -> None:
    code = "import sys, ecoc.reporting.figures; early = 'matplotlib' in sys.modules;"
    code += "sys.path.insert(0, sys.argv[1]); from sample import ope_bars;"
    code += "ecoc.reporting.figures.picture(ope_bars(), 'svg'); print(early, 'matplotlib.pyplot' in sys.modules)"
    source = str(Path(ecoc.reporting.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": source},
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "points",
    [
        [(1.0, 1.0)],
        [(0.0, 5.0), (1.0, 5.0), (2.0, 5.0)],
        [(0.0, -3.0), (1.0, -4.0)],
        [(0.0, 1e-12), (1.0, 1e12)],
        [(3.0, 0.0)],
    ],
    ids=["one", "equal", "negative", "huge range", "zero"],
)
def test_lonely_equal_negative_and_far_apart_values_are_all_shown(
    kind: Shape, points: list[tuple[float, float]]
) -> None:
    svg = draw(figure(points, kind=kind)).svg
    if kind != "bars":
        markers = [e for e in parsed(svg).iter(f"{NS}use") if "--c1" in e.attrib.get("style", "")]
        assert len(markers) >= len(points)
    assert len(texts(svg)) >= 3, "numbers along both axes"


def test_a_screen_reader_gets_the_figure_in_words() -> None:
    root = parsed(draw(scaling()).svg)
    assert root.attrib["role"] == "img"
    labels = root.attrib["aria-labelledby"].split()
    title, description = root.find(f"{NS}title"), root.find(f"{NS}desc")
    assert title is not None and description is not None
    assert [title.attrib["id"], description.attrib["id"]] == labels
    assert title.text == "Time of a step as the catalogue grows"
    assert "milliseconds per step by items in the catalogue" in (description.text or "")
    assert "SDAC: 4.511 to 567.9" in (description.text or "")


@pytest.mark.parametrize("kind", SHAPES)
def test_an_empty_figure_says_so(kind: Shape) -> None:
    empty = figure([], kind=kind)
    assert is_empty(empty)
    assert texts(draw(empty).svg) == ["Nothing to show."]
    assert "Nothing to show." in (parsed(draw(empty).svg).findtext(f"{NS}desc") or "")


def test_what_has_no_place_on_a_log_axis_is_left_out_and_counted() -> None:
    log = Axis(label="y", log=True)
    drawing = draw(figure([(1, 10), (2, 0), (3, -5), (4, 1000)], y=log))
    assert drawing.notes == ["2 points are not shown: a log axis has no place for 0 and below."]
    nothing = figure([(1, 0)], y=log)
    assert is_empty(nothing) and draw(nothing).notes
    point = Point(x=1, y=5, low=-1, high=9)
    reaching = Figure(id="f", title="", kind="lines", x=Axis(label=""), y=log, series=[Series(name="", points=[point])])
    assert draw(reaching).notes == ["Intervals that reach 0 or less end at the edge."]


def test_the_line_of_an_axis_is_drawn_and_labelled_even_far_from_the_data() -> None:
    for kind in SHAPES:
        for width in (NARROW, WIDE):
            svg = draw(figure([(0, 3), (1, 4)], kind=kind, y=Axis(label="y", line=1)), width).svg
            assert len(re.findall(r"stroke-dasharray: 2\.4[^\"]*--ink|--ink[^\"]*stroke-dasharray: 2\.4", svg)) == 1
            bold = [
                e.text
                for e in parsed(svg).iter(f"{NS}text")
                if "700" in e.attrib["style"] or "bold" in e.attrib["style"]
            ]
            assert bold == ["1"]


def test_bars_start_at_zero_and_do_not_cover_each_other() -> None:
    svg = draw(ope_bars()).svg
    filled = [
        e.attrib
        for e in parsed(svg).iter(f"{NS}path")
        if re.search(r"fill: (var\(--c1|url)", e.attrib.get("style", ""))
    ]
    boxes = []
    for attributes in filled:
        corners = [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+) (-?[\d.]+)", attributes["d"])]
        xs, ys = [x for x, _ in corners], [y for _, y in corners]
        if max(xs) - min(xs) > 40:  # not of the legend
            boxes.append((min(xs), min(ys), max(ys)))
    assert len(boxes) == 30
    assert len({round(left) for left, _, _ in boxes}) == 1
    spans = sorted((top, bottom) for _, top, bottom in boxes)
    assert all(a[1] <= b[0] + 0.05 for a, b in itertools.pairwise(spans))


def test_series_can_be_told_apart_without_colour() -> None:
    svg = re.sub(r"var\(--c\d, #\w+\)", "C", draw(many_lines()).svg)
    shapes = dict(re.findall(r'<path id="(figure-m\w+)" d="([^"]+)"', svg))
    kinds = {
        (shapes[name], style) for name, style in re.findall(r'<use href="#(figure-m\w+)"[^>]*style="([^"]*)"', svg)
    }
    assert len(kinds) >= 12
    hatches = set(re.findall(r"fill: url\(#(figure-h\w+)\)", draw(ope_bars()).svg))
    assert len(hatches) == 2, "of three series the first is plain"


def test_every_series_is_named_once_in_the_legend() -> None:
    for width in (NARROW, WIDE):
        written = texts(draw(many_lines(), width).svg)
        assert all(written.count(series.name) == 1 for series in many_lines().series)


def test_labels_of_a_scatter_that_find_no_room_are_counted() -> None:
    points = [Point(x=0, y=0, label=f"the very same place {k}") for k in range(60)]
    crowded = Figure(
        id="f", title="", kind="points", x=Axis(label="x"), y=Axis(label="y"), series=[Series(name="", points=points)]
    )
    drawing = draw(crowded)
    count = sum(text.startswith("the very same") for text in texts(drawing.svg))
    assert 0 < count < 60
    assert drawing.notes == [f"{60 - count} labels are left out for lack of room; the tables hold all."]


def test_a_long_line_is_thinned_but_keeps_its_peak() -> None:
    values = [(float(step), math.sin(step / 500)) for step in range(50_000)]
    values[31_234] = (31_234.0, 9.0)
    kept = drawable(figure(values)).series[0]
    assert len(kept) < 2000
    assert max(point.y for point in kept) == 9.0
    assert (kept[0].x, kept[-1].x) == (0, 49_999)
    assert len(draw(figure(values)).svg) < 60_000


def test_many_points_and_bars_are_cut_and_the_caption_says_so() -> None:
    assert drawable(figure([(k, k % 7) for k in range(9000)], kind="points")).notes == [
        "One point in 3 of 9,000 is shown."
    ]
    bars = drawable(figure([(k, k % 7) for k in range(900)], kind="bars"))
    assert bars.notes == ["The first 200 of 900 places are shown."]
    assert len(bars.series[0]) == 200


@pytest.mark.parametrize("kind", SHAPES)
def test_hostile_text_stays_text(kind: Shape) -> None:
    evil = '<script>alert(\'x\')</script>" onload="y" id="z" $\\alpha$ #0072b2 \x00\x1b\u202e'
    axis = Axis(label=evil, names=[evil, evil])
    points = [Point(x=0, y=1, label=evil), Point(x=1, y=2, label=evil)]
    hostile = Figure(
        id=evil, title=evil, kind=kind, x=axis, y=Axis(label=evil), series=[Series(name=evil, points=points)] * 2
    )
    allowed = {"svg", "g", "title", "desc", "path", "text", "use", "defs", "clipPath", "rect", "pattern"}
    for width in (NARROW, WIDE):
        svg = draw(hostile, width).svg
        root = parsed(svg)
        assert {element.tag.removeprefix(NS) for element in root.iter()} <= allowed
        assert not [key for element in root.iter() for key in element.attrib if key.startswith("on")]
        assert "<script" not in svg
        if width == WIDE:
            assert any("$\\alpha$ #0072b2" in text for text in texts(svg)), "neither formula nor colour"


def test_colours_are_variables_of_the_page_with_the_light_ones_as_default() -> None:
    css = (Path(ecoc.reporting.__file__).parent / "templates" / "style.css").read_text()
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")[:2]
    names = {colour: f"c{place}" for place, colour in enumerate(SERIES, 1)}
    for colour, name in (names | {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}).items():
        assert f"--{name}: {colour};" in light
        assert f"--{name}: #" in dark.split("}")[0] and f"--{name}: {colour};" not in dark.split("}")[0]
    svg = draw(ope_bars()).svg
    assert "var(--c1, #0072b2)" in svg
    assert not re.findall(r"(?<!, )#[0-9a-f]{6}\b", re.sub(r'(href="|url\()#[^")]*', "", svg)), "no colour without one"
