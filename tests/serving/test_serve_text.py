"""What `ecoc serve` prints for people: the line with curl works as it stands."""

import json
import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from server_case import serving

import ecoc

ODD = ['it\'s "one" $HOME `id` \\ !', "two  spaces\ttab", "é😀 \u202e\x7f\x9b", "--data @/etc/passwd"]


@pytest.fixture(scope="module")
def odd_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose most popular items have ids that a shell or a terminal could take for something else."""
    base = tmp_path_factory.mktemp("odd items")
    plain = [f"i{number}" for number in range(12)]
    rows = [
        (f"u{user}", ODD[(user + step) % 4] if step % 2 else plain[(user * 5 + step) % 12], user * 100 + step)
        for user in range(30)
        for step in range(10)
    ]
    log = pd.DataFrame(rows, columns=["user", "item", "time"])
    log["title"] = "Title of " + log["item"]
    data = ecoc.prepare(log, base / "data", user="user", item="item", time="time", title="title", threads=1)
    ecoc.train(data, base / "my run's", config={"encoder": {"dim": 8, "length": 8}, "train": {"max_steps": 5}})
    return base / "my run's"


def run_printed(text: str, folder: Path, **environment: str) -> dict[str, list[dict[str, str]]]:
    """Run the printed line in a shell; the answer."""
    line = text.splitlines()[2]
    assert line.startswith("try:  ")
    done = subprocess.run(
        ["/bin/sh", "-c", line.removeprefix("try:  ")],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return answer


def check(answer: dict[str, list[dict[str, str]]]) -> None:
    assert len(answer["items"]) == 5
    assert all(item["title"] == f"Title of {item['item']}" for item in answer["items"])
    assert answer["unknown"] == []


def test_with_odd_items_and_a_token_file(odd_model: Path, tmp_path: Path) -> None:
    secret = tmp_path / "my $(token)'s file"
    secret.write_text("abc\n")
    with serving(odd_model, "--token-file", str(secret), as_json=False) as server:
        assert server.text.splitlines()[0].startswith("my run's (version ")
        assert server.text.replace("\n", "").isprintable()
        assert "abc" not in server.text
        check(run_printed(server.text, tmp_path))


def test_with_a_token_of_the_environment(odd_model: Path, tmp_path: Path) -> None:
    with serving(odd_model, as_json=False, token="abc") as server:
        check(run_printed(server.text, tmp_path, ECOC_TOKEN="abc"))
        assert "abc" not in server.text


def test_without_a_token(odd_model: Path, tmp_path: Path) -> None:
    with serving(odd_model, as_json=False) as server:
        check(run_printed(server.text, tmp_path))
        page = server.text.splitlines()[1].split()[1]
        with server.client() as client:
            assert client.get(page).headers["content-type"].startswith("text/html")
