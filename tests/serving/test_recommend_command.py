"""`ecoc recommend`: a bundle answers as its run, users of a dataset, and whole files of histories."""

import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ecoc
from ecoc.errors import InputError
from ecoc.model import Model
from ecoc.serving import files
from ecoc.serving.files import recommend_file

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def model(models: Path) -> Model:
    return ecoc.load(models / "ecoc-bundle")


def some_histories(model: Model, count: int) -> list[dict[str, Any]]:
    rng, ids = random.Random(3), model.vocab.all_ids()
    rows: list[dict[str, Any]] = []
    for user in range(count):
        history: list[Any] = [rng.choice([*ids, "nowhere"]) for _ in range(rng.choice([0, 1, 5, 30]))]
        rows.append({"user": f"u{user}", "history": history})
    return rows


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------ the command


def test_a_bundle_answers_as_the_run_it_came_from(models: Path, run_ecoc: Command) -> None:
    ids = ecoc.load(models / "ecoc").vocab.all_ids()
    options = ["--history", f"{ids[0]}:buy,{ids[5]}", "-k", "4", "--exclude-seen", "--w", "3", "--json"]
    run, bundle = (run_ecoc("recommend", models / name, *options) for name in ("ecoc", "ecoc-bundle"))
    assert (run.returncode, bundle.returncode) == (0, 0), bundle.stderr
    answers = [json.loads(done.stdout)["results"][0] for done in (run, bundle)]
    of_run, of_bundle = ([entry["item"] for entry in answer["items"]] for answer in answers)
    assert of_run == of_bundle
    assert len(of_run) == 4
    for name in ("score", "value"):
        numbers, same = ([entry[name] for entry in answer["items"]] for answer in answers)
        assert numbers == pytest.approx(same, rel=1e-6)


def test_users_of_a_dataset_are_answered_by_their_history(models: Path, run_ecoc: Command) -> None:
    data = ecoc.open_data(models / "data")
    user = data.sequence(4).user
    expected = ecoc.load(models / "ecoc").recommend_users(data, [user], 5)
    by_run = run_ecoc("recommend", models / "ecoc", "--user", user, "-k", 5, "--json")
    by_bundle = run_ecoc("recommend", models / "ecoc-bundle", "--user", user, "--data", data.path, "-k", 5, "--json")
    for answer in (by_run, by_bundle):
        assert answer.returncode == 0, answer.stderr
        assert [entry["item"] for entry in json.loads(answer.stdout)["results"][0]["items"]] == expected.items[0]


def test_a_whole_file_by_the_command(models: Path, run_ecoc: Command, tmp_path: Path) -> None:
    model = ecoc.load(models / "ecoc-bundle")
    rows = some_histories(model, 40)
    write_lines(tmp_path / "in.jsonl", rows)
    done = run_ecoc("recommend", models / "ecoc-bundle", "--histories", "in.jsonl", "--out", "out.parquet", "-k", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out.parquet: lists for 40 histories\n"
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert table["user"] == [row["user"] for row in rows]
    assert table["items"] == model.recommend([row["history"] for row in rows], 3).items


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--history", "a", "--user", "b"], "--history and --user ask for different things; give one of them"),
        (["--histories", "in.jsonl"], "--histories and --out belong together: a file to read and a file to write"),
        (["--user", "u1"], "ecoc: not known which dataset its users are in; pass --data"),
        (["--only", "nowhere"], "only: none of these items is in the catalogue"),
        (["--histories", "missing.jsonl", "--out", "o.jsonl"], "missing.jsonl: missing; give a file of histories"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    models: Path, run_ecoc: Command, options: list[str], message: str
) -> None:
    done = run_ecoc("recommend", models / "ecoc-bundle", *options)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message + "\n")


