"""The figures under the names that dashboards rely on."""

from prometheus_client.parser import text_string_to_metric_families

from tenuto.runtime.engine.counts import COUNTED, families
from tenuto.runtime.metrics import Metrics, ModelGauges


def _samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """(name, label=value, ...) -> value, without buckets and creation times."""
    text, content_type = metrics.exposition()
    assert content_type.startswith("text/plain")
    return {
        (sample.name, *(f"{label}={value}" for label, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def test_what_is_told_is_shown_under_the_fixed_names() -> None:
    metrics = Metrics()
    metrics.observe_run("m", "completed", 2.0)
    metrics.observe_run("m", "completed", 1.0)
    metrics.first_token("m", 0.25)
    metrics.resume("m", 0.5)
    metrics.round("m", computed=2, cached=40, sampled=3)
    metrics.tool_call("files", "read", "failed")
    assert _samples(metrics) == {
        ("tenuto_requests_total", "model=m", "status=completed"): 2.0,
        ("tenuto_inference_duration_seconds_count", "model=m"): 2.0,
        ("tenuto_inference_duration_seconds_sum", "model=m"): 3.0,
        ("tenuto_time_to_first_token_seconds_count", "model=m"): 1.0,
        ("tenuto_time_to_first_token_seconds_sum", "model=m"): 0.25,
        ("tenuto_resume_seconds_count", "model=m"): 1.0,
        ("tenuto_resume_seconds_sum", "model=m"): 0.5,
        ("tenuto_tokens_total", "kind=cached", "model=m"): 40.0,
        ("tenuto_tokens_total", "kind=computed", "model=m"): 2.0,
        ("tenuto_tokens_total", "kind=sampled", "model=m"): 3.0,
        ("tenuto_tool_calls_total", "server=files", "status=failed", "tool=read"): 1.0,
    }


def test_gauges_are_read_at_every_scrape() -> None:
    metrics, depth = Metrics(), 0

    def read() -> list[ModelGauges]:
        return [ModelGauges("m", {"paused": 3}, {"device": 1024, "disk": 0}, depth)]

    metrics.watch(read)
    first = _samples(metrics)
    depth = 7
    second = _samples(metrics)
    assert first == {
        ("tenuto_sequences", "model=m", "state=paused"): 3.0,
        ("tenuto_cache_bytes", "model=m", "residency=device"): 1024.0,
        ("tenuto_cache_bytes", "model=m", "residency=disk"): 0.0,
        ("tenuto_queue_depth", "model=m"): 0.0,
        ("tenuto_steps_total", "model=m"): 0.0,
        ("tenuto_engine_restarts_total", "model=m"): 0.0,
        ("tenuto_prefill_slowdown", "model=m"): 0.0,
        ("tenuto_rounds_interrupted_total", "model=m"): 0.0,
    }
    assert second == first | {("tenuto_queue_depth", "model=m"): 7.0}


def test_what_an_engine_counts_of_its_caches_is_shown_by_family() -> None:
    counted = tuple(range(1, len(COUNTED) + 1))
    model = ModelGauges(
        "m", {}, {}, 0, counts={family.value: numbers for family, numbers in families(counted).items()}, threads=2
    )
    metrics = Metrics()
    metrics.watch(lambda: [model])
    shown = _samples(metrics)
    assert shown["tenuto_engine_threads", "model=m"] == 2.0
    assert shown["tenuto_cache_moves_total", "model=m", "move=device_host"] == 1.0
    assert shown["tenuto_cache_moved_bytes_total", "model=m", "move=device_host"] == 7.0
    assert set(shown.values()) >= set(map(float, counted)), "none is left out"
    assert {name for name, *_ in shown} >= {
        "tenuto_tokens_saved_total",
        "tenuto_snapshots_total",
        "tenuto_snapshot_bytes_total",
        "tenuto_snapshots_refused_total",
        "tenuto_snapshots_ignored_total",
    }


def test_two_servers_in_a_process_do_not_share_figures() -> None:
    one, other = Metrics(), Metrics()
    one.round("m", computed=0, cached=0, sampled=1)
    assert _samples(other) == {}


def test_a_scraper_that_asks_for_openmetrics_gets_it() -> None:
    text, content_type = Metrics().exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
