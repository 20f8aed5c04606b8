"""What the routes of a server share: the engine, the model that answers, jobs beside it, and how models are loaded."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from ecoc.errors import EcocError
from ecoc.model import load
from ecoc.serving.catalogue import Catalogue
from ecoc.serving.engine import Answer, Engine, OverloadedError, Request, Served, StoppedError
from ecoc.serving.messages import ModelName, RequestError, model_name
from ecoc.serving.metrics import ServerMetrics
from ecoc.serving.settings import ServerSettings

T = TypeVar("T")

# Seconds until a request that the queue has no place for is told so. Clients that come again at once, whatever
# Retry-After says, would otherwise take the processor from those that are served.
_REFUSAL_PAUSE = 0.2


class Reloader(Protocol):
    """Exchanges the model in every process of a server."""

    def __call__(self, path: Path) -> Awaitable[ModelName]:
        """Load, warm up, exchange; a failure leaves the old model everywhere."""


class ServerState:
    """State of one process of a server. All methods but those that say so belong to the event loop."""

    def __init__(self, settings: ServerSettings, metrics: ServerMetrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.path = settings.model
        self.is_stopping = False
        self.reload_everywhere: Reloader = self.exchange
        self._engine: Engine | None = None
        self._catalogue: tuple[Served, Catalogue] | None = None
        self._reloading = asyncio.Lock()
        self._side_jobs = 0
        self._loader = ThreadPoolExecutor(1, "ecoc-loader", _use_threads, (settings.threads,))
        self._beside = ThreadPoolExecutor(1, "ecoc-beside", _use_threads, (settings.threads,))

    @property
    def engine(self) -> Engine:
        """The engine; refuses while the first model is being loaded."""
        if self._engine is None:
            raise RequestError(503, "not_ready", "The model is being loaded", retry_after=1)
        return self._engine

    @property
    def served(self) -> Served:
        """The model that answers now."""
        return self.engine.served

    @property
    def is_ready(self) -> bool:
        """Whether requests should be sent here."""
        return self._engine is not None and not self.is_stopping

    async def start(self) -> None:
        """Load the model and begin to answer."""
        settings = self.settings

        def open_engine() -> Engine:
            engine = Engine(
                Served(load(self.path, runtime=settings.runtime)),
                largest_batch=settings.largest_batch,
                most_waiting=settings.limits.waiting,
                longest_wait=settings.timeouts.answer / 2,  # the rest is for the batch itself
                threads=settings.threads,
            )
            engine.on_batch = lambda size, seconds: self.metrics.batch(size, seconds, engine.waiting)
            return engine.start()

        self._engine = await self._on(self._loader, open_engine)
        self.metrics.model(model_name(self.served))

    def stop(self) -> None:
        """Answer what waits, then end the threads."""
        if self._engine is not None:
            self._engine.stop()
        for pool in (self._loader, self._beside):
            pool.shutdown(wait=False, cancel_futures=True)

    async def answer(self, requests: list[Request]) -> list[Answer]:
        """The answers of one model, within the time limit."""
        try:
            async with asyncio.timeout(self.settings.timeouts.answer):
                return await self.engine.answer_all(requests)
        except OverloadedError as error:
            self.metrics.shed("queue")
            await asyncio.sleep(_REFUSAL_PAUSE)
            raise RequestError(503, "overloaded", str(error), retry_after=1) from None
        except StoppedError as error:
            raise RequestError(503, "stopping", str(error), retry_after=1) from None
        except TimeoutError:
            self.metrics.shed("timeout")
            raise RequestError(503, "timeout", "No answer within the time limit", retry_after=1) from None

    async def beside(self, job: Callable[[], T]) -> T:
        """Compute something beside the engine, on one thread, within the time limit; refuses if too many wait."""
        if self._side_jobs >= self.settings.limits.side_jobs:
            self.metrics.shed("queue")
            raise RequestError(503, "overloaded", f"{self._side_jobs} requests are waiting", retry_after=1)
        self._side_jobs += 1
        loop, future = asyncio.get_running_loop(), self._beside.submit(job)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._job_ended))
        try:
            async with asyncio.timeout(self.settings.timeouts.answer):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            self.metrics.shed("timeout")
            raise RequestError(503, "timeout", "No answer within the time limit", retry_after=1) from None

    def _job_ended(self) -> None:
        self._side_jobs -= 1

    def catalogue_of(self, served: Served) -> Catalogue:
        """The search over the items of a model; called on the thread of `beside`."""
        if self._catalogue is None or self._catalogue[0] is not served:
            self._catalogue = served, Catalogue(served)
        return self._catalogue[1]

    async def reload(self, given: str | None) -> tuple[ModelName, ModelName]:
        """Exchange the model in every process: the new one and the old one. A failure leaves the old one."""
        if self._reloading.locked():
            raise RequestError(409, "reload_running", "Another model is being loaded; try again later")
        async with self._reloading:
            previous = model_name(self.served)
            try:
                path = allowed_path(self.settings, self.path, given)
                current = await self.reload_everywhere(path)
            except RequestError:
                self.metrics.reload("failed")
                raise
            self.metrics.reload("ok")
            return current, previous

    async def exchange(self, path: Path) -> ModelName:
        """Exchange the model of this process."""
        served = await self.prepare(path)
        await self.commit(path, served)
        return model_name(served)

    async def prepare(self, path: Path) -> Served:
        """Load and warm up a model that does not answer yet."""

        def open_served() -> Served:
            served = Served(load(path, runtime=self.settings.runtime))
            served.warm_up()
            return served

        try:
            return await self._on(self._loader, open_served)
        except (EcocError, OSError, MemoryError, RuntimeError) as error:
            raise RequestError(422, "load_failed", " ".join(str(error).split())[:500]) from None

    async def commit(self, path: Path, served: Served) -> None:
        """Let a prepared model answer from now on."""
        engine = self.engine
        await self._on(self._loader, lambda: engine.swap(served))
        self.path = path
        self.metrics.model(model_name(served))

    async def _on(self, pool: ThreadPoolExecutor, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, job)


def _use_threads(threads: int) -> None:
    torch.set_num_threads(threads)


def allowed_path(settings: ServerSettings, current: Path, given: str | None) -> Path:
    """The model to load: the current one, or one inside the folder of models, links followed."""
    if given is None:
        return current
    base = settings.models if settings.models is not None else settings.model.absolute().parent
    try:
        path = base / given
        if path.resolve().is_relative_to(base.resolve()) and "\0" not in given:
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise RequestError(422, "path_refused", "The path must lie in the folder of models of this server")
