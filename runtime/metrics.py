"""The figures that /metrics shows. Counters are told to it; gauges are read when somebody looks. No HTTP, no loop."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
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
    """What all steps so far have `computed` and `sampled`, and what they have not because sequences `shared` it."""
    speculated: Mapping[str, int] = field(default_factory=dict)
    """Guessed tokens that were verified: `accepted` and `rejected`."""
    prefill_slowdown: float = 0.0
    """How many times as long steps take in which prompts are fed beside others that decode."""
    interrupted: int = 0
    """How often a round in the background has given up its slot."""
    restarts: int = 0
    """How often its engine has ended by itself and begun again."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What its engine has counted of its caches, by family and label."""
    threads: int = 0


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
        # Each family as what gives its series by their labels: to find one anew takes longer than to count in it.
        self._requests = cache(Counter("tenuto_requests", "Runs ended.", ["model", "status"], registry=registry).labels)
        self._started = cache(Counter("tenuto_runs_started", "Runs started.", ["model"], registry=registry).labels)
        self._durations = cache(
            Histogram(
                "tenuto_inference_duration_seconds",
                "From a request's admission to the end of its answer.",
                ["model"],
                buckets=_DURATIONS_S,
                registry=registry,
            ).labels
        )
        self._first_tokens = cache(
            Histogram(
                "tenuto_time_to_first_token_seconds",
                "From a request's admission to its first token.",
                ["model"],
                buckets=_LATENCIES_S,
                registry=registry,
            ).labels
        )
        self._resumes = cache(
            Histogram(
                "tenuto_resume_seconds",
                "From a paused sequence's resume to its first new token.",
                ["model"],
                buckets=_LATENCIES_S,
                registry=registry,
            ).labels
        )
        self._tokens = cache(
            Counter("tenuto_tokens", "Tokens computed, cached or sampled.", ["model", "kind"], registry=registry).labels
        )
        self._tool_calls = cache(
            Counter(
                "tenuto_tool_calls", "Calls of servers' tools.", ["server", "tool", "status"], registry=registry
            ).labels
        )

        self._warm = cache(Gauge("tenuto_warm_prefixes", "Prefixes of --warm.", ["state"], registry=registry).labels)

    def warm_prefixes(self, counts: Mapping[str, int]) -> None:
        """How many prefixes that were named at the start are in each state."""
        for state, count in counts.items():
            self._warm(state).set(count)

    def run_started(self, model: str) -> None:
        """A run has begun; it ends once, and waits in between as often as it will."""
        self._started(model).inc()

    def observe_run(self, model: str, status: str, duration_s: float) -> None:
        """A run has ended."""
        self._requests(model, status).inc()
        self._durations(model).observe(duration_s)

    def first_token(self, model: str, seconds: float) -> None:
        """A run has its first token."""
        self._first_tokens(model).observe(seconds)

    def resume(self, model: str, seconds: float) -> None:
        """A resumed sequence has its first new token."""
        self._resumes(model).observe(seconds)

    def round(self, model: str, *, computed: int, cached: int, sampled: int) -> None:
        """A round is over, and has taken so many tokens."""
        for kind, count in (("computed", computed), ("cached", cached), ("sampled", sampled)):
            self._tokens(model, kind).inc(count)

    def tool_call(self, server: str, tool: str, status: str) -> None:
        """A server's tool has answered, or was not called. `tool` is one that the server lists."""
        self._tool_calls(server, tool, status).inc()

    def watch(
        self, models: Callable[[], Iterable[ModelGauges]], server: Callable[[], ServerGauges] | None = None
    ) -> None:
        """Show these gauges. They are read at every scrape, on the thread that scrapes. Once for each server."""
        self._registry.register(_Gauges(models, server))

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics as text, and its content type, in the form that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


_Family = type[GaugeMetricFamily] | type[CounterMetricFamily]
_Read = Callable[[ModelGauges], float]
_ReadSeveral = Callable[[ModelGauges], Mapping[str, float]]