def test_an_unknown_feedback_is_named_and_its_item_counts(models: Path, run_ecoc: Command) -> None:
    item = ecoc.load(models / "ecoc").vocab.all_ids()[2]
    done = run_ecoc("recommend", models / "ecoc", "--history", f"{item}:teleported", "-k", 2)
    assert done.returncode == 0
    assert "  unknown feedback, its items are kept: teleported" in done.stdout.splitlines()


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("source", [".jsonl", ".parquet"])
@pytest.mark.parametrize("target", [".jsonl", ".parquet"])
def test_every_history_of_a_file_is_answered_in_order(
    model: Model, tmp_path: Path, source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", 7)  # several batches, the last one not full
    rows = some_histories(model, 52)
    if source == ".jsonl":
        write_lines(tmp_path / "in.jsonl", rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    shares: list[float] = []

    def watch(stage: str, done: float, total: float, /, note: str = "") -> None:
        shares.append(done / total)

    count = recommend_file(
        model, tmp_path / f"in{source}", tmp_path / f"out{target}", 4, progress=watch, exclude_seen=True
    )
    out = tmp_path / f"out{target}"
    answers = read_lines(out) if target == ".jsonl" else pq.read_table(out).to_pylist()
    expected = model.recommend([row["history"] for row in rows], 4, exclude_seen=True)
    assert count == len(rows)
    assert [answer["user"] for answer in answers] == [row["user"] for row in rows]
    assert [answer["items"] for answer in answers] == expected.items
    assert [answer["unknown"] for answer in answers] == expected.unknown
    for answer, scores, values in zip(answers, expected.scores, expected.values, strict=True):
        assert answer["scores"] == pytest.approx(scores, rel=1e-5)
        assert answer["values"] == (None if values is None else pytest.approx(values, rel=1e-4, abs=1e-5))
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (8, 1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"in{source}", f"out{target}"])


def test_events_may_have_feedback_and_time_and_lists_need_no_object(model: Model, tmp_path: Path) -> None:
    a, b = model.vocab.all_ids()[:2]
    rows = [[a, b], {"history": [{"item": a, "feedback": "buy"}, {"item": b, "time": 1_700_000_000}]}, []]
    recommend_file(model, write_lines(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl", 3)
    expected = model.recommend([[a, b], [(a, "buy"), (b, None, 1_700_000_000.0)], []], 3)
    answers = read_lines(tmp_path / "out.jsonl")
    assert [answer["items"] for answer in answers] == expected.items
    assert [answer["user"] for answer in answers] == [None] * 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"history": "a"}', "row 2: expected "),
        ('{"history": [1.5]}', "row 2: an event is "),
        ('{"history": [true]}', "row 2: an event is "),
        ('{"history": [null]}', "row 2: an event is "),
        ('{"history": [{"feedback": "buy"}]}', "row 2: an event is "),
        ('{"history": [{"item": "a", "when": 1}]}', "row 2: an event is "),
        ('{"history": [{"item": "a", "time": "noon"}]}', "row 2: item and feedback of an event are text"),
        ('{"history": [{"item": ["a"]}]}', "row 2: item and feedback of an event are text"),
        ('{"history": [], "user": {}}', "row 2: 'user' is neither text nor a number"),
        ('{"history": [], "k": 4}', "row 2: expected "),
        ('{"history": [', "row 2: not JSON"),
        ("[" * 100, "row 2: not JSON"),
        ('{"history": ["a"], "user": NaN}', "row 2: not JSON"),
        (json.dumps({"history": ["a"] * 100_001}), "row 2: more than 100,000 events"),
        (json.dumps({"history": ["a" * (4 << 20)]}), "row 2: longer than "),
    ],
)
def test_a_wrong_row_is_named_and_no_file_is_left(model: Model, tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"history": []}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        recommend_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_files_that_cannot_be_read_or_written_are_refused_before_any_work(model: Model, tmp_path: Path) -> None:
    good = write_lines(tmp_path / "in.jsonl", [[]])
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    (tmp_path / "there.jsonl").touch()
    for source, out, message in [
        (tmp_path / "in.csv", tmp_path / "o.jsonl", "ends in"),
        (good, tmp_path / "o.txt", "ends in"),
        (good, tmp_path / "there.jsonl", "already there"),
        (good, tmp_path / "no" / "o.jsonl", "No such file"),
        (tmp_path / "pipe.jsonl", tmp_path / "o.jsonl", "a FIFO, expected a regular file"),
        (tmp_path / "folder.jsonl", tmp_path / "o.jsonl", "expected a regular file"),
        (tmp_path / "broken.parquet", tmp_path / "o.jsonl", "not a readable Parquet file"),
        (tmp_path / "other.parquet", tmp_path / "o.jsonl", "no column 'history'"),
    ]:
        with pytest.raises(InputError, match=message):
            recommend_file(model, source, out)
    assert not list(tmp_path.glob("o.*"))


def test_a_link_to_a_file_of_ones_own_is_followed(model: Model, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_lines(tmp_path / "elsewhere" / "in.jsonl", [[], []])
    (tmp_path / "in.jsonl").symlink_to(tmp_path / "elsewhere" / "in.jsonl")
    assert recommend_file(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl") == 2


@pytest.mark.parametrize("kind", [".jsonl", ".parquet"])
def test_rows_are_read_when_they_are_needed(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is never held whole: rows at its end are not looked at before those before them were answered."""
    monkeypatch.setattr(files, "ROWS", 10)
    source = tmp_path / f"in{kind}"
    if kind == ".jsonl":
        write_lines(source, [*[["a"]] * 40, "no history"])
    else:
        pq.write_table(pa.table({"history": [*[["a"]] * 40, None]}), source)
    batches = files._batches(source)
    assert [len(next(batches)[0]) for _ in range(4)] == [10, 10, 10, 10]
    with pytest.raises(InputError, match="row 41: expected"):
        next(batches)
