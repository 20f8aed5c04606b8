"""Runs a server: opens the sockets, then answers in this process, or starts workers and looks after them.

The parent of workers does not import torch. Each worker listens on the address as soon as it has loaded the model, and
the kernel spreads connections over those that listen. One that died is started again. A model is exchanged in two
steps: every worker loads it, then every worker takes it; if one cannot load it, none takes it.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ecoc.errors import ArtifactError, EcocError, InputError, ResourceError
from ecoc.serving.control import Lines, Message, Opened, refusal, settings_to_json
from ecoc.serving.settings import ServerSettings
from ecoc.serving.sockets import listen, reserve

_SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
_RESTART_AFTER = 0.5  # seconds, doubled for each worker that dies young
_YOUNG = 10.0
_GONE: Message = {"kind": "gone", "error": refusal(503, "worker_died", "A worker died; try again later")}
_ERRORS: dict[int, type[EcocError]] = {kind.exit_code: kind for kind in (InputError, ArtifactError, ResourceError)}


def serve(settings: ServerSettings, on_ready: Callable[[Opened], None]) -> None:
    """Serve a model until SIGTERM or SIGINT; `on_ready` is called once every process answers."""
    try:
        opened = (listen if settings.workers == 1 else reserve)(settings.host, settings.port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{settings.host}:{settings.port}: {reason}; choose another with --host or --port") from None
    if settings.workers > 1:
        settings = replace(settings, port=opened.getsockname()[1])
        with tempfile.TemporaryDirectory(prefix="ecoc-metrics-") as folder, opened:
            asyncio.run(Supervisor(settings, on_ready, Path(folder)).run())
    else:
        from ecoc.serving.run import Process

        Process(settings).run(opened, on_ready)


@dataclass
class _Child:
    """A worker, as its parent sees it."""

    process: asyncio.subprocess.Process
    lines: Lines
    exchanges: int  # of the model, before the worker began to load it
    started: float
    ready: "asyncio.Future[Message]"
    replies: "asyncio.Queue[Message]" = field(default_factory=asyncio.Queue)
    is_gone: bool = False

    @property
    def is_ready(self) -> bool:
        return self.ready.done() and not self.ready.cancelled() and self.ready.result()["kind"] == "ready"


class Supervisor:
    """The parent of the workers."""

    def __init__(
        self,
        settings: ServerSettings,
        on_ready: Callable[[Opened], None],
        metrics_folder: Path,
    ) -> None:
        self.settings, self.on_ready = settings, on_ready
        self.metrics_folder = metrics_folder
        self._path = settings.model
        self._exchanges = 0
        self._children: list[_Child | None] = [None] * settings.workers
        self._exchanging = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()  # keeps them alive
        self._is_stopping = self._was_ready = False
        self._failure: EcocError | None = None

    async def run(self) -> None:
        """Keep all workers running until a signal comes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on_reload)
        keepers = [loop.create_task(self._keep(place)) for place in range(self.settings.workers)]
        announcing = loop.create_task(self._announce())
        await asyncio.wait(keepers)
        announcing.cancel()
        if self._failure is not None:
            raise self._failure
        for keeper in keepers:
            keeper.result()

    async def _announce(self) -> None:
        while not all(child is not None for child in self._children):
            await asyncio.sleep(0.01)
        messages = [await child.ready for child in self._children if child is not None]
        if self._is_stopping:
            return
        failed = [message for message in messages if message["kind"] == "failed"]
        if failed:
            kind = _ERRORS.get(failed[0]["exit_code"], EcocError)
            self._failure = kind(failed[0]["message"])
            self._stop(signal.SIGTERM)
        else:
            self.on_ready(msgspec.convert(messages[0]["opened"], Opened))

    def _stop(self, number: int) -> None:
        children = [child for child in self._children if child is not None and child.process.returncode is None]
        if self._is_stopping and self._failure is None:
            for child in children:
                child.process.kill()
            os._exit(128 + number)
        self._is_stopping = True
        for child in children:
            child.process.terminate()

    def _pass_on_reload(self) -> None:
        """Let one worker ask for the exchange, as for a request: it also counts and logs it."""
        for child in self._children:
            if child is not None and child.is_ready and child.process.returncode is None:
                child.process.send_signal(signal.SIGHUP)
                return

    async def _keep(self, place: int) -> None:
        """Start a worker, and start it again whenever it dies."""
        pause = _RESTART_AFTER
        while not self._is_stopping:
            child = await self._start(place)
            await self._attend(child)
            code = await self._end(child)
            if self._is_stopping:
                return
            if child.ready.result()["kind"] == "failed" and not self._was_ready:
                return
            print(f"warning: worker {child.process.pid} ended with code {code}; starting it again", file=sys.stderr)
            if time.monotonic() - child.started < _YOUNG:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 30.0)
            else:
                pause = _RESTART_AFTER

    async def _start(self, place: int) -> _Child:
        own_end, other_end = socket.socketpair()
        with other_end:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "ecoc.serving.run", str(other_end.fileno())),
                pass_fds=(other_end.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, _SHARED_METRICS: str(self.metrics_folder)},
                start_new_session=True,  # or Ctrl-C reaches it beside our own signal, as a second one
            )
        lines = await Lines.over(own_end)
        ready: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        child = _Child(process, lines, self._exchanges, time.monotonic(), ready)
        models = self.settings.models or self.settings.model.absolute().parent
        lines.send(settings=settings_to_json(replace(self.settings, model=self._path, models=models)))
        self._children[place] = child
        if self._is_stopping:  # a signal came while it started
            process.terminate()
        return child

    async def _attend(self, child: _Child) -> None:
        """Handle what a worker says until it has gone."""
        while (message := await child.lines.receive()) is not None:
            match message["kind"]:
                case "ready" | "failed":
                    child.ready.set_result(message)
                    if message["kind"] == "ready":
                        self._was_ready = True
                        if child.exchanges != self._exchanges:  # the model was exchanged while this one loaded it
                            child.process.terminate()
                case "reload":
                    path, number = Path(message["path"]), message["number"]
                    self._tasks.add(task := asyncio.get_running_loop().create_task(self._reload(child, number, path)))
                    task.add_done_callback(self._tasks.discard)
                case _:
                    child.replies.put_nowait(message)
        child.is_gone = True
        child.replies.put_nowait(_GONE)  # for an exchange that waits for a reply
        if not child.ready.done():
            child.ready.set_result({"kind": "failed", "exit_code": 1, "message": "a worker died while it started"})

    async def _end(self, child: _Child) -> int:
        child.lines.close()
        try:
            code = await asyncio.wait_for(child.process.wait(), self.settings.timeouts.stop + 2)
        except TimeoutError:
            child.process.kill()
            code = await child.process.wait()
        with suppress(ImportError, OSError):
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(child.process.pid, str(self.metrics_folder))  # type: ignore[no-untyped-call]
        return code

    async def _reload(self, child: _Child, number: int, path: Path) -> None:
        """Exchange the model for a worker that was asked to, and tell it the result."""
        child.lines.send(kind="result", number=number, **await self._exchange(path))

    async def _exchange(self, path: Path) -> Message:
        """Exchange the model in every worker or in none: `model`, or `error`."""
        if self._exchanging.locked():
            return {"error": refusal(409, "reload_running", "Another model is being loaded; try again later")}
        async with self._exchanging:
            children = [child for child in self._children if child is not None and child.is_ready and not child.is_gone]
            if len(children) < len(self._children):
                return {"error": refusal(409, "worker_starting", "A worker is starting; try again later")}
            replies = await self._ask(children, kind="prepare", path=str(path))
            refusals = [reply["error"] for reply in replies if "error" in reply]
            if refusals:
                await self._ask(children, kind="abort")
                return {"error": refusals[0]}
            self._path = path  # a worker that dies from here on starts with the new model
            self._exchanges += 1
            replies = await self._ask(children, kind="commit")
            models = [reply["model"] for reply in replies if "model" in reply]
            return {"model": models[0]} if models else {"error": refusal(503, "worker_died", "All workers died")}

    async def _ask(self, children: list[_Child], **message: Any) -> list[Message]:
        for child in children:
            child.lines.send(**message)
        return [_GONE if child.is_gone else await child.replies.get() for child in children]
