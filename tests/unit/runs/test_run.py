"""A run folder from Python: its typed result, its metrics as a table, its model, and how far an unfinished one got."""

import builtins
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ecoc
from ecoc.errors import ArtifactError, InputError
from ecoc.runs.result import TrainResult
from ecoc.runs.status import run_status

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG: dict[str, Any] = {
    "encoder": {"dim": 8, "length": 6},
    "train": {"batch": 8, "max_steps": 6, "validate_every": 3, "log_every": 2, "ema": 0.1},
}


class StopAt(ecoc.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, run: ecoc.Run, result: ecoc.StepResult) -> None:
        if result.step == self.step:
            raise RuntimeError("stop here")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, write_log: Callable[..., Path]) -> ecoc.Dataset:
    folder = tmp_path_factory.mktemp("runs")
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "ts"}
    return ecoc.prepare(write_log(folder / "log.csv"), folder / "data", threads=1, **columns)


@pytest.fixture(scope="module")
def run(data: ecoc.Dataset, tmp_path_factory: pytest.TempPathFactory) -> ecoc.Run:
    return ecoc.train(data, tmp_path_factory.mktemp("finished") / "run", config=CONFIG)


@pytest.fixture(scope="module")
def unfinished(data: ecoc.Dataset, tmp_path_factory: pytest.TempPathFactory) -> ecoc.Run:
    out = tmp_path_factory.mktemp("unfinished") / "a run"
    with pytest.raises(RuntimeError, match="stop here"):
        ecoc.train(data, out, config=CONFIG, callbacks=[StopAt(4)])
    return ecoc.Run(out)


def test_the_result_is_typed_and_is_what_the_file_holds(run: ecoc.Run, data: ecoc.Dataset) -> None:
    result = run.result
    assert isinstance(result, TrainResult)
    written = json.loads((run.path / "result.json").read_text())
    assert result.values() == written
    assert list(result.values()) == list(written), "in the same order"
    assert (result.method, result.encoder, result.steps) == ("supervised", "sasrec", 6)
    assert result.data is not None
    assert (result.data.path, result.data.checksum) == (str(data.path), data.checksum)
    assert result.dims.items == result.items == data.counts.items
    text = repr(result)
    assert re.match(r"TrainResult\(run='.*', method='supervised', encoder='sasrec', items=\d+, steps=6, ", text)
    assert "ndcg@20=0." in text
    assert "sha256" not in text
    assert str(result) == text
    with pytest.raises(ValueError, match="frozen"):
        result.steps = 7  # type: ignore[misc]


def test_a_result_called_as_a_function_warns_and_gives_the_dictionary(run: ecoc.Run) -> None:
    with pytest.warns(DeprecationWarning, match=r"Run\.result is a property now"):
        assert run.result() == run.result.values()
    with pytest.warns(DeprecationWarning, match="no longer dictionaries"):
        assert run.result["steps"] == 6


def test_numbers_that_are_whole_in_the_file_stay_whole(data: ecoc.Dataset, tmp_path: Path) -> None:
    popular = ecoc.train(data, tmp_path / "popular", method="popular").result
    assert (popular.encoder, popular.validation, popular.best_weights) == (None, None, None)
    assert json.dumps(popular.values()["epochs"]) == "0"
    assert "best_weights" not in popular.values(), "keys that the file lacks are not made up"


@pytest.mark.parametrize("key", ["reward_unit", "best_weights", "parts", "data", "peak_rss_bytes", "validation"])
def test_a_result_of_an_older_version_may_lack_newer_keys(run: ecoc.Run, tmp_path: Path, key: str) -> None:
    written = json.loads((run.path / "result.json").read_text())
    written.pop(key)
    (tmp_path / "result.json").write_text(json.dumps({**written, "of a newer version": 1}))
    result = ecoc.Run(tmp_path).result
    assert result.values() == {**written, "of a newer version": 1}
    assert result.reward_unit == 1.0 or key != "reward_unit"


