"""What is installed is locked, small, licensed and reproducible, and nothing in the package can run a user's file."""

import re
import subprocess
import sys
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ["core.txt", "dev.txt"]
MOST_CORE = 28
MOST_SERVING = 42
FORBIDDEN = re.compile(
    r"\bpickle\b|\bmarshal\b|\bshelve\b|\bdill\b|\bjoblib\b|\brunpy\b|torch\.load|jit\.load|yaml\.load|"
    r"\beval\(|\bexec\(|(?<![\w.])compile\(|allow_pickle=True|import_module\(|__import__|os\.system|os\.popen|shell=True"
)
ALLOWED = {"src/ecoc/__init__.py": "import_module("}  # of names written there, not of a user's


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    return {match[1].lower(): match[2] for match in re.finditer(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE)}


def closure(package: str) -> set[str]:
    """A package and all it needs here, without extras."""
    found: set[str] = set()
    waiting = [package]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        needs = [Requirement(text) for text in requires(name) or []]
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes_and_torch_is_not_among_them(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    blocks = re.split(r"\n(?=[a-z])", text.split("\n", 1)[1])
    assert len(blocks) == len(locked(name)) > 20
    assert all("--hash=sha256:" in block for block in blocks)
    assert "torch" not in locked(name)
    assert "://" not in text


def test_what_is_installed_is_what_is_locked() -> None:
    different = {
        name: (distribution(name).version, version)
        for name, version in locked("dev.txt").items()
        if distribution(name).version != version
    }
    assert different == {}


def test_the_core_is_small() -> None:
    own = closure("ecoc") - closure("torch") - {"ecoc"}
    assert len(own) <= MOST_CORE, sorted(own)
    assert own <= set(locked("core.txt"))


def test_serving_adds_few_packages() -> None:
    extra = [Requirement(text) for text in requires("ecoc") or [] if "extra == 'serve'" in text.replace('"', "'")]
    assert len(extra) >= 5
    own = set().union(closure("ecoc"), *(closure(need.name) for need in extra)) - closure("torch") - {"ecoc"}
    assert len(own) <= MOST_SERVING, sorted(own)


def test_every_core_package_is_listed_with_its_licence() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    missing = [name for name in sorted(closure("ecoc") - {"ecoc"}) if f"| {name} |" not in page]
    assert missing == []


def test_a_wheel_built_twice_is_the_same_to_the_byte(tmp_path: Path) -> None:
    wheels = []
    for turn in ("first", "second"):
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w"]
        subprocess.run([*command, str(tmp_path / turn), str(ROOT)], check=True, capture_output=True)
        wheels.append(next((tmp_path / turn).glob("*.whl")).read_bytes())
    assert wheels[0] == wheels[1]


def dangerous(files: list[Path]) -> list[str]:
    found = []
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            match = FORBIDDEN.search(line)
            place = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
            if match and ALLOWED.get(place) != match[0] and "allow_pickle=False" not in line:
                found.append(f"{place}:{number}: {match[0]}")
    return found


def test_nothing_in_the_package_can_run_a_users_file() -> None:
    assert dangerous(sorted((ROOT / "src").rglob("*.py"))) == []


DANGEROUS = [
    *("import pickle", "x = eval('1')", "exec(text)", "torch.load(path)", "import_module(config['encoder'])"),
    *("__import__(name)", "np.load(path, allow_pickle=True)", "os.system(name)", "run(line, shell=True)"),
    *("code = compile(text, '', 'exec')", "import marshal", "torch.jit.load(path)"),
]


@pytest.mark.parametrize("line", DANGEROUS)
def test_a_dangerous_line_would_be_found(tmp_path: Path, line: str) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(f"a = 1\n{line}\npattern = re.compile('a')\n")
    assert len(dangerous([bad])) == 1


READS = re.compile(
    r"\.read_text\(|\.read_bytes\(|np\.load\(|json\.load\(|\.open\(\"r|\.read_table\(|load_file\(|safe_open"
)
# What is read without the one door: the system's own files, the package's, raw logs, and a user's token.
OTHER_FILES = (
    *("storage/trusted/", "testing/", "data/text.py", "data/sources/", "data/readers.py", "profiling.py"),
    *("reporting/provenance.py", "serving/page_routes.py", "serving/settings.py"),
)


def test_files_of_datasets_runs_and_bundles_are_opened_in_one_place() -> None:
    source = ROOT / "src" / "ecoc"
    elsewhere = [
        f"{place}:{number}: {line.strip()}"
        for path in sorted(source.rglob("*.py"))
        if not (place := path.relative_to(source).as_posix()).startswith(OTHER_FILES)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if READS.search(line)
    ]
    assert elsewhere == []
