"""The sphere of the page: where items and actions lie, against slow references."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ecoc
from ecoc.errors import InputError
from ecoc.model import Event, as_history
from ecoc.serving import sphere as module
from ecoc.serving.engine import Served
from ecoc.serving.sphere import LONGEST_TITLE, Point, Sphere, short_title

HISTORIES: list[list[Event]] = [["i0012"], [("i0012", "buy"), "i0034", ("i0056", "ignore")], ["i0150"] * 30]
ROUNDED = 1e-4  # coordinates have four digits


def opened(path: Path) -> Sphere:
    return Sphere(Served(ecoc.load(path)))


def vectors_of(sphere: Sphere) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Item vectors as scores use them, in the order of the sphere's items."""
    model = sphere.served.model
    order = model.vocab.indices([place.item for place in sphere.items()]).astype(np.int64)
    vectors = model.policy.vectors()
    assert vectors is not None
    return vectors.detach().double().numpy()[order]


def near(point: Point | None, direction: np.ndarray[Any, Any], sphere: Sphere) -> bool:
    assert point is not None
    expected = direction / np.linalg.norm(direction) @ sphere.axes
    return bool(np.abs(expected - [point.x, point.y]).max() <= ROUNDED)


@pytest.mark.parametrize("name", ["ecoc-bundle", "ecoc-counts", "supervised-bundle", "hypergraph"])
def test_items_are_projected_on_the_leading_directions(models: Path, name: str) -> None:
    """Points lie in the unit disc; the plane is the one that a singular value decomposition gives."""
    sphere = opened(models / name)
    places = sphere.items()
    points = np.array([[place.x, place.y] for place in places])
    assert (np.hypot(points[:, 0], points[:, 1]) <= 1 + ROUNDED).all()
    unit = vectors_of(sphere)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    _, singular, rows = np.linalg.svd(unit - unit.mean(0), full_matrices=False)
    assert np.abs(np.abs(unit @ rows[:2].T) - np.abs(points)).max() <= 1e-3, "signs are free"
    assert sphere.share == pytest.approx((singular[:2] ** 2).sum() / (singular**2).sum(), abs=1e-4)
    counts = sphere.served.model.vocab.popularity()
    order = sphere.served.model.vocab.indices([place.item for place in places]).astype(np.int64)
    assert (np.diff(counts[order]) <= 0).all(), "popular items first"


@pytest.mark.parametrize("name", ["ecoc-bundle", "ecoc", "ecoc-counts", "supervised-bundle"])
def test_the_action_of_the_policy_is_its_state(models: Path, name: str) -> None:
    """The policy scores by mu . v, so its action must be the direction of mu."""
    sphere = opened(models / name)
    model = sphere.served.model
    policy = model.policy.without_counts.ranked_by("policy")
    for history in HISTORIES:
        with torch.inference_mode():
            mu = policy.query(as_history([model.read(history)], policy.length)).vector[0].double().numpy()
        assert near(sphere.action(history, "policy", None), mu, sphere)


def test_another_direction_would_be_noticed(models: Path) -> None:
    sphere = opened(models / "ecoc-bundle")
    assert not near(sphere.action(HISTORIES[0], "policy", None), np.ones(8), sphere)
    assert not near(sphere.action(HISTORIES[0], "blend", 10), np.asarray(sphere.axes[:, 0]), sphere)


@pytest.mark.parametrize("w", [0.0, 1.0, 50.0])
def test_the_action_of_the_blend_is_the_nearest_direction(models: Path, w: float) -> None:
    """Least squares with a free constant over the scores that the server lists."""
    sphere = opened(models / "ecoc-bundle")
    vectors, items = vectors_of(sphere), [place.item for place in sphere.items()]
    for history in HISTORIES:
        ranked = sphere.served.model.ranked_by("blend", w=w).recommend([history], k=len(items), exclude_seen=False)
        score_of = dict(zip(ranked.items[0], ranked.scores[0], strict=True))
        scores = np.array([score_of[item] for item in items])
        design = np.column_stack([vectors, np.ones(len(items))])
        direction = np.linalg.lstsq(design, scores, rcond=None)[0][:-1]
        assert near(sphere.action(history, "blend", w), direction, sphere)
    if w == 0:
        assert sphere.action(HISTORIES[1], "blend", w) == sphere.action(HISTORIES[1], "policy", None)


def test_no_known_item_gives_no_action(models: Path) -> None:
    sphere = opened(models / "ecoc-bundle")
    assert sphere.action([], "policy", None) is None
    assert sphere.action(["nowhere"], None, None) is None
    assert [place.item for place in sphere.places(["i0034", "nowhere", "i0012"])] == ["i0034", "i0012"]


def test_large_catalogues_show_popular_items(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = opened(models / "ecoc-bundle").items()
    monkeypatch.setattr(module, "MOST_ITEMS", 50)
    sphere = opened(models / "ecoc-bundle")
    assert [place.item for place in sphere.items()] == [place.item for place in every[:50]]
    assert sphere.total == 200
    rare = sphere.places([every[-1].item])
    assert np.hypot(rare[0].x, rare[0].y) <= 1 + ROUNDED


def test_a_method_without_vectors_has_no_sphere(models: Path) -> None:
    with pytest.raises(InputError, match="Method markov has no item vectors"):
        opened(models / "markov-bundle")


def test_vectors_of_one_dimension_lie_on_a_line() -> None:
    axes, share = module._principal_directions(np.array([[1.0], [-1.0], [1.0]]))
    assert axes.tolist() == [[1.0, 0.0]]
    assert share == 1.0
    assert module._principal_directions(np.ones((3, 4)))[1] == 1.0, "equal vectors have no variance"


def test_titles_are_cut() -> None:
    assert short_title(None) is None
    assert short_title("a" * LONGEST_TITLE) == "a" * LONGEST_TITLE
    cut = short_title("a" * (LONGEST_TITLE + 1))
    assert cut == "a" * (LONGEST_TITLE - 1) + "…"
