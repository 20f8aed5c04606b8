import itertools
import math
from typing import Literal

import pytest
from drawings import NS, parsed, places, size_of, texts, titles
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import many_lines, ope_bars, sample_document, scaling

from ecoc.report.chart import NARROW, WIDE, draw, is_empty
from ecoc.report.document import Axis, Figure, Point, Series
from ecoc.report.lettering import Box, escaped, place, shorten, slugs, spread, width_of, wrap
from ecoc.report.marks import LIGHT, bar, marker
from ecoc.report.shown import shown

Kind = Literal["lines", "bars", "points"]
KINDS: tuple[Kind, ...] = ("lines", "bars", "points")


def figure(
    *series: list[tuple[float, float]],
    kind: Kind = "lines",
    x: Axis | None = None,
    y: Axis | None = None,
    names: list[str] | None = None,
) -> Figure:
    lines = [
        Series(name=names[place] if names else f"s{place}", points=[Point(x=a, y=b) for a, b in points])
        for place, points in enumerate(series)
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
    kind=st.sampled_from(KINDS),
    x=AXES,
    y=AXES,
    series=st.lists(
        st.builds(Series, name=NAMES, points=st.lists(POINTS, max_size=6), dashed=st.booleans()), min_size=1, max_size=5
    ),
)


@settings(max_examples=100, deadline=None)
@given(FIGURES, st.sampled_from([NARROW, WIDE]))
def test_any_figure_is_drawn_within_its_bounds(drawn: Figure, width: float) -> None:
    text = draw(drawn, width)
    root = parsed(text)
    right, bottom = size_of(root)
    assert right == width
    for x, y in places(root):
        assert -0.1 <= x <= right + 0.1
        assert -0.1 <= y <= bottom + 0.1
    numbers = " ".join(v for e in root.iter() for k, v in e.attrib.items() if k not in ("style", "role"))
    assert "nan" not in numbers and "inf" not in numbers
    assert is_empty(drawn) == ("nothing to show" in texts(root))


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_what_a_reader_sees_of_text_is_within_the_drawing(width: float) -> None:
    for section in sample_document().sections:
        for drawn in section.figures:
            root = parsed(draw(drawn, width))
            for element in root.iter(f"{NS}text"):
                size = float(element.attrib["font-size"])
                wide = width_of(element.text or "", size) / 1.05
                x = float(element.attrib["x"])
                start = {"start": x, "middle": x - wide / 2, "end": x - wide}[element.attrib["text-anchor"]]
                assert start >= -1, (drawn.id, element.text)
                assert start + wide <= width + 1, (drawn.id, element.text)


@pytest.mark.parametrize("kind", KINDS)
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
    kind: Kind, points: list[tuple[float, float]]
) -> None:
    root = parsed(draw(figure(points, kind=kind)))
    assert len([title for title in titles(root) if ": " in title]) == len(points)
    assert len(texts(root)) >= 3, "numbers along both axes"


def test_a_screen_reader_is_told_what_is_seen() -> None:
    root = parsed(draw(scaling()))
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{NS}title") == "Time of a step as the catalogue grows"
    told = root.findtext(f"{NS}desc") or ""
    assert "milliseconds a step by items in the catalogue" in told
    assert "SDAC: 4.511 to 567.9" in told


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_show_is_said(kind: Kind) -> None:
    empty = figure([], kind=kind)
    assert is_empty(empty)
    assert texts(parsed(draw(empty))) == ["nothing to show"]


def test_what_has_no_place_on_a_log_axis_is_left_out_and_said() -> None:
    log = Axis(label="y", log=True)
    root = parsed(draw(figure([(1, 10), (2, 0), (3, -5), (4, 1000)], y=log)))
    assert len(titles(root)) == 2
    assert any("2 not shown: a log axis" in text for text in texts(root))
    nothing = figure([(1, 0)], y=log)
    assert is_empty(nothing)
    assert {"nothing to show"} < set(texts(parsed(draw(nothing))))
    point = Point(x=1, y=5, low=-1, high=9)
    reaching = Figure(id="f", title="", kind="lines", x=Axis(label=""), y=log, series=[Series(name="", points=[point])])
    assert any("Intervals that reach 0" in text for text in texts(parsed(draw(reaching))))


