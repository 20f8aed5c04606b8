"""`make test` installs the Debian packages it needs, or says how and stops before anything else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "system_packages.sh"


def write_program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that stands for PATH: apt-get "installs" by creating the program and writes down how it was called."""
    for name in ("bash", "env", "chmod"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    write_program(
        tmp_path / "apt-get",
        f'echo "apt-get $*" >> {tmp_path}/calls\n'
        f'if [ "$1" = install ]; then p="{tmp_path}/${{@: -1}}"; echo "#!/bin/bash" > "$p"; chmod +x "$p"; fi',
    )
    return tmp_path


def run(machine: Path, user_id: int, *packages: str) -> subprocess.CompletedProcess[str]:
    write_program(machine / "id", f"echo {user_id}")
    return subprocess.run(
        [SCRIPT, *packages], env={"PATH": str(machine)}, capture_output=True, text=True, check=False, timeout=60
    )


def calls(machine: Path) -> list[str]:
    path = machine / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_nothing_is_done_where_nothing_is_missing(machine: Path) -> None:
    write_program(machine / "strace", "")
    done = run(machine, 1000, "strace")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert calls(machine) == []


def test_root_installs_what_is_missing_and_nothing_else(machine: Path) -> None:
    write_program(machine / "strace", "")
    done = run(machine, 0, "strace", "chromium")
    assert done.returncode == 0, done.stderr
    assert calls(machine) == ["apt-get update -qq", "apt-get install -y -qq --no-install-recommends chromium"]


def test_sudo_without_a_password_installs_too(machine: Path) -> None:
    write_program(
        machine / "sudo", f'echo "sudo $*" >> {machine}/calls\n[ "$1" = -n ] && shift\n[ "$1" = true ] || "$@"'
    )
    done = run(machine, 1000, "chromium")
    assert done.returncode == 0, done.stderr
    assert [call for call in calls(machine) if call.startswith("apt-get")] == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends chromium",
    ]
    assert calls(machine)[0] == "sudo -n true"


@pytest.mark.parametrize("has_sudo", [False, True])
def test_without_the_right_one_command_is_printed(machine: Path, has_sudo: bool) -> None:
    if has_sudo:
        write_program(machine / "sudo", "exit 1")
    done = run(machine, 1000, "strace", "chromium")
    assert done.returncode == 1
    command = "sudo apt-get update && sudo apt-get install --no-install-recommends strace chromium"
    assert [line.strip() for line in done.stderr.splitlines()] == [
        "Debian packages are missing. Install them, then start again:",
        command,
    ]
    assert calls(machine) == []


def test_a_system_without_apt_gets_the_list(machine: Path) -> None:
    (machine / "apt-get").unlink()
    done = run(machine, 0, "strace", "chromium")
    assert done.returncode == 1
    assert "These programs are missing: strace chromium." in done.stderr


def test_an_install_that_brings_nothing_fails(machine: Path) -> None:
    write_program(machine / "apt-get", "")
    done = run(machine, 0, "chromium")
    assert done.returncode == 1
    assert "apt-get installed chromium, and it is still not found." in done.stderr


def test_make_test_starts_with_the_packages_and_ci_is_make_test() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    plan = subprocess.run(
        ["make", "-n", "test"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "tools/system_packages.sh python3-venv faketime strace chromium" in plan.stdout.splitlines()[0]
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == [
        "set -euo pipefail",
        'cd "$(dirname "$0")/.."',
        "make test",
    ]
