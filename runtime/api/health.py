"""/health, /ready and /metrics: whether the server is alive and makes progress, and its figures."""

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.loop.runner import ModelProgress, Runner
from tenuto.runtime.metrics import Metrics


@dataclass(frozen=True, slots=True)
class HealthApi:
    """The endpoints. The first two need no key, so they name models only where something is wrong."""

    runner: Runner
    metrics: Metrics
    stall_s: float

    async def health(self, request: Request) -> Response:
        """503 when a model's engine has died, or has work and has made no step for `stall_s`."""
        del request
        stuck = [each.model for each in self.runner.progress() if self._is_stuck(each)]
        return _status("stalled", stuck) if stuck else _status("ok")

    async def ready(self, request: Request) -> Response:
        """503 unless every model can take requests."""
        del request
        models = self.runner.progress()
        return _status("ready") if models and all(each.alive for each in models) else _status("not_ready", [])

    async def figures(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        text, content_type = self.metrics.exposition(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    def _is_stuck(self, model: ModelProgress) -> bool:
        has_work = model.running > 0 or model.waiting > 0
        return not model.alive or (has_work and model.seconds_since_step > self.stall_s)


def _status(status: str, models: Iterable[str] | None = None) -> Response:
    if models is None:
        return Response(to_json({"status": status}), media_type="application/json")
    return Response(to_json({"status": status, "models": list(models)}), 503, media_type="application/json")
