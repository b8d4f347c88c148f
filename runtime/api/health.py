"""/health, /ready and /metrics: whether the server is alive and makes progress, and its figures."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tenuto.runtime.engine.counts import families
from tenuto.runtime.engine.messages import State
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.engine_line import EngineHealth
from tenuto.runtime.loop.port import LoopHealth, LoopPort
from tenuto.runtime.metrics import Metrics, ModelGauges, ServerGauges

Status = Literal["ok", "ready", "stalled", "not_ready", "draining"]


class StatusAnswer(Shape):
    """Whether the server is well."""

    status: Status
    models: list[str] = Field(default=[], description="The models that are not well.")
    store: str | None = Field(default=None, description="Why nothing can be stored, if that is so.")


@dataclass(frozen=True, slots=True)
class HealthApi:
    """The endpoints. The first two need no key, so they name models only where something is wrong."""

    runner: LoopPort
    metrics: Metrics
    stall_s: float

    async def health(self, request: Request) -> Response:
        """503 when a model's engine has died, or has work and has made no step for `stall_s`.

        A store that cannot write is told, but is no reason to be started again: it goes on by itself.
        """
        del request
        health = self.runner.health()
        stuck = [model for model, engine in health.engines.items() if is_stuck(engine, self.stall_s)]
        return _status(health, "stalled", stuck) if stuck else _status(health, "ok")

    async def ready(self, request: Request) -> Response:
        """503 unless every model can take requests and what is said can be kept, and while the server drains."""
        del request
        health = self.runner.health()
        if health.is_draining:
            return _status(health, "draining", [])
        dead = [model for model, engine in health.engines.items() if not engine.is_alive]
        ready = not dead and health.store_trouble is None
        return _status(health, "ready") if ready else _status(health, "not_ready", dead)

    async def figures(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        text, content_type = self.metrics.exposition(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})


def is_stuck(engine: EngineHealth, stall_s: float) -> bool:
    """Whether an engine does nothing though it should. Being alive is not enough."""
    return not engine.is_alive or engine.silent_s > stall_s


def gauges(runner: LoopPort) -> list[ModelGauges]:
    """How the engines stand, for a scrape."""
    return [
        ModelGauges(
            model,
            {name.value: count for name, count in status.sequences.items()},
            {name.value: count for name, count in status.cache_bytes.items()},
            status.sequences.get(State.WAITING, 0),
            status.steps,
            {"computed": status.computed, "sampled": status.sampled, "shared": status.shared},
            {"accepted": status.accepted, "rejected": status.drafted - status.accepted},
            status.prefill_slowdown,
            status.interrupted,
            restarts,
            {family.value: numbers for family, numbers in families(status.counts).items()},
            status.threads,
        )
        for model, status, restarts in (
            (model, engine.status, engine.restarts) for model, engine in runner.health().engines.items()
        )
    ]


def server_gauges(runner: LoopPort) -> ServerGauges:
    """How the server stands, for a scrape. Event-loop thread only."""
    health, holdings = runner.health(), runner.models.shelf.holdings()
    models = {"held": holdings.held, "most_held": holdings.most_held}
    return ServerGauges(
        {"working": health.working, "waiting": health.waiting},
        health.sessions,
        len(asyncio.all_tasks()),
        dict(health.memory),
        models if holdings.budget is None else {**models, "budget": holdings.budget},
        holdings.loads,
        holdings.unloads,
    )


def _status(health: LoopHealth, status: Status, models: Iterable[str] | None = None) -> Response:
    """200, or 503 where there are `models`: those in question, which may be none."""
    more: dict[str, Any] = {} if models is None else {"models": list(models)}
    if health.store_trouble is not None:
        more["store"] = f"cannot write: {health.store_trouble}"
    return answered(StatusAnswer(status=status, **more), 200 if models is None else 503)
