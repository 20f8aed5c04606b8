"""From a log to a recommendation, through the real command line and the same in Python."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ecoc
from ecoc.evaluation.metrics import NAMES

ECOC = Path(sys.executable).parent / "ecoc"
TRAIN_KEYS = {
    "run",
    "method",
    "encoder",
    "items",
    "epochs",
    "best_epoch",
    "steps",
    "transitions",
    "seconds",
    "transitions_per_second",
    "peak_rss_bytes",
    "validation",
    "weights_sha256",
}


def answer(folder: Path, *arguments: object) -> dict[str, Any]:
    """What a command says with --json; nothing else may stand on standard output."""
    command = [str(ECOC), *map(str, arguments), "--json", "--threads", "1"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return dict(json.loads(done.stdout))


def lines(folder: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(ECOC), *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared world and two runs on it."""
    folder = tmp_path_factory.mktemp("journey")
    ecoc.prepare("world:small", folder / "market")
    lines(folder, "train", "market", "-o", "runs/sasrec", "--set", "train.max_epochs=3", "--threads", "1", "--quiet")
    lines(folder, "train", "market", "-o", "runs/markov", "--method", "markov", "--quiet")
    return folder


def test_train_answers_every_key_of_the_contract(journey: Path) -> None:
    found = answer(
        journey,
        "train",
        "market",
        "-o",
        "runs/json",
        "--encoder",
        "gru4rec",
        "--set",
        "train.max_steps=5",
        "--seed",
        "3",
    )
    assert set(found) >= TRAIN_KEYS
    assert found["encoder"] == "gru4rec"
    assert found["steps"] == 5
    assert set(found["validation"]) == set(NAMES)
    kept = (journey / "runs/json/config.toml").read_text()
    assert "seed = 3" in kept
    assert 'name = "gru4rec"' in kept


def test_a_config_file_repeats_a_run_to_the_bit(journey: Path) -> None:
    first = json.loads((journey / "runs/sasrec/result.json").read_text())
    again = answer(journey, "train", "market", "-o", "runs/again", "--config", "runs/sasrec/config.toml")
    assert again["weights_sha256"] == first["weights_sha256"]
    assert again["validation"] == first["validation"]


def test_evaluate_beats_popularity_and_tells_everything(journey: Path) -> None:
    found = answer(journey, "evaluate", "runs/sasrec")
    assert found["cases"] == ecoc.open_data(journey / "market").counts.test_targets
    assert set(found["metrics"]) == set(found["intervals"]) == set(NAMES)
    for name, (low, high) in found["intervals"].items():
        assert low <= found["metrics"][name] <= high
    assert 0 < found["coverage@10"] <= 1
    rows = {row["name"]: row["metrics"]["ndcg@10"] for row in found["untrained"]}
    assert set(rows) == {"popular", "recent", "markov"}
    assert found["metrics"]["ndcg@10"] > 1.5 * rows["popular"]
    assert found["seen"]["cases"] + found["new"]["cases"] == found["cases"]
    blended = sum(found[part]["cases"] * found[part]["metrics"]["hr@10"] for part in ("seen", "new"))
    assert math.isclose(blended / found["cases"], found["metrics"]["hr@10"])


def test_evaluate_options_change_what_is_judged(journey: Path) -> None:
    sampled = answer(journey, "evaluate", "runs/sasrec", "--max-cases", "200", "--no-untrained")
    assert sampled["cases"] == 200
    assert sampled["untrained"] == []
    excluded = answer(journey, "evaluate", "runs/sasrec", "--exclude-seen", "--no-untrained")
    assert excluded["seen"]["metrics"]["hr@20"] == 0  # a target among the excluded is never found
    held_out = answer(journey, "evaluate", "runs/sasrec", "--split", "validation", "--no-untrained")
    assert held_out["cases"] != excluded["cases"]


def test_compare_pairs_runs_on_the_same_cases(journey: Path) -> None:
    found = answer(journey, "compare", "runs/sasrec", "runs/markov")
    names = [run["name"] for run in found["runs"]]
    assert names[:2] == ["sasrec", "markov"]
    means = {run["name"]: run["metrics"] for run in found["runs"]}
    for pair in found["pairs"]:
        expected = means[pair["a"]][pair["metric"]] - means[pair["b"]][pair["metric"]]
        assert math.isclose(pair["difference"], expected, abs_tol=1e-12)
        assert pair["low"] <= pair["difference"] <= pair["high"]
        assert pair["p"] <= pair["p_holm"] <= 1


