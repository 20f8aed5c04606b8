"""Reading drawings back: where everything in an SVG lies."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

NS = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def size_of(root: ElementTree.Element) -> tuple[float, float]:
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    return width, height


def places(root: ElementTree.Element) -> Iterator[tuple[float, float]]:
    """Every coordinate that anything is drawn at, in those of the whole drawing."""
    for group in root.findall(f"{NS}g"):
        moved = re.fullmatch(r"translate\(0 ([\d.]+)\)", group.attrib["transform"])
        assert moved is not None
        for element in group.iter():
            for x, y in _own(element):
                yield x, y + float(moved[1])


def _own(element: ElementTree.Element) -> Iterator[tuple[float, float]]:
    get = element.attrib.get
    if "d" in element.attrib:
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", element.attrib["d"]):
            yield float(x), float(y)
    elif "cx" in element.attrib:
        yield float(get("cx", 0)), float(get("cy", 0))
    elif "x" in element.attrib:
        x, y = float(get("x", 0)), float(get("y", 0))
        yield x, y
        yield x + float(get("width", 0)), y + float(get("height", 0))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{NS}text")]


def titles(root: ElementTree.Element) -> list[str]:
    """What points say, without the title of the whole."""
    return [element.text or "" for element in root.iter(f"{NS}title")][1:]
