"""`ecoc.train` around the loop: kinds of config, the monitored metric, overwrite, messages, what an interrupt says."""

import json
import logging
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training_case import CONFIG, config, small_data

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.errors import InputError, Terminated

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def data(folder: Path, write_log: Callable[..., Path]) -> Dataset:
    return small_data(folder, write_log)


@pytest.fixture(scope="module")
def run(folder: Path, data: Dataset) -> ecoc.Run:
    return ecoc.train(data, folder / "run", config=config())


class SignalAt(ecoc.Callback):
    """Sends a signal to the process after a step."""

    def __init__(self, step: int, number: signal.Signals) -> None:
        self.step, self.number = step, number

    def on_step(self, run: ecoc.Run, result: ecoc.StepResult) -> None:
        if result.step == self.step:
            os.kill(os.getpid(), self.number)


def test_a_config_may_be_a_mapping_an_object_or_a_file(data: Dataset, run: ecoc.Run, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "object": run.config(),
        "file": run.path / "config.toml",
        "text": str(run.path / "config.toml"),
    }
    for name, value in given.items():
        again = ecoc.train(data, tmp_path / name, config=value)
        assert again.config() == run.config()
        assert again.result.weights_sha256 == run.result.weights_sha256


def test_the_former_name_settings_warns_and_goes_before_config(data: Dataset, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="pass config= in place of settings="):
        run = ecoc.train(data, tmp_path / "run", config=config(), settings={"train": {"max_steps": 2}})
    assert run.result.steps == 2
    assert run.config().encoder.dim == CONFIG["encoder"]["dim"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"config": 3}, "config: expected a RunConfig, a mapping of settings or the path of a TOML file; found 3"),
        ({"config": {1: 2}}, "config: expected a mapping"),
        ({"config": "nowhere.toml"}, r"nowhere\.toml: missing"),
        ({"monitor": "ndgc@20"}, r"train\.monitor: unknown metric 'ndgc@20'; did you mean 'ndcg@20'\?"),
        ({"monitor": "ndcg"}, r"train\.monitor: .*write ndcg@k"),
        ({"config": {"train": {"monitor": "x" * 900}}}, r"train: monitor: "),
        ({"resume": True, "overwrite": True}, "pass one of them"),
        ({"resume": "yes"}, "resume: expected True or False"),
        ({"overwrite": 1}, "overwrite: expected True or False"),
        ({"method": "zzz"}, "unknown method 'zzz'"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line_before_anything_is_written(
    data: Dataset, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as raised:
        ecoc.train(data, tmp_path / "run", **arguments)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("out", [None, 3, "a\0b"])
def test_a_wrong_folder_is_refused(data: Dataset, out: Any) -> None:
    with pytest.raises(InputError, match=r"^out: expected a path"):
        ecoc.train(data, out)


def test_the_monitored_metric_chooses_the_weights_and_is_kept(data: Dataset, tmp_path: Path) -> None:
    seen: dict[str, list[ecoc.ValidationResult]] = {}

    class Keep(ecoc.Callback):
        def on_validation(self, run: ecoc.Run, result: ecoc.ValidationResult) -> None:
            seen.setdefault(run.name, []).append(result)

    for monitor in ("hr@5", "mrr@50"):
        out = tmp_path / monitor
        run = ecoc.train(data, out, config=config(max_steps=40, lr=0.02), monitor=monitor, callbacks=[Keep()])
        assert run.config().train.monitor == monitor
        values = [result.metrics[monitor] for result in seen[monitor]]
        assert len(set(values)) > 2, "the validations differ"
        assert run.result.validation is not None
        assert run.result.validation[monitor] == max(values)
        assert [result.is_best for result in seen[monitor]] == [
            value > max(values[:place], default=-1.0) for place, value in enumerate(values)
        ]
        assert all(monitor in line for line in (out / "log.txt").read_text().splitlines() if "validation hr" in line)
        with pytest.raises(InputError, match=r"began with train\.monitor"):
            ecoc.train(data, out, monitor="ndcg@20", resume=True)


def test_overwrite_replaces_a_run_and_nothing_else(data: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ecoc.train(data, out, config=config(max_steps=2))
    (out / "evaluations").mkdir()
    (out / "evaluations" / "old.json").write_text("{}")
    (out / "acting.json").write_text("{}")
    with pytest.raises(InputError, match="--resume to continue it or --overwrite to replace it"):
        ecoc.train(data, out, config=config(max_steps=3))
    with pytest.raises(InputError, match="unknown option"):
        ecoc.train(data, out, config={"train": {"steps": 3}}, overwrite=True)
    assert ecoc.Run(out).result.steps == 2, "wrong settings remove nothing"
    run = ecoc.train(data, out, config=config(max_steps=3), overwrite=True)
    assert run.result.steps == 3
    assert not (out / "evaluations").exists()
    assert not (out / "acting.json").exists()
    assert run.metrics_table()["step"].to_pylist() == [2, 3, 3]
    new = ecoc.train(data, tmp_path / "new", config=config(max_steps=2), overwrite=True)
    assert new.result.steps == 2, "there need not be a run"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="holds files that are no run"):
        ecoc.train(data, tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "letter.txt").read_text() == "mine"


def test_messages_go_to_the_logger_and_to_the_log_file(
    data: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG, logger="ecoc"):
        run = ecoc.train(data, tmp_path / "run", config=config(patience=3))
    assert {name for name, _, _ in caplog.record_tuples} == {"ecoc.training"}
    assert [text for _, _, text in caplog.record_tuples] == (run.path / "log.txt").read_text().splitlines()
    by_level = {level: [text for _, other, text in caplog.record_tuples if other == level] for level in (10, 20)}
    assert by_level[logging.DEBUG]
    assert all("validation" in text for text in by_level[logging.DEBUG])
    assert by_level[logging.INFO][0].startswith("train.exclude_seen = false: ")
    assert any(text.startswith("learns from ") for text in by_level[logging.INFO])
    assert any("stops after 3 validations without improvement" in text for text in by_level[logging.INFO])
    assert capfd.readouterr() == ("", ""), "a library prints nothing"


@pytest.mark.parametrize(
    ("number", "error", "word"),
    [(signal.SIGINT, KeyboardInterrupt, "interrupted"), (signal.SIGTERM, Terminated, "terminated")],
)
def test_an_interrupt_says_what_was_saved_and_how_to_resume(
    data: Dataset, run: ecoc.Run, tmp_path: Path, number: signal.Signals, error: type[BaseException], word: str
) -> None:
    out = tmp_path / "a run"
    with pytest.raises(error) as raised:
        ecoc.train(data, out, config=config(), callbacks=[SignalAt(5, number)])
    start, command = str(raised.value).split("; resume with: ")
    assert start.startswith(f"{word}; {out} is saved: step 5 of 12, after ")
    assert shlex.split(command) == ["ecoc", "train", str(data.path), "--out", str(out), "--resume"]
    resumed = ecoc.train(data, out, resume=True)
    assert resumed.result.weights_sha256 == run.result.weights_sha256


def test_an_interrupt_before_the_first_step_says_so(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ecoc.training.train.open_reward_scaler", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"is saved: no step yet, its settings only; resume with: ecoc train"):
        ecoc.train(data, tmp_path / "run", config=config())


def test_a_checkpoint_of_before_the_planned_steps_were_kept_resumes(
    data: Dataset, run: ecoc.Run, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        ecoc.train(data, out, config=config(), callbacks=[SignalAt(5, signal.SIGINT)])
    [path] = (out / "checkpoints").glob("step-000000000005.json")
    state = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in state.items() if key not in ("steps", "data")}))
    assert ecoc.train(data, out, resume=True).result.weights_sha256 == run.result.weights_sha256
