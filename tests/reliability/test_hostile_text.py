"""Text of a dataset, a run or a path cannot steer the terminal: control characters are shown, never sent."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from forked import Done
from tampered import RAW_CONTROL, Attempts, edit, items_table, resign, sha, with_column

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202eevil\u2066\u200f\x7f\x85\u2028\ufeff\x00"


def hostile(table: pa.Table) -> pa.Table:
    """Every id, title and category begins with what a terminal would obey."""
    for name in ("item", "title", "category"):
        column = [f"{HOSTILE}{value}" for value in table[name].to_pylist()]
        table = with_column(name, lambda it, column=column: pa.array(column))(table)  # type: ignore[misc]
    return table


@pytest.fixture(scope="module")
def folders(attempts: Attempts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset, a run and a bundle whose every text is hostile, in a folder with a hostile name."""
    folder = tmp_path_factory.mktemp("text") / f"n{HOSTILE[:-1]}"
    for kind in ("data", "run", "bundle"):
        shutil.copytree(getattr(attempts.originals, kind), folder / kind)
        items_table(folder / kind, hostile)
    names = [f"{HOSTILE}{k}" for k in range(4)]
    with pa.memory_map(str(folder / "data" / "sequences.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    users = [f"{HOSTILE}{user}" for user in table["user"].to_pylist()]
    table = table.set_column(0, "user", pa.array(users)).set_column(1, "sequence", pa.array(users))
    (folder / "data" / "sequences.arrow").unlink()
    with (
        pa.OSFile(str(folder / "data" / "sequences.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    settings = {"title": HOSTILE, "where": HOSTILE}
    resign(folder / "data", lambda it: (it["feedback"].update(names=names), it["settings"].update(settings)))
    edit(folder / "data" / "provenance.json", lambda it: it.update(bad_rows=[HOSTILE], warnings=[HOSTILE]))
    checksum = json.loads((folder / "data" / "manifest.json").read_bytes())["checksum"]
    data = {"path": str(folder / "data"), "checksum": checksum}
    items = {"feedback": names, "items_sha256": sha(folder / "run" / "items.parquet"), "data": data}
    edit(folder / "run" / "result.json", lambda it: it.update(items, run=HOSTILE))
    entry = {"bytes": (folder / "bundle" / "items.parquet").stat().st_size, "sha256": items["items_sha256"]}
    record = folder / "bundle" / "bundle.json"
    edit(record, lambda it: (it.update(name=HOSTILE, feedback=names), it["files"].update({"items.parquet": entry})))
    return folder


def words(command: str, folder: Path) -> list[object]:
    data, run, bundle = folder / "data", folder / "run", folder / "bundle"
    item = f"{HOSTILE}i0082".replace("\0", "")
    some = ["--max-cases", 30, "--no-untrained"]
    commands: dict[str, list[object]] = {
        "info of a dataset": ["info", data],
        "info of a run": ["info", run],
        "info of a bundle": ["info", bundle],
        "recommend": ["recommend", run, "--history", f"{item},{item}:{item}"],
        "recommend by a bundle": ["recommend", bundle, "--history", item, "--exclude", item],
        "similar items": ["recommend", run, "--similar", item],
        "an unknown user": ["recommend", run, "--user", HOSTILE[:-1]],
        "evaluate": ["evaluate", run, "--data", data, *some],
        "compare": ["compare", run, run, "--data", data, *some],
        "export": ["export", run, "-o", folder / "exported", "--overwrite"],
        "report": ["report", run, "-o", folder / "page.html"],
        "train": [
            "train",
            data,
            "-o",
            folder / "out",
            "--overwrite",
            "--set",
            "train.max_steps=2",
            "--set",
            "encoder.dim=8",
        ],
        "a folder that is not there": ["info", folder / HOSTILE[:-1]],
        "an unknown encoder": ["train", data, "-o", folder / "none", "--encoder", HOSTILE[:-1]],
        "an unknown setting": ["train", data, "-o", folder / "none", "--set", f"train.{HOSTILE[:-1]}=1"],
    }
    return commands[command]


REFUSED = (
    "an unknown user",
    "a folder that is not there",
    "an unknown encoder",
    "an unknown setting",
)
ANSWERED = (
    *("info of a dataset", "info of a run", "info of a bundle", "recommend", "recommend by a bundle", "similar items"),
    *("evaluate", "compare", "export", "report", "train"),
)


def is_clean(done: Done) -> bool:
    return not RAW_CONTROL.search(done.stdout + done.stderr)


@pytest.mark.parametrize("command", ANSWERED)
def test_no_control_character_of_a_folder_reaches_the_terminal(attempts: Attempts, folders: Path, command: str) -> None:
    done = attempts.forks.run(*words(command, folders))
    assert done.code == 0, done.stderr
    assert is_clean(done), repr(done)
    assert r"\x0d\x0a\u202eevil" in done.stdout  # shown, and in one line: a line feed too is shown
    assert "evil" not in [line.lstrip()[:4] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("command", ANSWERED)
def test_json_of_a_hostile_folder_is_the_same_text_escaped(attempts: Attempts, folders: Path, command: str) -> None:
    done = attempts.forks.run(*words(command, folders), "--json")
    assert done.code == 0, done.stderr
    assert is_clean(done), repr(done)
    assert HOSTILE[:-1] in text_of(json.loads(done.stdout))


def text_of(value: object) -> str:
    """All text of a JSON value."""
    if isinstance(value, dict):
        return "".join(map(text_of, [*value.keys(), *value.values()]))
    return "".join(map(text_of, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize("command", REFUSED)
def test_no_control_character_of_an_argument_reaches_the_terminal(
    attempts: Attempts, folders: Path, command: str
) -> None:
    done = attempts.forks.run(*words(command, folders), "--quiet")
    assert done.code == 2, done
    assert is_clean(done), repr(done)
    assert "evil" in done.stderr
