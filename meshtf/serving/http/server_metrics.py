"""The counts and times of a server, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from meshtf.serving.engine import Engine

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_GAUGES = {
    "num_running": ("meshtf_generations_running", "Generations in the batch."),
    "num_waiting": ("meshtf_generations_waiting", "Generations in the queue."),
    "num_pages": ("meshtf_cache_pages", "Pages of the cache."),
    "num_free_pages": ("meshtf_cache_pages_free", "Pages of the cache that are free."),
}
_COUNTERS = {
    "num_steps": ("meshtf_engine_steps", "Steps that ran."),
    "num_tokens": ("meshtf_generated_tokens", "Tokens that were added."),
    "num_prompt_tokens": ("meshtf_prompt_tokens", "Prompt tokens that were read."),
    "num_shared_tokens": ("meshtf_shared_tokens", "Prompt tokens that were found in the cache."),
}


class _EngineCollector(Collector):
    """Reads an engine's status whenever the metrics are read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        status = self._engine.status()
        for field, (name, about) in _GAUGES.items():
            yield GaugeMetricFamily(name, about, value=getattr(status, field))
        for field, (name, about) in _COUNTERS.items():
            yield CounterMetricFamily(name, about, value=getattr(status, field))


class ServerMetrics:
    """The metrics of one server.

    Attributes:
      requests: the number of requests by path and status.
      cancelled: the number of generations that ended because their client left.
      request_seconds: the seconds from a request to the end of its reply, by path.
      first_token_seconds: the seconds from a request to its first token.
      token_seconds: the seconds from a token to the next.
    """

    def __init__(self, engine: Engine) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_EngineCollector(engine))
        self.requests = Counter("meshtf_requests", "Requests.", ["path", "status"], registry=registry)
        self.cancelled = Counter("meshtf_clients_left", "Requests whose client left before the end.", registry=registry)
        self.request_seconds = Histogram(
            "meshtf_request_seconds", "Seconds of a request.", ["path"], buckets=_SECONDS, registry=registry
        )
        self.first_token_seconds = Histogram(
            "meshtf_first_token_seconds", "Seconds to the first token.", buckets=_SECONDS, registry=registry
        )
        self.token_seconds = Histogram(
            "meshtf_token_seconds", "Seconds from a token to the next.", buckets=_SECONDS, registry=registry
        )

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        return generate_latest(self._registry)
