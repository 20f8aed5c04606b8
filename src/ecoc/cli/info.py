"""`ecoc info`."""

from pathlib import Path
from typing import Annotated

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.options import Output


@command
def info(
    path: Annotated[Path, typer.Argument(help="Folder of a prepared dataset, a run or a bundle.")],
    *,
    verify: Annotated[bool, typer.Option("--verify", help="Read every file and compare its checksum.")] = False,
    output: Output,
) -> None:
    """Describe a prepared dataset, a run or a bundle: statistics, settings, versions, checksums."""
    from ecoc.storage.trusted import is_there

    if is_there(path / "config.toml"):
        _run_info(path, verify, output.json_)
        return
    if is_there(path / "bundle.json"):
        from ecoc.reporting.bundle import bundle_json, bundle_text

        values = bundle_json(path, verify=verify)
        answer(values, bundle_text(values), output.json_)
        return
    from ecoc.data.describe import page, summary
    from ecoc.data.sequences import open_data

    values = summary(open_data(path, verify=verify))
    answer(values, page(values) + ("\n  every file matches its checksum" if verify else ""), output.json_)


def _run_info(path: Path, verify: bool, as_json: bool) -> None:
    from ecoc.runs.folder import Run
    from ecoc.runs.status import run_status

    status = run_status(Run(path))
    if not status.is_finished:
        answer({"kind": "run", **status.model_dump(mode="json")}, str(status), as_json)
        return
    from ecoc.reporting.text import run_json, run_text

    values = run_json(path, verify=verify)
    answer(values, run_text(values), as_json)