_SINGLE: tuple[tuple[_Family, str, str, _Read], ...] = (
    (GaugeMetricFamily, "queue_depth", "Requests that wait for the model.", lambda of: of.queue_depth),
    (CounterMetricFamily, "steps", "Steps of the model.", lambda of: of.steps),
    (
        CounterMetricFamily,
        "engine_restarts",
        "Engines that ended by themselves and began again.",
        lambda of: of.restarts,
    ),
    (
        GaugeMetricFamily,
        "prefill_slowdown",
        "How many times as long steps take that feed prompts beside sequences that decode.",
        lambda of: of.prefill_slowdown,
    ),
    (
        CounterMetricFamily,
        "rounds_interrupted",
        "Rounds in the background that gave up their slots to interactive ones.",
        lambda of: of.interrupted,
    ),
)
"""Of each family with one number a model: its kind, how it is called, what it says, and how it is read."""

_SEVERAL: tuple[tuple[_Family, str, str, str, _ReadSeveral], ...] = (
    (GaugeMetricFamily, "sequences", "Sequences by state.", "state", lambda of: of.sequences),
    (GaugeMetricFamily, "cache_bytes", "Bytes of cache by residency.", "residency", lambda of: of.cache_bytes),
    (
        CounterMetricFamily,
        "step_tokens",
        "Tokens of all steps, and those that sequences shared.",
        "kind",
        lambda of: of.step_tokens,
    ),
    (
        CounterMetricFamily,
        "speculated_tokens",
        "Tokens guessed and verified in steps; each that was accepted saved its sequence a step.",
        "outcome",
        lambda of: of.speculated,
    ),
)
"""Of each family with several numbers a model: what tells its series apart, too."""

_COUNTED = {
    "moves": ("cache_moves", "Caches of paused sequences that were moved, by where from and to.", "move"),
    "moved_bytes": ("cache_moved_bytes", "Bytes of caches that were moved.", "move"),
    "saved_tokens": ("tokens_saved", "Tokens of prompts that were not computed, by what had their cache.", "by"),
    "snapshots": ("snapshots", "Caches on disk, by what became of them.", "outcome"),
    "snapshot_bytes": ("snapshot_bytes", "Bytes written to the disk and read from there.", "outcome"),
    "snapshots_refused": ("snapshots_refused", "Caches that were not written, by why.", "cause"),
    "snapshots_ignored": ("snapshots_ignored", "Files of caches that were not used, by why.", "cause"),
}
"""How each family of counts is called, what it says, and what tells its series apart."""


class _Gauges(Collector):
    def __init__(self, models: Callable[[], Iterable[ModelGauges]], server: Callable[[], ServerGauges] | None) -> None:
        self._models, self._server = models, server

    def collect(self) -> Iterator[Metric]:
        models = list(self._models())
        for kind, name, says, read in _SINGLE:
            family = kind(f"tenuto_{name}", says, labels=["model"])
            for model in models:
                family.add_metric([model.model], read(model))
            yield family
        for kind, name, says, label, read_several in _SEVERAL:
            yield _several(kind(f"tenuto_{name}", says, labels=["model", label]), models, read_several)
        for counts, (name, says, label) in _COUNTED.items():
            family = CounterMetricFamily(f"tenuto_{name}", says, labels=["model", label])
            yield _several(family, models, partial(_counts_of, counts))
        threads = GaugeMetricFamily("tenuto_engine_threads", "Threads of the model's next step.", labels=["model"])
        for model in models:
            if model.threads:
                threads.add_metric([model.model], model.threads)
        yield threads
        if self._server is not None:
            yield from _server_gauges(self._server())


def _counts_of(counts: str, model: ModelGauges) -> Mapping[str, float]:
    return model.counts.get(counts, {})


def _several(
    family: GaugeMetricFamily | CounterMetricFamily, models: Iterable[ModelGauges], read: _ReadSeveral
) -> Metric:
    for model in models:
        for label, number in read(model).items():
            family.add_metric([model.model, label], number)
    return family


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
