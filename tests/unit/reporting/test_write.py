import json
import subprocess
import sys
from pathlib import Path

import pytest
from sample import sample_document
from test_training_section import make_run
from typer.testing import CliRunner

from ecoc.cli import report as report_command
from ecoc.cli.app import app
from ecoc.errors import ArtifactError, InputError, ResourceError
from ecoc.reporting import document as documents
from ecoc.reporting.document import Column, Document, Section, Table, save_document
from ecoc.reporting.html import page
from ecoc.reporting.write import report


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    folder = tmp_path / "sample"
    folder.mkdir()
    save_document(folder, sample_document())
    return folder


def test_a_folder_becomes_a_page_and_tables_beside_it(sample: Path) -> None:
    files = report([sample])
    assert files.report == str(sample / "report.html")
    assert files.sections == 4
    assert files.tables == ["imitation", "cost"]
    assert files.figures[:2] == ["ope", "truth"]
    assert files.empty == ["nothing"]
    assert (sample / "report.html").read_text() == page(sample_document())
    names = {path.name for path in (sample / "tables").iterdir()}
    assert names == {"imitation.md", "imitation.tex", "cost.md", "cost.tex"}
    assert not list(sample.rglob("*.partial"))


def test_folders_are_joined_and_their_parts_keep_apart(sample: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    files = report([sample, sample, run], tmp_path / "new" / "all.html", title="Everything")
    assert files.report == str(tmp_path / "new" / "all.html")
    assert files.sections == 9
    assert files.tables == ["imitation", "cost", "imitation-2", "cost-2", "run-run"]
    text = (tmp_path / "new" / "all.html").read_text()
    assert "<title>Everything</title>" in text
    assert 'id="s-reward"' in text and 'id="s-reward-2"' in text and 'id="s-run"' in text
    assert text.count("<dt>data</dt>") == 1, "what is the same is told once"
    assert not (sample / "report.html").exists()


def test_facts_that_differ_are_told_of_each(tmp_path: Path) -> None:
    for name, seed in (("a", "0"), ("b", "1")):
        (tmp_path / name).mkdir()
        save_document(tmp_path / name, Document(title=name.upper(), facts={"seeds": seed, "machine": "m"}))
    report([tmp_path / "a", tmp_path / "b"], tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "<dt>seeds (1: A)</dt><dd>0</dd>" in text and "<dt>seeds (2: B)</dt><dd>1</dd>" in text
    assert "<dt>machine</dt><dd>m</dd>" in text
    assert "<title>A; B</title>" in text


def test_ids_of_tables_cannot_leave_their_folder(tmp_path: Path) -> None:
    tables = [
        Table(id=name, title="", columns=[Column(name="x")], rows=[["y"]])
        for name in ("../../up", "/etc/x", "a/b", "A/B", "", "." * 200)
    ]
    (tmp_path / "in").mkdir()
    save_document(tmp_path / "in", Document(title="D", sections=[Section(id="s", title="S", tables=tables)]))
    files = report([tmp_path / "in"])
    assert files.tables == ["up", "etc-x", "a-b", "a-b-2", "part", "part-2"]
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert written == {f"in/tables/{name}.md" for name in files.tables}


def test_a_folder_of_neither_kind_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a report\.json nor a run in it; give a folder that"):
        report([tmp_path])
    with pytest.raises(InputError, match="no such folder"):
        report([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="give folders"):
        report([])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"title": 1, "extra": 2}', b"\xff\xfe", b"[" * 100_000])
def test_a_broken_report_is_refused_and_nothing_is_written(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(ArtifactError, match="make it again"):
        report([tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_report_too_large_is_refused(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LARGEST", 1000)
    with pytest.raises(ArtifactError, match="more than the limit of 1,000"):
        report([sample])


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    good = json.loads(sample_document().model_dump_json())
    good["sections"][1]["figures"][0]["series"][0]["points"][0]["y"] = float("nan")
    (tmp_path / "report.json").write_text(json.dumps(good))
    with pytest.raises(ArtifactError):
        report([tmp_path])


def test_the_old_page_stays_if_the_new_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_document(tmp_path, Document(title="No tables, so that the page is what is written first"))
    report([tmp_path])
    before = (tmp_path / "report.html").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ResourceError):
        report([tmp_path], title="Other")
    monkeypatch.undo()
    assert (tmp_path / "report.html").read_bytes() == before
    assert not list(tmp_path.rglob("*.partial"))


def test_a_place_that_cannot_be_is_refused(sample: Path) -> None:
    with pytest.raises(InputError, match="choose another place"):
        report([sample], sample / "report.json" / "x" / "page.html")


def test_the_command_prints_where_the_page_is(sample: Path) -> None:
    assert report_command.__doc__, "importing it brings the command"
    runner = CliRunner()
    done = runner.invoke(app, ["report", str(sample), "-o", str(sample / "p.html"), "--title", "T"])
    assert done.exit_code == 0
    assert done.stdout.strip() == str(sample / "p.html")
    assert done.stderr.strip() == "nothing to show in: nothing"
    as_json = runner.invoke(app, ["report", str(sample), "--json", "--quiet"])
    assert json.loads(as_json.stdout)["sections"] == 4
    assert as_json.stderr == ""


ORDERS = {
    "function first": "from ecoc import report as first; first([sys.argv[1]]); import ecoc.reporting.write",
    "room first": "import ecoc.reporting.write; import ecoc.reporting; from ecoc import report as first",
    "command first": "import ecoc.cli.report; from ecoc import report as first; first([sys.argv[1]])",
}


@pytest.mark.parametrize("order", ORDERS)
def test_ecoc_report_is_the_public_function_in_any_order_of_imports(order: str, sample: Path) -> None:
    code = f"import sys; {ORDERS[order]}; import ecoc; from ecoc import report; from ecoc.reporting import write;"
    code += "assert report is first is ecoc.report is write.report and callable(report)"
    source = str(Path(documents.__file__).parents[2])
    subprocess.run([sys.executable, "-c", code, str(sample)], check=True, env={"PYTHONPATH": source})


def test_figures_are_written_as_files_on_request(sample: Path) -> None:
    files = report(sample, figures="pdf")
    written = {path.name: path.read_bytes() for path in (sample / "figures").iterdir()}
    assert set(written) == {f"{name}.pdf" for name in files.figures}
    assert all(content.startswith(b"%PDF") for content in written.values())
    with pytest.raises(InputError, match="expected svg, pdf or png"):
        report(sample, figures="gif")  # type: ignore[arg-type]