@pytest.mark.parametrize(("key", "value"), [("steps", "many"), ("items", 0), ("dims", {}), ("seconds", "nan")])
def test_a_result_with_a_wrong_value_is_refused_by_its_key(
    run: ecoc.Run, tmp_path: Path, key: str, value: object
) -> None:
    written = json.loads((run.path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps({**written, key: value}))
    with pytest.raises(ArtifactError, match=rf"result\.json: not the result of a run \('{key}"):
        _ = ecoc.Run(tmp_path).result


def test_metrics_are_a_frame_with_a_row_per_line(run: ecoc.Run) -> None:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    frame, table = run.metrics(), run.metrics_table()
    assert isinstance(table, pa.Table)
    assert list(frame.columns) == table.column_names
    assert frame["step"].tolist() == [line["step"] for line in lines] == [2, 3, 4, 6, 6]
    assert table["loss"].to_pylist() == [line.get("loss") for line in lines]
    for kind in ("validation", "validation_ema"):
        values = [line.get(kind, {}).get("ndcg@20") for line in lines]
        assert table[f"{kind}/ndcg@20"].to_pylist() == values
        assert sum(value is not None for value in values) == 2
    assert table["is_best"].to_pylist()[1] is True
    assert pa.types.is_integer(table.schema.field("step").type)


def test_metrics_without_pandas_name_the_way_out(run: ecoc.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pandas is not installed; install it, or use Run\.metrics_table"):
        run.metrics()


@pytest.mark.parametrize("content", ["[1]\n", "{\n", "\x00", "[" * 100_000, '{"step": 1}\n{"step": [}\n'])
def test_broken_metrics_are_an_artifact_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(content)
    with pytest.raises(ArtifactError, match=r"metrics\.jsonl: not the metrics of a run; train again"):
        ecoc.Run(tmp_path).metrics_table()


def test_metrics_of_very_large_numbers_are_refused_or_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 1' + "0" * 400 + "}\n")
    with pytest.raises(ArtifactError, match="not the metrics of a run"):
        ecoc.Run(tmp_path).metrics_table()


def test_the_model_of_a_run_recommends(run: ecoc.Run, unfinished: ecoc.Run) -> None:
    assert run.model.recommend([["i1"]], k=3).items == ecoc.load(run.path).recommend([["i1"]], k=3).items
    with pytest.raises(InputError, match="not finished; resume it with ecoc train --resume"):
        _ = unfinished.model


@pytest.mark.parametrize(
    "open_it",
    [
        lambda run: run.config(),
        lambda run: run.result,
        lambda run: run.model,
        lambda run: run.metrics(),
        lambda run: run.metrics_table(),
        run_status,
        lambda run: ecoc.load(run.path),
        lambda run: ecoc.evaluate(run.path),
        lambda run: ecoc.compare([run.path]),
    ],
)
def test_a_folder_that_is_missing_says_so(tmp_path: Path, open_it: Callable[[ecoc.Run], object]) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder; give the folder of a run"):
        open_it(ecoc.Run(tmp_path / "nowhere"))


def test_a_run_may_be_opened_by_text_and_by_nothing_else(run: ecoc.Run) -> None:
    assert ecoc.Run(str(run.path)) == run
    assert hash(ecoc.Run(str(run.path))) == hash(run)
    with pytest.raises(InputError, match="path: expected a path"):
        ecoc.Run(3)  # type: ignore[arg-type]


def test_an_unfinished_run_tells_how_far_it_got_and_how_to_resume(
    unfinished: ecoc.Run, data: ecoc.Dataset, run: ecoc.Run
) -> None:
    status = run_status(unfinished)
    assert (status.is_finished, status.step, status.steps, status.best_step) == (False, 4, 6, 3)
    assert status.validation is not None
    assert status.resume is not None
    assert shlex.split(status.resume) == ["ecoc", "train", str(data.path), "--out", str(unfinished.path), "--resume"]
    lines = str(status).splitlines()
    assert lines[0] == f"{unfinished.path}: supervised, sasrec, not finished"
    assert re.fullmatch(r"  saved      step 4 of 6, after \d+ s of training", lines[1])
    assert re.fullmatch(r"  best       ndcg@20 0\.\d{4} in validation, at step 3", lines[2])
    assert lines[3] == f"  resume     {status.resume}"
    assert run_status(run).is_finished
    assert run_status(run).resume is None


def test_a_run_without_a_checkpoint_is_described_too(unfinished: ecoc.Run, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text((unfinished.path / "config.toml").read_text())
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000000009.safetensors").write_text("its JSON never came")
    status = run_status(ecoc.Run(tmp_path))
    assert (status.step, status.steps, status.validation) == (0, None, None)
    assert "no step yet" in str(status)
    assert status.resume == f"ecoc train DATA --out {tmp_path} --resume"


def test_info_describes_an_unfinished_run(unfinished: ecoc.Run, run_ecoc: Callable[..., Any]) -> None:
    answer = run_ecoc("info", unfinished.path, "--json")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == {"kind": "run", **run_status(unfinished).model_dump(mode="json")}
    assert run_ecoc("info", unfinished.path).stdout.rstrip("\n") == str(run_status(unfinished))
