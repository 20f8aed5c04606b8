"""One process of a server: loads the model and answers until a signal comes."""

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch
import uvicorn

from ecoc.errors import EcocError
from ecoc.serving.app import build_app
from ecoc.serving.catalogue import Catalogue
from ecoc.serving.control import Lines, Message, Opened, refusal, settings_from_json
from ecoc.serving.engine import Served
from ecoc.serving.messages import ModelName, RequestError, model_name
from ecoc.serving.metrics import LineLog, ServerMetrics
from ecoc.serving.protocol import Server, limited
from ecoc.serving.settings import ServerSettings
from ecoc.serving.state import ServerState

_logger = logging.getLogger("ecoc.serving")


class Process:
    """One process of a server, with sockets that are listening already."""

    def __init__(self, settings: ServerSettings, listeners: list[socket.socket]) -> None:
        torch.set_num_threads(settings.threads)
        self.settings, self.listeners = settings, listeners
        self.metrics = ServerMetrics()
        self._failure: BaseException | None = None

    def run(self, on_ready: Callable[[Opened], None] | None = None, *, parent: socket.socket | None = None) -> None:
        """Answer until a signal comes, or until the parent has gone. Raises what made loading the model fail."""
        log = LineLog(sys.stderr) if self.settings.access_log else None
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self._serve(on_ready, parent, log))
        finally:
            if log is not None:
                log.close()
        if self._failure is not None:
            raise self._failure

    async def _serve(
        self, on_ready: Callable[[Opened], None] | None, parent: socket.socket | None, log: LineLog | None
    ) -> None:
        loop = asyncio.get_running_loop()
        state = ServerState(self.settings, self.metrics)
        link = None if parent is None else Link(await Lines.over(parent), state)
        server = self._server(state, log)

        async def start() -> None:
            try:
                await state.start()
            except BaseException as error:
                self._failure = error
                server.should_exit = True
                if link is not None:
                    link.failed(error)
                return
            opened = _describe(state.served, self.listeners[0].getsockname()[1])
            if on_ready is not None:
                on_ready(opened)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(reload_current(state)))
            if link is not None:
                link.ready(opened)
                await link.attend()
                server.should_exit = True

        starting = loop.create_task(start())
        try:
            await server.serve(sockets=self.listeners)
        finally:
            starting.cancel()
            await loop.run_in_executor(None, state.stop)

    def _server(self, state: ServerState, log: LineLog | None) -> Server:
        settings = self.settings
        config = uvicorn.Config(
            build_app(state, log),
            http=limited(settings.limits, settings.timeouts, self._on_refusal),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(settings.timeouts.idle),
        )

        def stop() -> None:
            state.is_stopping = True

        return Server(config, settings.timeouts, stop)

    def _on_refusal(self, status: int) -> None:
        self.metrics.request("other", status, 0.0)
        if status == 503:
            self.metrics.shed("connections")


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _describe(served: Served, port: int) -> Opened:
    places, items = Catalogue(served).search("", 2)
    return Opened(port, served.name, served.version, items, [served.ids[place] for place in places])


async def reload_current(state: ServerState) -> None:
    """Open the served model again, as after a signal."""
    try:
        await state.reload(None)
    except RequestError as error:
        _logger.warning("the model was not exchanged: %s", error)


class Link:
    """A worker's end: does what the parent asks, and asks the parent to exchange the model everywhere."""

    def __init__(self, lines: Lines, state: ServerState) -> None:
        self._lines, self._state = lines, state
        self._results: dict[int, asyncio.Future[Message]] = {}
        self._next = 0
        state.reload_everywhere = self.reload_everywhere

    def ready(self, opened: Opened) -> None:
        """The worker answers requests."""
        self._lines.send(kind="ready", opened=msgspec.to_builtins(opened))

    def failed(self, error: BaseException) -> None:
        """The worker could not load the model and ends."""
        code = error.exit_code if isinstance(error, EcocError) else 1
        self._lines.send(kind="failed", exit_code=code, message=str(error) or type(error).__name__)

    async def attend(self) -> None:
        """Do what the parent asks until it has gone."""
        prepared: tuple[Path, Served] | None = None
        while (message := await self._lines.receive()) is not None:
            match message["kind"]:
                case "prepare":
                    path = Path(message["path"])
                    try:
                        prepared = path, await self._state.prepare(path)
                        self._lines.send(kind="prepared")
                    except RequestError as error:
                        self._lines.send(kind="refused", error=refusal(error.status, error.code, error.message))
                case "commit" if prepared is not None:
                    await self._state.commit(*prepared)
                    self._lines.send(kind="committed", model=msgspec.to_builtins(model_name(prepared[1])))
                    prepared = None
                case "abort":
                    prepared = None
                    self._lines.send(kind="aborted")
                case "result":
                    self._results.pop(message["number"]).set_result(message)

    async def reload_everywhere(self, path: Path) -> ModelName:
        """Ask the parent to exchange the model in every worker."""
        number, self._next = self._next, self._next + 1
        self._results[number] = asyncio.get_running_loop().create_future()
        self._lines.send(kind="reload", number=number, path=str(path))
        message = await self._results[number]
        if "error" in message:
            error = message["error"]
            retry_after = 1 if error["status"] == 503 else None
            raise RequestError(error["status"], error["code"], error["message"], retry_after=retry_after)
        return ModelName(**message["model"])


def work(listener: int, control: int) -> None:
    """Body of a worker: descriptors of its listening socket and of its end of the pair."""
    parent = socket.socket(fileno=control)
    with parent.makefile("rb", buffering=0) as stream:
        settings = settings_from_json(json.loads(stream.readline())["settings"])
    process = Process(settings, [socket.socket(fileno=listener)])
    try:
        process.run(parent=parent)
    except EcocError as error:  # the parent reports it
        sys.exit(error.exit_code)


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]))
