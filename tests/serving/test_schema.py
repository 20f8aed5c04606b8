"""The OpenAPI document is true: what it allows is answered, what it forbids is refused, and every answer fits it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
from server_case import serving

TOKEN = "schema-token"
EXAMPLES = os.environ.get("ECOC_SCHEMA_EXAMPLES", "25")  # per route
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 413, 415, 422]
"""


def run_schemathesis(address: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [Path(sys.executable).parent / "schemathesis", "--config-file", folder / "schemathesis.toml", "run"]
    command += [f"{address}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}", "--seed", "1"]
    command += ["--max-examples", EXAMPLES, "--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    command += ["--no-shrink", "--no-color", "--continue-on-failure", "--request-timeout", "20"]
    hooks = {"SCHEMATHESIS_HOOKS": "schema_checks", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **hooks},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_every_answer_fits_the_document(models: Path, tmp_path: Path) -> None:
    with serving(models / "ecoc-bundle", token=TOKEN) as server:
        done = run_schemathesis(server.address, tmp_path)
        paths = httpx.get(f"{server.address}/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()[
            "paths"
        ]
        assert server.stop() == 0
        assert server.log == ""
    shown = "\n".join(line[:400] for line in done.stdout.splitlines())
    assert done.returncode == 0, shown
    operations = sum(len(methods) for methods in paths.values())
    assert f"Tested: {operations}" in done.stdout
    generated = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert generated is not None, shown
    assert int(generated[2]) > 15 * operations
