"""Scripts rely on the keys that `--json` answers with: keys may be added, never renamed or removed.

tests/fixtures/json_keys.json holds the keys, nested ones with dots, those of list elements behind [].
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ecoc.cli import app

KEYS: dict[str, list[str]] = json.loads((Path(__file__).parent.parent / "fixtures" / "json_keys.json").read_text())
SETTINGS = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=20", "train.patience=0"]
SETTINGS += ["train.validate_every=10", "train.validation_cases=100"]
METHODS = ("supervised", "ecoc")
COMMANDS = {
    "info data": "info {data}",
    "info run": "info {ecoc} --verify",
    "info bundle": "info {bundle} --verify",
    "export": "export {ecoc} -o {bundle} --overwrite",
    "evaluate": "evaluate {ecoc} --max-cases 200",
    "compare": "compare {supervised} {ecoc} --max-cases 200",
    "recommend": "recommend {ecoc} --history i0003:buy,nonsense -k 3",
    "normtest": "normtest {supervised} {ecoc}",
    "simulate": "simulate {supervised} {ecoc} --users 20 --members 2",
    "report": "report {supervised} -o {folder}/report.html",
}


def answer(*words: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*map(str, words), "--json", "--quiet"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


def key_paths(value: Any, before: str = "") -> Iterator[str]:
    """Keys with those they lie in: `runs[].metrics.hr@10`."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{before}{key}"
            yield from key_paths(part, f"{before}{key}.")
    elif isinstance(value, list):
        for part in value:
            yield from key_paths(part, f"{before.rstrip('.')}[].")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("keys")
    answer("prepare", "world:small", "-o", folder / "data", "--events", 4000)
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    trained = {
        name: answer("train", folder / "data", "-o", folder / name, "--method", name, *words) for name in METHODS
    }
    answer("export", folder / "ecoc", "-o", folder / "bundle")
    runs = {name: folder / name for name in METHODS}
    return {"folder": folder, "data": folder / "data", "trained": trained, "bundle": folder / "bundle", **runs}


@pytest.mark.parametrize("method", METHODS)
def test_train_answers_with_its_keys(places: dict[str, Any], method: str) -> None:
    assert missing(f"train {method}", places["trained"][method]) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_with_its_keys(places: dict[str, Any], name: str) -> None:
    content = answer(*COMMANDS[name].format(**places).split())
    assert missing(name, content) == set()


def test_a_missing_key_would_be_noticed() -> None:
    assert missing("recommend", {"results": [{"items": [{"item": "a", "title": "b", "score": 1}]}]}) == {
        "results[].unknown",
        "results[].unknown_feedback",
        "results[].items[].value",
    }


def missing(name: str, content: dict[str, Any]) -> set[str]:
    return set(KEYS[name]) - set(key_paths(content))
