"""One process of a server: loads the model and answers until a signal comes."""

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import torch
import uvicorn

from ecoc.errors import EcocError
from ecoc.serving.app import build_app
from ecoc.serving.catalogue import Catalogue
from ecoc.serving.control import Lines, Message, Opened, refusal, settings_from_json
from ecoc.serving.engine import Served
from ecoc.serving.log import LineLog, line_log, now
from ecoc.serving.messages import ModelName, RequestError, model_name
from ecoc.serving.metrics import ServerMetrics
from ecoc.serving.protocol import Server, limited
from ecoc.serving.settings import ServerSettings
from ecoc.serving.sockets import listen
from ecoc.serving.state import ServerState

_logger = logging.getLogger("ecoc.serving")


class Process:
    """One process of a server."""

    def __init__(self, settings: ServerSettings) -> None:
        torch.set_num_threads(settings.threads)
        self.settings = settings
        self.metrics = ServerMetrics()
        self._failure: BaseException | None = None
        self._access_log: LineLog | None = None

    def run(self, listener: socket.socket, on_ready: Callable[[Opened], None]) -> None:
        """Answer until a signal comes. Raises what made loading the model fail."""
        self._run(partial(self._serve_alone, listener, on_ready))

    def work(self, parent: socket.socket) -> None:
        """Answer as a worker, until a signal comes or the parent has gone. Raises as `run` does."""
        self._run(partial(self._serve_beside, parent))

    def _run(self, serve: Callable[[ServerState, Server], Awaitable[None]]) -> None:
        with line_log(sys.stderr) as log:
            self._access_log = log if self.settings.access_log else None
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self._serve(serve))
        if self._failure is not None:
            raise self._failure

    async def _serve(self, serve: Callable[[ServerState, Server], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        state = ServerState(self.settings, self.metrics)
        server = self._server(state)
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(reload_current(state)))
        try:
            await serve(state, server)
        finally:
            await loop.run_in_executor(None, state.stop)

    async def _serve_alone(
        self, listener: socket.socket, on_ready: Callable[[Opened], None], state: ServerState, server: Server
    ) -> None:
        async def start() -> None:  # probes are answered meanwhile
            if await self._has_started(state):
                on_ready(_describe(state.served, listener.getsockname()[1]))
            else:
                server.should_exit = True

        starting = asyncio.get_running_loop().create_task(start())
        await server.serve(sockets=[listener])
        starting.cancel()

    async def _serve_beside(self, parent: socket.socket, state: ServerState, server: Server) -> None:
        link = Link(await Lines.over(parent), state)
        if not await self._has_started(state):
            link.failed(self._failure)
            return
        listener = listen(self.settings.host, self.settings.port, shared=True)  # now: others answer meanwhile
        link.ready(_describe(state.served, self.settings.port))

        async def attend() -> None:
            await link.attend()
            server.should_exit = True

        attending = asyncio.get_running_loop().create_task(attend())
        await server.serve(sockets=[listener])
        attending.cancel()

    async def _has_started(self, state: ServerState) -> bool:
        try:
            await state.start()
        except BaseException as error:
            self._failure = error
        gc.collect()
        gc.freeze()  # to search all that is loaded takes 0.2 s, again and again, in which nobody is answered
        return self._failure is None

    def _server(self, state: ServerState) -> Server:
        settings = self.settings
        config = uvicorn.Config(
            build_app(state, self._access_log),
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

    def _on_refusal(self, status: int, code: str, client: str | None) -> None:
        self.metrics.request("other", status, 0.0)
        if status == 503:
            self.metrics.shed("connections")
        if self._access_log is not None:
            self._access_log.write({"time": now(), "client": client, "status": status, "code": code})


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

    def failed(self, error: BaseException | None) -> None:
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


def work(control: int) -> None:
    """Body of a worker; `control` is the descriptor of its end of the pair of sockets."""
    parent = socket.socket(fileno=control)
    with parent.makefile("rb", buffering=0) as stream:
        settings = settings_from_json(json.loads(stream.readline())["settings"])
    try:
        Process(settings).work(parent)
    except EcocError as error:  # the parent reports it
        sys.exit(error.exit_code)


if __name__ == "__main__":
    work(int(sys.argv[1]))
