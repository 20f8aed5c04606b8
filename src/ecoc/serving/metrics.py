"""Figures of a server in the text format of Prometheus. Several workers share one folder of counters."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from ecoc.serving.messages import ModelName

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class ServerMetrics:
    """Counters of one process. With a shared folder, `text` adds up those of all workers, dead ones included."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        if SHARED_FOLDER not in os.environ:
            ProcessCollector(registry=self.registry)
        registry = self.registry
        self._requests = Counter("ecoc_requests", "Requests answered.", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "ecoc_request_seconds", "Time to answer a request.", ["route"], buckets=_SECONDS, registry=registry
        )
        self._batch_size = Histogram("ecoc_batch_size", "Requests per batch.", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "ecoc_batch_seconds", "Time to compute a batch.", buckets=_SECONDS, registry=registry
        )
        self._waiting = Gauge(
            "ecoc_waiting", "Requests in the queue.", multiprocess_mode="livesum", registry=self.registry
        )
        self._shed = Counter("ecoc_shed", "Requests refused because of load, by reason.", ["reason"], registry=registry)
        self._reloads = Counter(
            "ecoc_reloads", "Models loaded while serving, by result.", ["result"], registry=registry
        )
        self._model = Gauge(
            "ecoc_model_info",
            "1 for the model that answers.",
            ["name", "version"],
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        self._children: dict[tuple[str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._served: ModelName | None = None
        for reason in ("queue", "timeout", "connections"):
            self._shed.labels(reason)
        for result in ("ok", "failed"):
            self._reloads.labels(result)

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered. Routes are the server's own names, so their number is bounded."""
        key = route, status
        if key not in self._children:
            self._children[key] = self._requests.labels(route, str(status))
            self._histograms[route] = self._seconds.labels(route)
        self._children[key].inc()
        self._histograms[route].observe(seconds)

    def batch(self, size: int, seconds: float, waiting: int) -> None:
        """A batch was computed, and so many requests wait for the next."""
        self._batch_size.observe(size)
        self._batch_seconds.observe(seconds)
        self._waiting.set(waiting)

    def shed(self, reason: str) -> None:
        """A request was refused because of load."""
        self._shed.labels(reason).inc()

    def reload(self, result: str) -> None:
        """A model was loaded while serving, or could not be."""
        self._reloads.labels(result).inc()

    def model(self, served: ModelName) -> None:
        """Another model answers from now on."""
        if SHARED_FOLDER not in os.environ:
            self._model.clear()
        elif self._served is not None:
            self._model.labels(self._served.name, self._served.version).set(0)  # shared files cannot forget a label
        self._model.labels(served.name, served.version).set(1)
        self._served = served

    def text(self) -> bytes:
        """All figures."""
        registry = self.registry
        if SHARED_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
