"""The whole journey by the real command line, as a stranger would go it."""

import json
import shutil
import stat
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Command

ROOT = Path(__file__).parents[2]
OPTIONS = ["--user", "user", "--item", "item", "--time", "ts", "--feedback", "event", "--reward", "view=1,cart=2,buy=3"]
KEYS = {"kind", "counts", "steps", "dropped", "rows_in", "cut", "checksum", "version"}
COUNTS = {"interactions", "sequences", "items", "train", "validation", "test_targets"}


def test_a_log_becomes_a_dataset_that_info_describes(
    run_ecoc: Command, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    write_log(tmp_path / "events.csv")
    prepared = run_ecoc("prepare", "events.csv", "-o", "data", *OPTIONS, "--json")
    assert prepared.returncode == 0, prepared.stderr
    answer = json.loads(prepared.stdout)
    assert answer.keys() >= KEYS
    assert answer["counts"].keys() >= COUNTS
    assert answer["kind"] == "dataset"
    assert "reading" in prepared.stderr, "progress goes to standard error"
    described = run_ecoc("info", "data", "--json", "--verify")
    assert json.loads(described.stdout) == answer
    page = run_ecoc("info", "data").stdout
    for fact in ("interactions", "cut at", "checksum", answer["checksum"], "500 rows"):
        assert fact in page
    assert run_ecoc("prepare", "events.csv", "-o", "data", *OPTIONS).returncode == 2, "the folder is not empty"
    again = run_ecoc("prepare", "events.csv", "-o", "data", *OPTIONS, "--overwrite", "--json", "--quiet")
    assert json.loads(again.stdout)["checksum"] == answer["checksum"]
    assert again.stderr == ""


def test_python_and_the_command_line_give_the_same_dataset(
    run_ecoc: Command, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    import ecoc

    write_log(tmp_path / "events.csv")
    answer = json.loads(run_ecoc("prepare", "events.csv", "-o", "a", *OPTIONS, "--json").stdout)
    data = ecoc.prepare(
        tmp_path / "events.csv",
        tmp_path / "b",
        user="user",
        item="item",
        time="ts",
        feedback="event",
        reward={"view": 1, "cart": 2, "buy": 3},
    )
    assert data.checksum == answer["checksum"]


def test_settings_come_from_a_file_and_flags_go_before_it(
    run_ecoc: Command, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    write_log(tmp_path / "events.csv")
    (tmp_path / "shop.toml").write_text(
        'user = "user"\nitem = "item"\ntime = "ts"\nfeedback = "event"\nmin_length = 9\n'
        "[reward]\nview = 1\ncart = 2\nbuy = 3\n"
    )
    more = ["--config", "shop.toml", "--min-length", "3", "--set", "validation=0.2", "--json"]
    settings = json.loads(run_ecoc("prepare", "events.csv", "-o", "data", *more).stdout)["settings"]
    assert (settings["min_length"], settings["validation"]) == (3, 0.2)
    assert settings["reward"] == {"view": 1, "cart": 2, "buy": 3}
    (tmp_path / "wrong.toml").write_text("usr = 1\n")
    wrong = run_ecoc("prepare", "events.csv", "-o", "other", "--config", "wrong.toml")
    assert wrong.returncode == 2
    assert "did you mean 'user'" in wrong.stderr


def test_shuffled_rows_give_the_same_checksum_when_ties_go_by_item(
    run_ecoc: Command, write_log: Callable[..., Path], tmp_path: Path
) -> None:
    log = write_log(tmp_path / "events.csv", rows=3000)
    header, *rows = log.read_text().splitlines()
    (tmp_path / "shuffled.csv").write_text("\n".join([header, *sorted(rows, key=hash)]) + "\n")

    def checksum(name: str, *more: str) -> str:
        done = run_ecoc("prepare", name, "-o", "out", "--overwrite", *OPTIONS, "--json", *more)
        result: str = json.loads(done.stdout)["checksum"]
        return result

    by_item = {checksum(name, "--ties", "item") for name in ("events.csv", "shuffled.csv")}
    by_file = {checksum(name, "--ties", "file") for name in ("events.csv", "shuffled.csv")}
    assert len(by_item) == 1
    assert len(by_file) == 2, "with file order the two logs really differ"


def test_the_demo_shows_the_gap_between_greed_and_foresight(run_ecoc: Command) -> None:
    done = run_ecoc("demo", "-o", "demo", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    policies = {policy["name"]: policy for policy in json.loads(done.stdout)["policies"]}
    assert policies["far_sighted"]["low"] > 2 * policies["myopic"]["high"]
    assert policies["myopic"].keys() >= {"name", "true_reward", "low", "high", "coverage"}
    assert policies["ecoc"]["low"] > policies["supervised"]["high"], "the critic is worth having"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["info", "nowhere"], 2, "nowhere: no such folder"),
        (["prepare", "world:defualt", "-o", "x"], 2, "did you mean 'world:default'"),
        (["prepare", "world:small", "-o", "x", "--format", "movie"], 2, "did you mean 'movielens'"),
        (["prepare", "world:small", "-o", "x", "--set", "evnts=100"], 2, "did you mean 'events'"),
        (["prepare", "world:small", "-o", "x", "--memory", "lots"], 2, "is not a size"),
        (["prepare", "world:small", "-o", "x", "--split", "time:1.5"], 2, "is not a split"),
        (["prepare", "world:small"], 2, "--out"),
        (["nonsense"], 2, "nonsense"),
    ],
)
def test_a_wrong_command_is_exit_2_and_says_what_to_do(
    run_ecoc: Command, arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    done = run_ecoc(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_output_cut_off_by_a_reader_is_no_error(ecoc_command: Path, tmp_path: Path) -> None:
    script = f"'{ecoc_command}' prepare world:small -o data -q > /dev/null && '{ecoc_command}' info data | head -1"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "prepared dataset" in done.stdout
    assert done.stderr == ""


def test_a_fresh_install_works_in_an_odd_place_with_a_read_only_home(
    tmp_path: Path, write_log: Callable[..., Path]
) -> None:
    """A new environment, the built wheel, a path with spaces and other letters, a home that cannot be written."""
    place = tmp_path / "a place — ünï 文"
    home = place / "home"
    home.mkdir(parents=True)
    wheel = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(place),
        str(ROOT),
    ]
    subprocess.run(wheel, check=True, capture_output=True)
    venv.create(place / "env", with_pip=False)
    packages = next((place / "env" / "lib").glob("python*")) / "site-packages"
    shutil.unpack_archive(next(place.glob("*.whl")), packages, "zip")
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    write_log(place / "my events.csv")
    python = str(place / "env" / "bin" / "python")
    done = subprocess.run(
        [
            python,
            "-c",
            "from ecoc.cli import main; main()",
            "prepare",
            "my events.csv",
            "-o",
            "out put",
            *OPTIONS,
            "--json",
        ],
        cwd=place,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    home.chmod(stat.S_IRWXU)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["interactions"] > 400
    where = subprocess.run(
        [python, "-c", "import ecoc; print(ecoc.__file__)"], capture_output=True, text=True, check=True
    ).stdout
    assert str(packages) in where, "the wheel, not the checkout, was used"
