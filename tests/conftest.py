"""What tests share: the real command, and a log to feed it."""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import numpy as np
import pytest

if TYPE_CHECKING:
    from tampered import Attempts

hypothesis.settings.register_profile("ecoc", deadline=None)  # the time of an example depends on the load of the machine
hypothesis.settings.load_profile("ecoc")

ECOC = Path(sys.executable).parent / "ecoc"

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def ecoc_command() -> Path:
    """The installed `ecoc` script."""
    return ECOC


@pytest.fixture
def run_ecoc(tmp_path: Path) -> Command:
    """Run the real command line in a folder of its own."""

    def run(
        *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ECOC), *map(str, arguments)],
            cwd=cwd or tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def write_log() -> Callable[..., Path]:
    """Write a CSV log of random events: user, item, ts, event."""

    def write(path: Path, rows: int = 500, users: int = 40, items: int = 60, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        times = np.sort(rng.integers(1_600_000_000, 1_600_000_000 + rows, rows))
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["user", "item", "ts", "event"])
            for row in zip(
                rng.integers(users, size=rows),
                rng.integers(items, size=rows),
                times,
                rng.choice(["view", "cart", "buy"], rows),
                strict=True,
            ):
                writer.writerow([f"u{row[0]}", f"i{row[1]}", *row[2:]])
        return path

    return write


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Sums then have one order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def equations_on_one_thread(request: pytest.FixtureRequest) -> None:
    if "equations" in request.path.parts:
        request.getfixturevalue("one_thread")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of runs and bundles for the tests of serving, which must not change it."""
    from serving_case import folder_of_models

    return folder_of_models(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Attempts]":
    """Commands in forked children, watched, and sound folders to tamper with copies of."""
    from forked import forking
    from tampered import MODULES, Attempts, originals

    made = originals(tmp_path_factory.getbasetemp())
    with forking(*MODULES) as forks:
        yield Attempts(forks, made)
