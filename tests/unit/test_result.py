"""The base of typed results: JSON keys, old access by key, tables, text, infinite numbers."""

import builtins
import json
import math
from collections.abc import Sequence

import pytest
from pydantic import Field, ValidationError

from ecoc.errors import InputError
from ecoc.result import Result, Row, TableResult


class Point(Result):
    w: float
    ndcg: float = Field(alias="ndcg@10")


class Curve(TableResult):
    points: list[Point]

    def records(self) -> Sequence[Row]:
        return [{"w": point.w, "ndcg": point.ndcg, "kind": "blend"} for point in self.points]

    def heading(self) -> str:
        return f"Curve: {len(self.points)} points"


CURVE = Curve(points=[Point(w=0, ndcg=0.5), Point(w=10, ndcg=0.25)])


def test_json_keys_are_the_aliases_and_read_back() -> None:
    values = CURVE.model_dump()
    assert values == {"points": [{"w": 0.0, "ndcg@10": 0.5}, {"w": 10.0, "ndcg@10": 0.25}]}
    assert Curve.model_validate_json(CURVE.model_dump_json()) == CURVE
    assert Curve.model_validate(values) == CURVE


def test_old_access_by_key_answers_with_a_warning() -> None:
    point = CURVE.points[1]
    with pytest.warns(DeprecationWarning, match=r"write \.ndcg in place of \['ndcg@10'\]"):
        assert point["ndcg@10"] == 0.25
    with pytest.warns(DeprecationWarning):
        assert dict(point) == {"w": 10.0, "ndcg@10": 0.25}
    assert "ndcg@10" in point and "hr@10" not in point
    with pytest.raises(KeyError):
        point["hr@10"]


def test_a_result_cannot_be_changed_and_holds_no_other_keys() -> None:
    with pytest.raises(ValidationError):
        CURVE.points[0].w = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Point.model_validate({"w": 1, "ndcg@10": 0.1, "reward": 2})


def test_infinite_numbers_are_saved_as_standard_json() -> None:
    text = Point(w=math.inf, ndcg=math.nan).model_dump_json()
    assert json.loads(text, parse_constant=pytest.fail) == {"w": "Infinity", "ndcg@10": "NaN"}
    again = Point.model_validate_json(text)
    assert again.w == math.inf and math.isnan(again.ndcg)


def test_tables_and_text() -> None:
    assert CURVE.to_table().to_pylist() == [
        {"w": 0.0, "ndcg": 0.5, "kind": "blend"},
        {"w": 10.0, "ndcg": 0.25, "kind": "blend"},
    ]
    assert CURVE.to_frame()["ndcg"].tolist() == [0.5, 0.25]
    assert str(CURVE).splitlines() == [
        "Curve: 2 points",
        "        w    ndcg  kind",
        "   0.0000  0.5000  blend",
        "  10.0000  0.2500  blend",
    ]
    assert repr(CURVE) == "<Curve: 2 points>"


def test_without_pandas_a_frame_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: object, **options: object) -> object:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pandas is not installed.*to_table\(\)"):
        CURVE.to_frame()
