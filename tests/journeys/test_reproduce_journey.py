"""`ecoc reproduce` as a person uses it: the real command, from a small world to tables and a report."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ecoc
from ecoc.experiment.reproduce import reproduce
from ecoc.experiment.results import ReproductionResult
from ecoc.reporting.document import load_document

COMMAND = [str(Path(sys.executable).parent / "ecoc"), "reproduce"]
KEYS = {"experiment", "cells", "tables", "figures", "report", "trimmed"}
SMALL = ["--encoders", "sasrec", "--max-cases", "100"]


def call(folder: Path, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def computed(*arguments: Any, **options: Any) -> dict[str, Any]:
    """What `ecoc.reproduce` returns, as JSON has it."""
    result = reproduce(*arguments, **options)
    assert isinstance(result, ReproductionResult)
    return result.model_dump()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("reproduce")
    ecoc.prepare("world:small", found / "market", events=1_500)
    return found


@pytest.fixture(scope="module")
def imitated(folder: Path) -> dict[str, Any]:
    """Two methods, one encoder, two seeds."""
    words = ["imitation", "market", "-o", "out", "--methods", "supervised+ema,ecoc", "--seeds", 2, "--steps", 8]
    done = call(folder, *words, *SMALL, "--json")
    assert done.stdout.count("\n") == 1
    assert "5 jobs; 8 training steps per run, 2 seeds; about" in done.stderr
    assert "[5/5] run/sasrec/ecoc/8-steps/seed-1: ecoc, w = 0 0." in done.stderr
    return dict(json.loads(done.stdout))


def test_it_answers_every_key_of_the_contract(imitated: dict[str, Any]) -> None:
    assert set(imitated) >= KEYS
    for cell in imitated["cells"]:
        assert set(cell) >= {"method", "encoder", "seed", "status", "metrics", "seconds"}
        assert cell["status"] == "done"
    rows = {(cell["method"], cell["seed"]) for cell in imitated["cells"]}
    trained = {(name, seed) for name in ("supervised+ema", "ecoc, w = 0", "ecoc, w = 10") for seed in (0, 1)}
    assert rows == trained | {("popular", None), ("recent", None), ("markov", None)}
    assert imitated["trimmed"] == []


def test_its_tables_are_what_the_cells_say(imitated: dict[str, Any]) -> None:
    tables = {table["id"]: table for table in imitated["tables"]}
    assert set(tables) == {"imitation-hr", "imitation-mrr", "imitation-ndcg", "imitation-parts"}
    table = tables["imitation-ndcg"]
    place = [column["name"] for column in table["columns"]].index("NDCG@10")
    for row in table["rows"]:
        found = [cell["metrics"]["ndcg@10"] for cell in imitated["cells"] if cell["method"] == row[0]]
        assert row[place]["value"] == pytest.approx(sum(found) / len(found))
        assert (row[place]["sd"] is None) == (len(found) == 1)
    assert dict.fromkeys(table["groups"]) == {"sasrec": None, "no training": None}


def test_by_construction_the_cloned_policy_is_supervised_ema(imitated: dict[str, Any]) -> None:
    by_name = {(cell["method"], cell["seed"]): cell["metrics"] for cell in imitated["cells"]}
    for seed in (0, 1):
        assert by_name["ecoc, w = 0", seed] == by_name["supervised+ema", seed]
    row = next(row for row in imitated["tables"][2]["rows"] if row[0] == "ecoc, w = 0")
    assert row[-3]["value"] == 0
    assert row[-1] == "supervised+ema"
    assert row[-2]["value"] == 1


def test_the_report_tells_data_machine_versions_and_command(folder: Path, imitated: dict[str, Any]) -> None:
    document = load_document(folder / "out")
    assert document.facts["data checksum"] == ecoc.open_data(folder / "market").checksum
    assert set(document.facts) >= {"data", "data counts", "machine", "versions", "seeds", "date", "command"}
    assert document.facts["command"].startswith("ecoc reproduce imitation market -o out")
    (section,) = document.sections
    assert section.commands == [document.facts["command"]]
    rows = next(table["rows"] for table in imitated["tables"] if table["id"] == "imitation-ndcg")
    best = max(rows[:3], key=lambda row: float(row[2]["value"]))
    (finding,) = document.summary
    assert finding.startswith(f"Imitation, sasrec: {best[0]} ranks best, NDCG@10 {best[2]['value']:.4f}; ")
    assert any("no evidence for reinforcement learning" in text for text in section.caveats)
    assert Path(folder / imitated["report"]).is_file()


def test_asked_again_nothing_is_computed_and_the_tables_are_printed(folder: Path, imitated: dict[str, Any]) -> None:
    report = (folder / "out/report.json").read_bytes()
    words = ["imitation", "market", "-o", "out", "--methods", "supervised+ema,ecoc", "--seeds", 2, "--steps", 8]
    done = call(folder, *words, *SMALL)
    assert "5 of them done already" in done.stderr
    assert "[" not in done.stderr
    assert "NDCG on market" in done.stdout
    assert "report: out/report" in done.stdout
    again = (folder / "out/report.json").read_bytes()
    assert again.replace(b" --json", b"") == report.replace(b" --json", b"")


def test_more_of_it_shares_what_is_there(
    folder: Path, imitated: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another experiment in the same folder: its own section beside the first, common runs trained once."""
    monkeypatch.setattr("ecoc.experiment.context.TRUTH_USERS", 50)
    kept = {path: path.stat().st_mtime_ns for path in (folder / "out/cells/run").rglob("*.json")}
    options: dict[str, Any] = {"encoders": ["sasrec"], "seeds": 1, "steps": 8, "max_cases": 100}
    found = computed("ablation", folder / "market", folder / "out", **options)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [section.id for section in load_document(folder / "out").sections] == ["imitation", "ablation"]
    (table,) = found["tables"]
    assert [column["name"] for column in table["columns"]][-1] == "true reward per step"
    assert all(row[-1]["value"] > 0 for row in table["rows"])
    assert {figure["id"] for figure in found["figures"]} == {"ablation-ndcg20", "ablation-reward"}
    assert {cell["status"] for cell in found["cells"]} == {"done"}