def test_an_equal_distance_on_a_log_axis_is_an_equal_factor() -> None:
    root = parsed(
        draw(figure([(1, 1), (10, 10), (100, 100)], x=Axis(label="x", log=True), y=Axis(label="y", log=True)))
    )
    dots = [
        (float(c.attrib["cx"]), float(c.attrib["cy"]))
        for c in root.iter(f"{NS}circle")
        if c.find(f"{NS}title") is not None
    ]
    (x0, y0), (x1, y1), (x2, y2) = dots
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2) and y0 > y1


def test_the_line_asked_for_is_drawn_and_written_even_far_from_the_data() -> None:
    for kind in KINDS:
        for width in (NARROW, WIDE):
            drawn = draw(figure([(0, 3), (1, 4)], kind=kind, y=Axis(label="y", line=1)), width)
            assert "stroke-dasharray:2 3" in drawn
            bold = [e.text for e in parsed(drawn).iter(f"{NS}text") if "600" in e.attrib.get("style", "")]
            assert [text for text in bold if text and text[0].isdigit()] in (["1"], ["1.0"])


def test_bars_are_grouped_with_whiskers_from_zero() -> None:
    root = parsed(draw(ope_bars()))
    bars = [e for e in root.iter(f"{NS}rect") if e.find(f"{NS}title") is not None]
    assert len(bars) == 30
    bottoms = {round(float(e.attrib["y"]) + float(e.attrib["height"])) for e in bars}
    assert len(bottoms) == 1, "all stand on zero"
    spans = sorted((float(e.attrib["x"]), float(e.attrib["x"]) + float(e.attrib["width"])) for e in bars)
    assert all(a[1] <= b[0] + 0.11 for a, b in itertools.pairwise(spans)), "none covers another"
    first = titles(root)
    assert any(title.startswith("popular, weighted importance sampling: 0.8") and "[" in title for title in first)


def test_bars_lie_down_when_their_names_do_not_fit() -> None:
    names = [f"a method with a long name, number {place}" for place in range(10)]
    lying = figure([(place, place) for place in range(10)], kind="bars", x=Axis(label="", names=names))
    written = texts(parsed(draw(lying)))
    assert all(name in written for name in names)
    assert "rotate" not in draw(lying)


def test_names_stand_at_the_ends_of_lines_or_in_a_legend() -> None:
    apart = figure([(0, 0), (1, 1)], [(0, 0), (1, 5)], names=["low one", "high one"])
    ends = [e for e in parsed(draw(apart)).iter(f"{NS}text") if e.text == "high one"]
    assert float(ends[0].attrib["x"]) > WIDE * 0.8
    for crowded in (many_lines(), figure([(0, 0), (1, 1)], [(0, 0), (0.4, 5)], names=["low one", "high one"])):
        root = parsed(draw(crowded))
        for series in crowded.series:
            assert texts(root).count(series.name) == 1
            place = next(e for e in root.iter(f"{NS}text") if e.text == series.name)
            assert float(place.attrib["x"]) < WIDE * 0.8


def test_twelve_series_differ_without_colour() -> None:
    shapes = {marker(index, 0, 0, 4).replace(f"--c{index % 8 + 1},{LIGHT[index % 8]}", "") for index in range(12)}
    assert len(shapes) == 12
    hatches = {bar(index, Box(0, 0, 40, 40)).split("/>", 1)[1] for index in range(6)}
    assert len(hatches) == 6


def test_hatches_stay_in_their_bars() -> None:
    for index in range(1, 7):
        root = parsed(
            f'<svg xmlns="{NS[1:-1]}"><g transform="translate(0 0)">{bar(index, Box(10, 20, 33, 71))}</g></svg>'
        )
        assert all(9.9 <= x <= 33.1 and 19.9 <= y <= 71.1 for x, y in places(root))


def test_labels_of_a_scatter_do_not_overlap() -> None:
    points = [Point(x=math.cos(k), y=math.sin(k * 1.7), label=f"method {k}") for k in range(30)]
    drawn = Figure(
        id="f", title="", kind="points", x=Axis(label="x"), y=Axis(label="y"), series=[Series(name="", points=points)]
    )
    root = parsed(draw(drawn))
    boxes = []
    for element in root.iter(f"{NS}text"):
        if "paint-order" in element.attrib["style"]:
            x, y, size = (float(element.attrib[key]) for key in ("x", "y", "font-size"))
            boxes.append(Box(x, y - size * 0.8, x + width_of(element.text or "", size) * 0.95, y + size * 0.2))
    assert len(boxes) > 20
    assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])
    left_out = 30 - len(boxes)
    assert (left_out > 0) == any(f"{left_out} labels are left out" in text for text in texts(root))


