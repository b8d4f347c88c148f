"""The figures that /metrics shows. Counters are told to it; gauges are read when somebody looks. No HTTP, no loop."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_DURATIONS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_LATENCIES_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True)
class ModelGauges:
    """How one model's engine stands now."""

    model: str
    sequences: Mapping[str, int]
    """By state."""
    cache_bytes: Mapping[str, int]
    """By residency."""
    queue_depth: int
    steps: int = 0
    step_tokens: Mapping[str, int] = field(default_factory=dict)
    """What all steps so far have `computed` and `sampled`."""


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """How the server stands now, beside its models."""

    runs: Mapping[str, int]
    """`working`: with a leg under way; `waiting`: for a client, a person or an approval."""
    sessions: int
    """Those in memory."""
    tasks: int
    """Of the event loop."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """About how many bytes each table takes."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Bytes of weights and caches: `held` now, `most_held` so far, and the `budget` where there is one."""
    loads: Mapping[str, int] = field(default_factory=dict)
    """How often each model was loaded."""
    unloads: Mapping[str, int] = field(default_factory=dict)
    """How often each was freed."""


class Metrics:
    """One server's metrics, in a registry of their own, so that several servers may live in a process.

    The methods may be called from any thread. Labels must come from what the server itself lists: every new value is a
    series that stays.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("tenuto_requests", "Runs ended.", ["model", "status"], registry=registry)
        self._started = Counter("tenuto_runs_started", "Runs started.", ["model"], registry=registry)
        self._durations = Histogram(
            "tenuto_inference_duration_seconds",
            "From a request's admission to the end of its answer.",
            ["model"],
            buckets=_DURATIONS_S,
            registry=registry,
        )
        self._first_tokens = Histogram(
            "tenuto_time_to_first_token_seconds",
            "From a request's admission to its first token.",
            ["model"],
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self._resumes = Histogram(
            "tenuto_resume_seconds",
            "From a paused sequence's resume to its first new token.",
            ["model"],
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self._tokens = Counter(
            "tenuto_tokens", "Tokens computed, cached or sampled.", ["model", "kind"], registry=registry
        )
        self._tool_calls = Counter(
            "tenuto_tool_calls", "Calls of servers' tools.", ["server", "tool", "status"], registry=registry
        )

    def run_started(self, model: str) -> None:
        """A run has begun; it ends once, and waits in between as often as it will."""
        self._started.labels(model).inc()

    def observe_run(self, model: str, status: str, duration_s: float) -> None:
        """A run has ended."""
        self._requests.labels(model, status).inc()
        self._durations.labels(model).observe(duration_s)

    def first_token(self, model: str, seconds: float) -> None:
        """A run has its first token."""
        self._first_tokens.labels(model).observe(seconds)

    def resume(self, model: str, seconds: float) -> None:
        """A resumed sequence has its first new token."""
        self._resumes.labels(model).observe(seconds)

    def round(self, model: str, *, computed: int, cached: int, sampled: int) -> None:
        """A round is over, and has taken so many tokens."""
        for kind, count in (("computed", computed), ("cached", cached), ("sampled", sampled)):
            self._tokens.labels(model, kind).inc(count)

    def tool_call(self, server: str, tool: str, status: str) -> None:
        """A server's tool has answered, or was not called. `tool` is one that the server lists."""
        self._tool_calls.labels(server, tool, status).inc()

    def watch(
        self, models: Callable[[], Iterable[ModelGauges]], server: Callable[[], ServerGauges] | None = None
    ) -> None:
        """Show these gauges. They are read at every scrape, on the thread that scrapes. Once for each server."""
        self._registry.register(_Gauges(models, server))

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type, in the form that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Gauges(Collector):
    def __init__(self, models: Callable[[], Iterable[ModelGauges]], server: Callable[[], ServerGauges] | None) -> None:
        self._models, self._server = models, server

    def collect(self) -> Iterator[Metric]:
        sequences = GaugeMetricFamily("tenuto_sequences", "Sequences by state.", labels=["model", "state"])
        cache = GaugeMetricFamily("tenuto_cache_bytes", "Bytes of cache by residency.", labels=["model", "residency"])
        queue = GaugeMetricFamily("tenuto_queue_depth", "Requests that wait for the model.", labels=["model"])
        steps = CounterMetricFamily("tenuto_steps", "Steps of the model.", labels=["model"])
        fed = CounterMetricFamily("tenuto_step_tokens", "Tokens of all steps.", labels=["model", "kind"])
        for model in self._models():
            steps.add_metric([model.model], model.steps)
            for kind, count in model.step_tokens.items():
                fed.add_metric([model.model, kind], count)
            for state, count in model.sequences.items():
                sequences.add_metric([model.model, state], count)
            for residency, count in model.cache_bytes.items():
                cache.add_metric([model.model, residency], count)
            queue.add_metric([model.model], model.queue_depth)
        yield from (sequences, cache, queue, steps, fed)
        if self._server is not None:
            yield from _server_gauges(self._server())


def _server_gauges(server: ServerGauges) -> Iterator[Metric]:
    runs = GaugeMetricFamily("tenuto_runs", "Runs that have not ended.", labels=["state"])
    for state, count in server.runs.items():
        runs.add_metric([state], count)
    yield runs
    yield GaugeMetricFamily("tenuto_sessions_in_memory", "Sessions in memory.", value=server.sessions)
    memory = GaugeMetricFamily("tenuto_memory_bytes", "About what is remembered, by table.", labels=["table"])
    for table, count in server.memory.items():
        memory.add_metric([table], count)
    yield memory
    models = GaugeMetricFamily("tenuto_models_bytes", "Weights and caches of all models.", labels=["kind"])
    for kind, count in server.models.items():
        models.add_metric([kind], count)
    loads = CounterMetricFamily("tenuto_model_loads", "Models loaded.", labels=["model"])
    unloads = CounterMetricFamily("tenuto_model_unloads", "Models freed.", labels=["model"])
    for family, counts in ((loads, server.loads), (unloads, server.unloads)):
        for model, count in counts.items():
            family.add_metric([model], count)
    yield from (models, loads, unloads)
    yield GaugeMetricFamily("tenuto_tasks", "Tasks of the event loop.", value=server.tasks)