def test_what_users_had_can_be_left_out(
    folder: Path, imitated: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In the folder of the other ranking: jobs of their own, the same runs, and what `ecoc evaluate` says of them."""
    trained = {path: path.stat().st_mtime_ns for path in (folder / "out/runs").rglob("result.json")}
    options: dict[str, Any] = {"methods": ["supervised+ema"], "encoders": ["sasrec"], "seeds": 1, "steps": 8}
    with caplog.at_level(logging.INFO, "ecoc.experiment"):
        found = computed("imitation", folder / "market", folder / "out", max_cases=100, exclude_seen=True, **options)
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
    (plan,) = (text for text in caplog.messages if text.startswith("imitation: "))
    assert "done already" not in plan
    (cell,) = (cell for cell in found["cells"] if cell["method"] == "supervised+ema")
    run = folder / "out/runs/sasrec/supervised+ema/8-steps/seed-0"
    assert cell["metrics"] == ecoc.evaluate(run, max_cases=100, exclude_seen=True).metrics
    (before,) = (cell for cell in imitated["cells"] if cell["method"] == "supervised+ema" and cell["seed"] == 0)
    assert cell["metrics"] != before["metrics"]
    assert not any("--exclude-seen" in text for text in found["caveats"])
    assert any("--exclude-seen" in text for text in imitated["caveats"])
    assert "without the items of the user's past" in load_document(folder / "out").sections[0].text[0]


def test_what_every_method_costs_is_told(folder: Path) -> None:
    options: dict[str, Any] = {"methods": ["supervised", "neural_lcb"], "encoders": ["gru4rec"], "steps": 3, "seeds": 1}
    found = computed("imitation", folder / "market", folder / "costs", max_cases=50, **options)
    table = next(table for table in found["tables"] if table["id"] == "imitation-parts")
    cost = {row[0]: row[-1] for row in table["rows"]}
    assert cost["supervised"]["value"] > 0
    assert cost["neural_lcb"]["value"] > 0, "which uses no encoder"
    assert cost["popular"] is None


def test_a_budget_trims_openly_and_is_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"encoders": ["sasrec"], "max_cases": 100, "budget": "6s"}
    with caplog.at_level(logging.INFO, "ecoc.experiment"):
        found = computed("sensitivity", folder / "market", folder / "short", **options)
    assert found["seconds"] < 15  # a busy machine may stall between two looks at the clock
    assert any("training steps per run instead of 1,000, to fit a budget of 6 s" in text for text in found["trimmed"])
    assert any("1 of 3 seeds" in text for text in found["trimmed"])
    assert {f"trimmed: {text}" for text in found["trimmed"]} <= set(caplog.messages)
    (section,) = load_document(folder / "short").sections
    assert section.caveats[: len(found["trimmed"])] == found["trimmed"]
    late = {cell["name"] for cell in found["cells"] if cell["status"] == "not run"}
    assert {cell["status"] for cell in found["cells"]} <= {"done", "not run"}
    assert all(any(name in text for text in section.caveats) for name in late)
    plan = (folder / "short/plan.json").read_bytes()
    again = computed("sensitivity", folder / "market", folder / "short", **options)
    assert (folder / "short/plan.json").read_bytes() == plan
    assert (again["steps"], again["seeds"], again["trimmed"]) == (found["steps"], found["seeds"], found["trimmed"])
    assert late >= {cell["name"] for cell in again["cells"] if cell["status"] == "not run"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["imitations", "market"], "did you mean 'imitation'?"),
        (["imitation", "nowhere"], "no such folder"),
        (["imitation", "market", "--methods", "ecok"], "did you mean 'ecoc'?"),
        (["imitation", "market", "--encoders", "sasrek"], "did you mean 'sasrec'?"),
        (["imitation", "market", "--budget", "soon"], "expected e.g. 90s, 30m"),
    ],
)
def test_a_wrong_word_is_one_line_and_code_2(folder: Path, words: list[str], said: str) -> None:
    with pytest.raises(ecoc.InputError) as error:
        options = dict(zip([word.lstrip("-") for word in words[2::2]], words[3::2], strict=True))
        given = {name: [value] if name != "budget" else value for name, value in options.items()}
        reproduce(words[0], folder / words[1], folder / "wrong", **given)  # type: ignore[arg-type]
    assert said in str(error.value)
    assert error.value.exit_code == 2


def test_a_folder_of_someone_else_is_left_alone(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine/letter.txt").write_text("dear")
    with pytest.raises(ecoc.InputError, match="did not write; choose another folder"):
        reproduce("imitation", folder / "market", folder / "mine")
    assert [path.name for path in (folder / "mine").iterdir()] == ["letter.txt"]


def test_a_run_that_diverges_is_a_row_that_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ecoc.train

    def train(data: Any, out: Path, **options: Any) -> Any:
        if "supervised+ema" in str(out):
            raise ecoc.TrainingError(f"{out}: step 3: the loss is not finite")
        return real(data, out, **options)

    options: dict[str, Any] = {
        "methods": ["supervised", "supervised+ema"],
        "encoders": ["sasrec"],
        "seeds": 1,
        "steps": 4,
        "max_cases": 50,
    }
    monkeypatch.setattr("ecoc.experiment.context.train", train)
    found = computed("imitation", folder / "market", folder / "diverged", **options)
    cells = {cell["method"]: cell for cell in found["cells"]}
    assert cells["supervised+ema"]["status"] == "failed"
    assert "step 3: the loss is not finite" in cells["supervised+ema"]["message"]
    assert cells["supervised"]["status"] == "done"
    rows = {row[0]: row for row in found["tables"][0]["rows"]}
    assert "the loss is not finite" in rows["supervised+ema"][1]
    assert any("the loss is not finite" in text for text in found["caveats"])
    monkeypatch.undo()
    healed = computed("imitation", folder / "market", folder / "diverged", **options)
    assert {cell["status"] for cell in healed["cells"]} == {"done"}


@pytest.fixture(scope="module")
def converged(folder: Path) -> dict[str, Any]:
    """The released code's setting beside its controls, each run to its own early stopping."""
    ecoc.prepare("world:small", folder / "long", events=4_000, min_length=10)
    words = ["imitation", "long", "-o", "converged", "--methods", "ecoc-released", "--seeds", 1, "--steps", 30]
    done = call(folder, *words, "--until", "converged", "--protocol", "paper", "--encoders", "gru4rec", "--json")
    assert "runs train until 3 validations, one per 200,200 targets, bring no improvement" in done.stderr
    return dict(json.loads(done.stdout))


def test_until_converged_a_method_stands_beside_its_controls(converged: dict[str, Any], folder: Path) -> None:
    methods = [cell["method"] for cell in converged["cells"] if cell["encoder"]]
    controls = ["supervised-released", "supervised-released+ema", "supervised-released+ema-no-l2"]
    assert sorted(methods) == sorted([*controls, "ecoc-released"])
    table = next(table for table in converged["tables"] if table["id"] == "imitation-ndcg")
    row = next(row for row in table["rows"] if row[0] == "ecoc-released")
    assert row[-1] == "supervised-released+ema-no-l2"
    runs = sorted((folder / "converged" / "runs" / "gru4rec").glob("*/until-converged/seed-0"))
    assert len(runs) == 4
    dataset = ecoc.open_data(folder / "long")
    for run in runs:
        config = ecoc.Run(run).config().train
        assert (config.patience, config.min_history) == (3, 5)
    tested = next(cell for cell in converged["cells"] if cell["method"] == "ecoc-released")
    assert tested["status"] == "done"
    assert dataset.counts.test_targets > 0


def test_the_papers_protocol_refuses_other_splits(folder: Path) -> None:
    done = call(folder, "imitation", "market", "-o", "refused", "--protocol", "paper", code=2)
    assert "prepared with --split time:0.8 --min-length 10" in done.stderr


def test_an_unknown_end_of_training_is_refused(folder: Path) -> None:
    done = call(folder, "imitation", "market", "-o", "refused", "--until", "done", code=2)
    assert "until: unknown value 'done'" in done.stderr


def test_the_readings_of_the_paper_are_compared_on_validation(folder: Path) -> None:
    result = computed("readings", folder / "market", folder / "readings", seeds=1, steps=4, max_cases=50)
    (table,) = result["tables"]
    assert [column["name"] for column in table["columns"]][:3] == ["reading", "validation NDCG@20", "weights"]
    assert len(table["rows"]) == 8
    assert all(row[1]["value"] >= 0 and row[2] in ("online", "averaged") for row in table["rows"])