def test_recommend_on_the_terminal_equals_python(journey: Path) -> None:
    found = answer(
        journey, "recommend", "runs/sasrec", "--history", "i0003,nowhere,i0017:buy", "-k", "7", "--exclude-seen"
    )
    model = ecoc.load(journey / "runs/sasrec")
    items, scores = model.recommend([["i0003", "nowhere", ("i0017", "buy")]], k=7, exclude_seen=True)
    assert [entry["item"] for entry in found["results"][0]["items"]] == items[0]
    assert found["results"][0]["items"][0]["score"] == pytest.approx(scores[0][0], rel=1e-5)
    assert found["results"][0]["unknown"] == ["nowhere"]
    assert not {"i0003", "i0017"} & set(items[0])
    assert found["results"][0]["items"][0]["title"]
    near = answer(journey, "recommend", "runs/sasrec", "--similar", "i0003", "-k", "3")
    assert [entry["item"] for entry in near["results"][0]["items"]] == model.similar(["i0003"], k=3).items[0]


def test_the_report_of_a_run_shows_what_commands_computed_about_it(journey: Path) -> None:
    lines(journey, "evaluate", "runs/sasrec", "--quiet")
    lines(journey, "compare", "runs/sasrec", "runs/markov", "--quiet")
    written = json.loads(lines(journey, "report", "runs/sasrec", "-o", "reported.html", "--json").stdout)
    assert {"ranking", "compared", "pairs"} <= set(written["tables"])
    page = (journey / "reported.html").read_text()
    assert "<h2>Ranking what users did next: sasrec, test split</h2>" in page
    assert "<h2>Comparison of runs on the same cases</h2>" in page


def test_pages_are_readable(journey: Path) -> None:
    page = lines(journey, "evaluate", "runs/sasrec", "--quiet").stdout
    assert "popular" in page and "95 % intervals" in page and "New targets" in page
    assert "few targets are items of the user's past" in page and "--exclude-seen leaves them out" in page
    page = lines(journey, "evaluate", "runs/sasrec", "--quiet", "--exclude-seen", "--no-untrained").stdout
    assert "few targets" not in page
    page = lines(journey, "compare", "runs/sasrec", "runs/markov", "--quiet").stdout
    assert "sasrec - markov" in page and "Holm" in page
    page = lines(journey, "info", "runs/sasrec", "--verify").stdout
    assert "supervised sasrec" in page and "weights" in page
    page = lines(journey, "recommend", "runs/sasrec").stdout
    assert "popular" in page
    done = lines(journey, "train", "market", "-o", "runs/profiled", "--set", "train.max_steps=20", "--profile")
    assert "encode" in done.stdout and "backward" in done.stdout
    assert "loss: softmax over all 200 items" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "market", "-o", "x", "--encoder", "sasrek"), "did you mean 'sasrec'?"),
        (("train", "market", "-o", "x", "--method", "supervized"), "did you mean 'supervised'?"),
        (("train", "market", "-o", "x", "--set", "train.lrr=1"), "did you mean 'lr'?"),
        (("train", "market", "-o", "x", "--set", "trane.lr=1"), "did you mean 'train'?"),
        (("train", "market", "-o", "x", "--set", "encoder.heads=3"), "not a multiple of heads"),
        (("train", "market", "-o", "x", "--preset", "yelpp"), "did you mean 'yelp'?"),
        (("train", "market", "-o", "x", "--set", "train.table=sparse"), "reads every row"),
        (("train", "nowhere", "-o", "x"), "no such folder"),
        (("train", "market", "-o", "runs/sasrec"), "--resume"),
        (("evaluate", "market"), "no run"),
        (("evaluate", "runs/sasrec", "--split", "trian"), "split: unknown value 'trian'"),
        (("compare", "runs/sasrec", "--metric", "ndcg@0"), "unknown metric"),
        (("recommend", "runs/sasrec", "--history", "a", "-k", "0"), "k"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(journey: Path, arguments: tuple[str, ...], said: str) -> None:
    done = lines(journey, *arguments, code=2)
    assert said in done.stderr
    assert not (journey / "x").exists()


def test_presets_train(journey: Path) -> None:
    for name, method in (
        ("yelp", "supervised"),
        ("tmall", "supervised"),
        ("rl4rs", "supervised"),
        ("released", "ecoc"),
    ):
        for encoder in ("sasrec", "nextitnet", "srgnn"):
            run = ecoc.train(
                journey / "market",
                journey / "presets" / f"{name}-{encoder}",
                preset=name,
                method=method,
                encoder=encoder,
                config={"train": {"max_steps": 2, "threads": 1}},
            )
            assert run.result.steps == 2


def test_tensorboard_files_are_written_if_asked(journey: Path) -> None:
    run = ecoc.train(
        journey / "market", journey / "boarded", config={"train": {"max_steps": 2, "tensorboard": True, "threads": 1}}
    )
    assert list((run.path / "tensorboard").glob("events.out.tfevents.*"))
