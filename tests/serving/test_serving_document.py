"""What docs/serving.md shows works: its commands in order, its client, its table of limits, its unit and its image."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from server_case import Server

from ecoc.serving.settings import Limits, Timeouts

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
BIN = Path(sys.executable).parent


def commands() -> list[str]:
    code = "".join(block for language, block in BLOCKS if language == "sh").replace("\\\n", " ")
    return [line.split(" #")[0].strip() for line in code.splitlines()]


def run(command: str, place: Path) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def test_the_commands_and_the_client_work(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(models / "ecoc", tmp_path / "runs" / "ecoc")
    shutil.copytree(models / "data", tmp_path / "market")
    line = re.search(r"^A line of `histories.jsonl` is `(.*)`", TEXT, re.MULTILINE)
    assert line is not None
    (tmp_path / "histories.jsonl").write_text(line[1] + "\n", encoding="utf-8")
    export, serve, ask, *rest = commands()
    assert (export, serve, len(rest)) == ("ecoc export runs/ecoc -o model", "ecoc serve model", 2)
    assert "serve it with: ecoc serve model" in run(export, tmp_path)
    server = Server(tmp_path / "model")
    try:
        answer = json.loads(run(ask.replace("http://127.0.0.1:8000", server.address), tmp_path))
        assert (len(answer["items"]), answer["unknown"], answer["unknown_feedback"]) == (5, [], [])
        client = "".join(block for language, block in BLOCKS if language == "python")
        (tmp_path / "client.py").write_text(client.replace("http://127.0.0.1:8000", server.address), encoding="utf-8")
        runpy.run_path(str(tmp_path / "client.py"))
        assert len(re.findall(r"^i\d{4}  .+  score -?[\d.]+, value -?[\d.]+$", capsys.readouterr().out, re.M)) == 3
    finally:
        server.stop()
    for command in rest:
        run(command, tmp_path)
    assert (tmp_path / "lists.parquet").is_file()


def test_the_table_of_limits_is_that_of_the_server() -> None:
    limits, timeouts = Limits(), Timeouts()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]*\d{3}[^|]* \|$", TEXT, re.MULTILINE))
    assert rows == {
        "body": f"{limits.body_bytes // 10**6} MB, not compressed",
        "events of a history; items of `only` or `exclude`": f"{limits.history:,}",
        "`k`": f"{limits.k:,}",
        "requests in a list": f"{limits.list_length}",
        "headers": f"{limits.header_bytes // 1024} kB, {limits.headers} fields",
        "time for headers or body to arrive": f"{timeouts.read:g} s (`--read-timeout`)",
        "requests that wait": f"{limits.waiting:,} (`--most-waiting`)",
        "time until an answer": f"{timeouts.answer:g} s (`--timeout`)",
        "connections": f"{limits.connections:,}",
    }
    assert limits.only == limits.exclude == limits.history


def test_the_commands_of_the_unit_and_of_the_image_take_their_options(models: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n", encoding="utf-8")
    unit = re.search(r"ExecStart=/opt/ecoc/bin/ecoc serve (.+)", TEXT)
    image = re.search(r'CMD \["ecoc", "serve", (.+)\]', TEXT)
    assert unit is not None
    assert image is not None
    for words in (unit[1].split(), json.loads(f"[{image[1]}]")):
        path, *options = [
            str(tmp_path / "token") if word.endswith("/token") else "0" if word == "8000" else word for word in words
        ]
        assert path.startswith("/srv")
        options[options.index("--host") + 1] = "127.0.0.1"  # the test stays on loopback
        server = Server(models / "ecoc-bundle", *options)
        try:
            with server.client() as client:
                assert client.get("/v2/health/ready").status_code == 200
                assert client.get("/metrics").status_code == 401
                assert client.get("/metrics", headers={"Authorization": "Bearer secret-token"}).status_code == 200
        finally:
            server.stop()
