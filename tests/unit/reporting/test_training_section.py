import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ecoc.errors import ArtifactError, EcocError, InputError
from ecoc.reporting.sections.training import training_section
from ecoc.runs import metrics
from ecoc.runs.config import RunConfig


def train_line(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "epoch": step / 100, "loss": 5.0 / step, "loss/bc": 4.0 / step, "loss/td": 1.0 / step, **more}


def validation_line(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "validation": {"ndcg@20": 0.1 + step / 1e4},
        "validation_ema": {"ndcg@20": 0.2},
        "is_best": True,
    }


RESULT: dict[str, Any] = {
    "run": "market-run", "method": "ecoc", "encoder": "sasrec", "transitions": 9000, "transitions_per_second": 729.0,
    "weights_sha256": "00" * 32, "dims": {"items": 200, "users": 0, "feedback": 0},
    "items": 200, "steps": 150, "epochs": 1.5, "best_epoch": 1.0, "seconds": 12.3456, "parameters": 124609,
    "validation": {"ndcg@20": 0.19835}, "peak_rss_bytes": 591220736,
    "data": {"path": "/somewhere/market", "checksum": "bd049493954367aecc822afc82470f59"},
}  # fmt: skip


def make_run(folder: Path, lines: list[dict[str, Any] | str] | None = None, result: Any = RESULT) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(RunConfig.build({"method": {"name": "ecoc"}}).toml())
    if lines is None:
        lines = [train_line(50, **{"q/logged": 1.0, "q/policy": 1.1}), validation_line(60), train_line(100)]
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_losses_validation_and_values_become_curves(tmp_path: Path) -> None:
    section = training_section(make_run(tmp_path / "mine"))
    assert section.title == "Run mine: ecoc sasrec"
    loss, validation, values = section.figures
    assert [series.name for series in loss.series] == ["total", "bc", "td"]
    assert [(point.x, point.y) for point in loss.series[1].points] == [(50, 0.08), (100, 0.04)]
    assert [series.name for series in validation.series] == ["online weights", "averaged weights"]
    assert validation.series[0].points[0].y == pytest.approx(0.106)
    assert [series.name for series in values.series] == ["logged items", "the policy's first item"]
    facts = {str(row[0]): row[1] for row in section.tables[0].rows}
    assert facts["parameters"] == "124,609"
    assert facts["data"] == "market (bd049493954367ae)"
    assert facts["best validation NDCG@20"] == "0.1983"
    assert facts["peak memory, MB"] == "564"


def test_losses_of_very_different_sizes_get_a_log_axis(tmp_path: Path) -> None:
    near = training_section(make_run(tmp_path / "a", [train_line(1), train_line(2)])).figures[0]
    far = training_section(make_run(tmp_path / "b", [train_line(1, **{"loss/reg": 1e-4}), train_line(2)])).figures[0]
    below = training_section(make_run(tmp_path / "c", [train_line(1, **{"loss/reg": -1e-4})])).figures[0]
    assert (near.y.log, far.y.log, below.y.log) == (False, True, False)


def test_lines_cut_by_a_kill_are_left_out_and_said(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [
        train_line(1), '{"step": 2, "lo', "[]", '{"loss": 1}', '{"step": "x"}', '{"step": NaN}', "[" * 100_000,
        '{"step": 3, "loss": Infinity, "loss/bc": "no", "loss/td": true, "validation": 3}',
        '{"step": 4, "loss": ' + "9" * 400 + "}",
    ]  # fmt: skip
    section = training_section(make_run(tmp_path / "r", lines))
    assert [len(series.points) for series in section.figures[0].series] == [1, 1, 1]
    assert any(text.startswith("7 lines of metrics.jsonl could not be read") for text in section.caveats)


def test_a_step_told_twice_counts_once_in_order(tmp_path: Path) -> None:
    section = training_section(make_run(tmp_path / "r", [train_line(9), train_line(3), {"step": 9, "loss": 7.0}]))
    assert [(point.x, round(point.y, 3)) for point in section.figures[0].series[0].points] == [(3, 1.667), (9, 7.0)]


def test_a_run_that_is_not_finished_or_never_trained_still_tells(tmp_path: Path) -> None:
    unfinished = training_section(make_run(tmp_path / "a", result=None))
    assert "not finished" in unfinished.caveats[0]
    (make_run(tmp_path / "b") / "metrics.jsonl").unlink()
    untrained = training_section(tmp_path / "b")
    assert untrained.figures == []
    assert any("no curve" in text for text in untrained.caveats)


def test_garbage_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtifactError, match="no line of it"):
        training_section(make_run(tmp_path / "a", ["\x00\x01 garbage", "more"]))
    (make_run(tmp_path / "b") / "result.json").write_text("[1]")
    with pytest.raises(ArtifactError, match="no JSON object"):
        training_section(tmp_path / "b")
    with pytest.raises(InputError, match="ecoc train"):
        training_section(tmp_path / "nowhere")
    monkeypatch.setattr(metrics, "_LARGEST", 10)
    with pytest.raises(ArtifactError, match="more than the limit of 10"):
        training_section(make_run(tmp_path / "c"))


def test_a_long_run_is_thinned_to_its_end(tmp_path: Path) -> None:
    section = training_section(make_run(tmp_path / "r", [{"step": step, "loss": 1.0} for step in range(1, 9001)]))
    points = section.figures[0].series[0].points
    assert len(points) <= 2002
    assert (points[0].x, points[-1].x) == (1, 9000)


@pytest.mark.parametrize(
    "odd",
    [
        {"items": "many"},
        {"steps": None},
        {"data": {"path": ["x"] * 400}},
        {"validation": []},
    ],
)
def test_a_result_with_a_wrong_value_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    with pytest.raises(ArtifactError, match=f"not the result of a run .'{next(iter(odd))}"):
        training_section(make_run(tmp_path / "r", result=RESULT | odd))


def test_a_result_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"result\.json: not readable as JSON \(NaN is not a number"):
        training_section(make_run(tmp_path / "r", result=RESULT | {"seconds": float("nan")}))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["step", "loss", "loss/a", "validation", "validation_ema", "q/logged", "loss/" + "x" * 400])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, JSON, max_size=5) | st.text(max_size=20).map(str), max_size=5))
def test_any_journal_is_read_or_refused(tmp_path: Path, lines: list[dict[str, Any] | str]) -> None:
    try:
        training_section(
            make_run(tmp_path / "r", [line for line in lines if not isinstance(line, str) or line.isprintable()])
        )
    except EcocError as error:
        assert isinstance(error, ArtifactError)