def test_labels_that_find_no_room_are_counted() -> None:
    points = [Point(x=0, y=0, label=f"the very same place {k}") for k in range(60)]
    drawn = Figure(
        id="f", title="", kind="points", x=Axis(label="x"), y=Axis(label="y"), series=[Series(name="", points=points)]
    )
    written = texts(parsed(draw(drawn)))
    count = sum(text.startswith("the very same") for text in written)
    assert 0 < count < 60
    assert any(f"{60 - count} labels are left out" in text for text in written)


def test_a_long_line_is_thinned_but_keeps_its_peak() -> None:
    values = [(float(step), math.sin(step / 500)) for step in range(50_000)]
    values[31_234] = (31_234.0, 9.0)
    kept = shown(figure(values)).series[0]
    assert len(kept) < 2000
    assert max(dot.y for dot in kept) == 9.0
    assert (kept[0].x, kept[-1].x) == (0, 49_999)
    assert len(draw(figure(values))) < 60_000


def test_many_dots_and_bars_are_cut_and_it_is_said() -> None:
    dots = draw(figure([(k, k % 7) for k in range(9000)], kind="points"))
    assert "One point in 3 of 9,000 is shown." in dots
    bars = draw(figure([(k, k % 7) for k in range(900)], kind="bars"))
    assert "The first 400 of 900 places are shown." in bars


def test_markup_in_any_text_stays_text() -> None:
    evil = "<script>alert('x')</script>\" onload=\"y\x00\x1b\u202e"
    axis = Axis(label=evil, names=[evil, evil])
    for kind in KINDS:
        points = [Point(x=0, y=1, label=evil), Point(x=1, y=2, label=evil)]
        drawn = Figure(
            id=evil, title=evil, kind=kind, x=axis, y=Axis(label=evil), series=[Series(name=evil, points=points)] * 2
        )
        for width in (NARROW, WIDE):
            root = parsed(draw(drawn, width))
            assert not [e for e in root.iter() if e.tag.removeprefix(NS) not in
                        {"svg", "g", "title", "desc", "path", "text", "circle", "rect"}]  # fmt: skip
            assert not [key for e in root.iter() for key in e.attrib if key.startswith("on")]


def test_no_sign_of_markup_survives_in_elements_or_attributes() -> None:
    assert escaped("<a href=\"x\" b='y'>&\x00") == "&lt;a href=&quot;x&quot; b=&#x27;y&#x27;&gt;&amp;\ufffd"


@given(st.text(max_size=200), st.floats(20, 400), st.floats(8, 16))
def test_shortened_and_wrapped_text_fits(text: str, room: float, size: float) -> None:
    assert width_of(shorten(text, room, size), size) <= room + 1e-6
    assert all(width_of(line, size) <= room + 1e-6 for line in wrap(text, room, size))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_spread_labels_keep_their_order_and_distance(wanted: list[float]) -> None:
    placed = spread(wanted, 12, 0, 100)
    assert min(placed) >= -1e-9 and max(placed) <= 100 + 1e-9
    in_order = [placed[index] for index in sorted(range(len(wanted)), key=lambda index: wanted[index])]
    assert all(b - a >= 12 - 1e-9 for a, b in itertools.pairwise(in_order))


def test_labels_keep_within_and_clear() -> None:
    labels = place([("here", 50, 50), ("there", 52, 50), ("", 10, 10)], [Box(46, 46, 56, 54)], Box(0, 0, 200, 100), 10)
    assert labels[2] is None
    assert all(label is not None for label in labels[:2])


def test_ids_become_different_safe_names() -> None:
    assert slugs(["Loss", "loss", "../../etc/passwd", "", "é ü", "<b>", "loss-2"]) == [
        "loss", "loss-2", "etc-passwd", "part", "e-u", "b", "loss-2-2",
    ]  # fmt: skip
