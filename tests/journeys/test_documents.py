"""What the documents say: links lead somewhere, commands, options and settings exist, every block of code runs."""

import os
import re
import runpy
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import ecoc
from ecoc.cli import app
from ecoc.encoders import ENCODERS
from ecoc.methods import METHODS
from ecoc.runs.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
SERVING = "docs/serving.md"  # tests/serving/test_serving_document.py runs it, beside a server
FOREIGN = {"--require-hashes", "--only-binary", "--strict"}  # of pip and mypy
FOREIGN |= {"--no-cache-dir", "--constraint", "--create-home", "--no-deps"}  # of pip and useradd


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return [code for name, code in FENCE.findall(text_of(page)) if name == language]


def pages_with(language: str) -> list[str]:
    return [page for page in PAGES if blocks(page, language)]


# ------------------------------------------------------------------------------------------------ links


@cache
def anchors(path: Path) -> set[str]:
    """Names of the headings of a page, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: str) -> None:
    plain = re.sub(r"`[^`\n]*`", "", FENCE.sub("", text_of(page)))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", plain):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"{page} links to what is not there: {broken}"


def test_links_into_a_page_are_checked_by_heading() -> None:
    assert "63-user-simulator" in anchors(ROOT / "docs/equations.md")
    assert "no-such-heading" not in anchors(ROOT / "docs/equations.md")


def test_every_equation_that_the_code_cites_is_there() -> None:
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? |^\*\*(4\.\d+) ", text_of("docs/equations.md"), re.MULTILINE))
    known = {number for pair in sections for number in pair if number}
    files = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    cited = re.findall(r"equations\.md §(\d+(?:\.\d+)?)", "\n".join(path.read_text(encoding="utf-8") for path in files))
    assert len(cited) >= 20
    assert set(cited) <= known


# ------------------------------------------------------------------------------------------------ names


@cache
def options() -> dict[str, set[str]]:
    """Options of every command."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    return {
        name: {"--help", "--version"}.union(*([*taken.opts, *taken.secondary_opts] for taken in command.params))
        for name, command in group.commands.items()
    }


def wrong_options(text: str) -> list[str]:
    """Options that are named in code and that nothing takes."""
    anywhere = set().union(*options().values()) | FOREIGN
    found = []
    code = re.sub(r"\\\n\s*", " ", text)
    spans = [*re.findall(r"`([^`\n]+)`", FENCE.sub("", code)), *re.findall(r"^(?: {4}|ecoc ).+$", code, re.MULTILINE)]
    for span in spans:
        command, script = re.search(r"\becoc ([a-z]+)", span), re.search(r"(?:benchmarks|tools)/\w+\.py", span)
        for option in OPTION.findall(span):
            if script:
                known = option in (ROOT / script[0]).read_text(encoding="utf-8")
            elif command and command[1] in options():
                known = option in options()[command[1]]
            else:
                known = option in anywhere
            if not known:
                found.append(f"{option} in {span.strip()!r}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_option_in_the_documents_exists(page: str) -> None:
    assert wrong_options(text_of(page)) == []


def test_an_option_that_does_not_exist_is_noticed() -> None:
    assert wrong_options("`ecoc train D -o R --wings 2`") == ["--wings in 'ecoc train D -o R --wings 2'"]
    assert wrong_options("    ecoc info D --preset x\n") == ["--preset in 'ecoc info D --preset x'"]
    assert wrong_options("`--nowhere`, and `python benchmarks/world.py --oracles`") == ["--nowhere in '--nowhere'"]


@cache
def settings() -> dict[str, set[str]]:
    methods = [set(METHODS[name].Config.model_fields) for name in METHODS]
    encoders = [set(ENCODERS[name].Config.model_fields) for name in ENCODERS]
    return {
        "train": set(TrainConfig.model_fields),
        "method": {"name"}.union(*methods),
        "encoder": {"name"}.union(*encoders),
    }


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_every_setting_in_the_documents_exists(page: str) -> None:
    named = re.findall(r"(?<![\w/.])(train|method|encoder)\.([a-z][a-z0-9_]*)(?!\w*\()", text_of(page))
    files = {"md", "onnx"}  # of method.md and encoder.onnx
    wrong = [f"{section}.{name}" for section, name in named if name not in files | settings()[section]]
    assert not wrong


# ------------------------------------------------------------------------------------------------ code


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages speak of: a log, a small market and short runs on it."""
    place = tmp_path_factory.mktemp("documents")
    write_events(place)
    ecoc.prepare("world:small", place / "market", events=1500, seed=1)
    short = {"encoder": {"dim": 16, "length": 20}, "train": {"max_steps": 30}}
    for name, method, encoder in [
        ("sasrec", "supervised", "sasrec"),
        ("supervised", "supervised", "gru4rec"),
        ("ecoc", "ecoc", "sasrec"),
    ]:
        ecoc.train(place / "market", place / "runs" / name, method=method, encoder=encoder, config=short)
    return place


def write_events(place: Path) -> None:
    (place / "events.csv").write_text(
        "user_id,item_id,ts,event\n"
        + "".join(f"u{k % 9},i{k % 13},{1_700_000_000 + 60 * k},{('view', 'cart', 'buy')[k % 3]}\n" for k in range(300))
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in pages_with("python") if page != SERVING])
def test_every_python_block_runs(page: str, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page's blocks, in order, in one process."""
    place = tmp_path / "place"
    if page == "docs/api.md":  # it makes everything itself
        place.mkdir()
    else:
        shutil.copytree(workplace, place)
    monkeypatch.chdir(place)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    runpy.run_path(str(script))


GROUPS = [
    ("README.md",),
    ("docs/train.md", "docs/evaluate.md"),
    ("docs/method.md",),
    ("docs/simulate.md", "docs/reproduce.md"),  # these go on with runs that are there
]


OWN_TESTS = ("docs/logs.md", SERVING)  # test_logs_journey.py runs it, on raw files of its own; see SERVING


def test_every_page_with_commands_is_run() -> None:
    assert sorted([*OWN_TESTS, *(page for group in GROUPS for page in group)]) == pages_with("sh")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pages", GROUPS, ids="+".join)
def test_every_command_of_the_documents_works(
    pages: tuple[str, ...], workplace: Path, ecoc_command: Path, tmp_path: Path
) -> None:
    lines = [line for page in pages for code in blocks(page, "sh") for line in code.replace("\\\n", " ").splitlines()]
    commands = [line for line in lines if line.startswith("ecoc ")]
    assert len(commands) >= 3
    place = tmp_path / "place"
    if any(" -o market" in command for command in commands):
        place.mkdir()
        write_events(place)
    else:
        shutil.copytree(workplace, place)
    path = os.environ["PATH"]
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command.split(" #")[0]],
            cwd=place,
            env={**os.environ, "PATH": f"{ecoc_command.parent}:{path}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
