"""`ecoc serve`."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ecoc.cli.app import answer, command
from ecoc.cli.options import Output
from ecoc.storage.trusted import printable

if TYPE_CHECKING:
    from ecoc.serving.settings import ServerSettings


@command
def serve(  # noqa: PLR0913 - one parameter per option
    model: Annotated[Path, typer.Argument(help="Bundle (ecoc export) or folder of a finished run.")],
    *,
    host: Annotated[str, typer.Option(help="Address to listen on; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of processes that answer.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Number of processor threads per worker.")] = 1,
    runtime: Annotated[
        Literal["torch", "onnx"], typer.Option(help="What computes the encoder; onnx: as ecoc export --onnx wrote it.")
    ] = "torch",
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that callers must send.", show_default="environment ECOC_TOKEN, or none"
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name that the Host header may have. May be repeated.", show_default="loopback: its names; else any"
        ),
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(help="Folder that /admin/reload may load from.", show_default="the folder that holds MODEL"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Dataset on which the page fits a simulator to play sessions in.",
            show_default="the dataset of a run; a model of a built-in world needs none",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.01, help="Seconds until a request that waits is refused.")] = 5.0,
    read_timeout: Annotated[float, typer.Option(min=0.01, help="Seconds in which a request must arrive.")] = 5.0,
    largest_batch: Annotated[int, typer.Option(min=1, help="Most requests computed together.")] = 64,
    most_waiting: Annotated[int, typer.Option(min=1, help="Most requests that wait; more are refused.")] = 1024,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="Write a JSON line per request to standard error.")
    ] = True,
    log_histories: Annotated[bool, typer.Option("--log-histories", help="Write histories to the access log.")] = False,
    output: Output,
) -> None:
    """Serve a model over HTTP until a signal comes."""
    from ecoc.serving.settings import Limits, ServerSettings, Timeouts, read_token

    settings = ServerSettings(
        model=model,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        runtime=runtime,
        token=read_token(token_file),
        allowed_hosts=tuple(allow_host or ()),
        models=models,
        data=data,
        largest_batch=largest_batch,
        log_histories=log_histories,
        access_log=access_log and not output.quiet,
        limits=Limits(waiting=most_waiting),
        timeouts=Timeouts(answer=timeout, read=read_timeout),
    )
    serve_until_stopped(settings, output, token_file)


def serve_until_stopped(settings: "ServerSettings", output: Output, token_file: Path | None = None) -> None:
    """Serve, and print where as soon as the server answers."""
    from ecoc.errors import InputError
    from ecoc.serving.settings import TOKEN_VARIABLE

    if not settings.model.exists():
        raise InputError(f"{settings.model}: no such folder; expected a bundle or the folder of a finished run")
    try:
        from ecoc.serving.control import Opened
        from ecoc.serving.supervisor import serve as serve_model
    except ImportError as error:
        raise InputError(f"serving needs {error.name}: pip install 'ecoc[serve]'") from None

    def announce(opened: Opened) -> None:
        address = settings.address(opened.port)
        header = "" if settings.token is None else ' -H "Authorization: Bearer $TOKEN"'
        token = "" if token_file is None else f"TOKEN=$(cat {shlex.quote(str(token_file))}); "
        token = f"TOKEN=${TOKEN_VARIABLE}; " if header and not token else token
        body = shlex.quote(_shown_json({"history": opened.example, "k": 5}))
        values = {
            "address": address,
            "page": f"{address}/",
            "model": {"name": opened.name, "version": opened.version},
            "items": opened.items,
            "workers": settings.workers,
            "pid": os.getpid(),
        }
        text = (
            f"{opened.name} (version {opened.version}, {opened.items:,} items) is served at {address}\n"
            f"page: {address}/\n"
            f"try:  {token}curl -s -H 'Content-Type: application/json'{header} -d {body} {address}/v1/recommend"
        )
        answer(values, text, output.json_)
        sys.stdout.flush()  # the caller waits for it, and the command goes on

    serve_model(settings, announce)


def _shown_json(value: object) -> str:
    """JSON to be copied from a terminal: with characters as they are, unless some of them would not be shown."""
    text = json.dumps(value, ensure_ascii=False)
    return text if printable(text) == text else json.dumps(value).replace("\x7f", "\\u007f")
