"""A bundle of every released format opens and answers as it did. tests/fixtures/bundle_1 is the first.

It was made by `ecoc export tests/fixtures/version_0_1/ecoc -o tests/fixtures/bundle_1`, and `answers.json` by `record`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import ecoc
from ecoc.errors import ArtifactError
from ecoc.serving.engine import Request, Served, run_batch

FIXTURE = Path(__file__).parents[1] / "fixtures" / "bundle_1"
HISTORIES: list[list[Any]] = [["i0003", ["i0017", "buy"]], ["i0150"], [], [f"i{n:04d}" for n in range(40)]]
MODES: list[dict[str, Any]] = [
    {},
    {"rank_by": "policy"},
    {"rank_by": "blend", "w": 2.0},
    {"rank_by": "rerank", "m": 8},
    {"rank_by": "cosine"},
]


def answers() -> list[dict[str, Any]]:
    served = Served(ecoc.load(FIXTURE))
    requests = [
        Request([event if isinstance(event, str) else tuple(event) for event in history], k=5, **mode)
        for history in HISTORIES
        for mode in MODES
    ]
    return [
        {"items": answer.items, "scores": answer.scores, "values": answer.values, "titles": answer.titles}
        for answer in run_batch(served, [served.read(request) for request in requests])
    ]


def record() -> None:
    """Write the answers of today's code; only for a new format."""
    (FIXTURE / "answers.json").write_text(json.dumps(answers(), indent=1) + "\n", encoding="utf-8")


def test_a_bundle_of_an_earlier_version_answers_as_it_did() -> None:
    expected = json.loads((FIXTURE / "answers.json").read_text(encoding="utf-8"))
    for now, then in zip(answers(), expected, strict=True):
        assert (now["items"], now["titles"]) == (then["items"], then["titles"])
        assert now["scores"] == pytest.approx(then["scores"], rel=1e-6, abs=1e-6)
        assert (now["values"] is None) == (then["values"] is None)
        if then["values"] is not None:
            assert now["values"] == pytest.approx(then["values"], rel=1e-6, abs=1e-6)


def test_a_bundle_of_a_later_version_says_so(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "bundle")
    path = tmp_path / "bundle" / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}), encoding="utf-8")
    with pytest.raises(ArtifactError, match="version '2' of the format; this ecoc reads 1"):
        ecoc.load(tmp_path / "bundle")


def test_fixtures_stay_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURE.iterdir()) <= 120_000
