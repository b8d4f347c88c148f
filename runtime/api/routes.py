"""Tenuto's own API: which path leads where. It answers errors in whichever form the house has chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from starlette.routing import Route

from tenuto.runtime.apart.pool import Pool
from tenuto.runtime.api import operations
from tenuto.runtime.api.approvals import ApprovalsApi
from tenuto.runtime.api.health import HealthApi, gauges, server_gauges
from tenuto.runtime.api.inputs import InputsApi
from tenuto.runtime.api.mcp_offers import McpOffersApi
from tenuto.runtime.api.mcp_servers import McpServersApi, Source
from tenuto.runtime.api.models import ModelsApi
from tenuto.runtime.api.runs import RunsApi
from tenuto.runtime.api.sessions import SessionsApi
from tenuto.runtime.http.routes import DocumentedRoute
from tenuto.runtime.loop.port import LoopPort
from tenuto.runtime.metrics import Metrics
from tenuto.tools.offering import Offering


@dataclass(frozen=True, slots=True)
class OwnApi:
    """What the endpoints are made of.

    `keep_alive_s`: after so long a silence a stream says that it is still there. `stall_s`: an engine that has work and
    makes no step for so long is stuck.
    """

    runner: LoopPort
    metrics: Metrics
    apart: Pool
    mcp_servers: Sequence[Source] = ()
    offering: Offering = field(default_factory=Offering)
    keep_alive_s: float = 15.0
    stall_s: float = 60.0


def routes(of: OwnApi) -> list[Route]:
    """All routes. From now on the metrics show this runner's engines. Once a server."""
    of.metrics.watch(partial(gauges, of.runner), partial(server_gauges, of.runner))
    runs = RunsApi(of.runner, of.keep_alive_s)
    sessions = SessionsApi(of.runner, of.apart)
    models = ModelsApi(of.runner.models)
    health = HealthApi(of.runner, of.metrics, of.stall_s)
    servers = McpServersApi(of.mcp_servers, of.runner.registry)
    offers = McpOffersApi(of.offering)
    approvals = ApprovalsApi(of.runner)
    inputs = InputsApi(of.runner)
    return [
        DocumentedRoute("/v1/models", models.index, operations.MODELS),
        DocumentedRoute("/v1/models/{id:path}/load", models.load, operations.LOAD, methods=["POST"]),
        DocumentedRoute("/v1/models/{id:path}/unload", models.unload, operations.UNLOAD, methods=["POST"]),
        DocumentedRoute("/v1/models/{id:path}", models.show, operations.MODEL),
        DocumentedRoute("/v1/sessions", sessions.index, operations.SESSIONS),
        DocumentedRoute("/v1/sessions/{id}", sessions.export, operations.SESSION),
        DocumentedRoute("/v1/sessions/{id}", sessions.put, operations.IMPORT, methods=["PUT"]),
        DocumentedRoute("/v1/sessions/{id}", sessions.delete, operations.DELETE, methods=["DELETE"]),
        DocumentedRoute("/v1/sessions/{id}/fork", sessions.fork, operations.FORK, methods=["POST"]),
        DocumentedRoute("/v1/runs/{id}", runs.show, operations.RUN),
        DocumentedRoute("/v1/runs/{id}/cancel", runs.cancel, operations.CANCEL, methods=["POST"]),
        DocumentedRoute("/v1/runs/{id}/events", runs.events, operations.EVENTS),
        DocumentedRoute("/v1/agent/approvals/{id}", approvals.decide, operations.APPROVAL, methods=["POST"]),
        DocumentedRoute("/v1/agent/inputs", inputs.index, operations.INPUTS),
        DocumentedRoute("/v1/agent/inputs/{id}", inputs.answer, operations.INPUT, methods=["POST"]),
        DocumentedRoute("/v1/mcp/servers", servers.index, operations.MCP_SERVERS),
        DocumentedRoute("/v1/mcp/prompts", offers.prompts, operations.MCP_PROMPTS),
        DocumentedRoute("/v1/mcp/prompts/get", offers.get, operations.MCP_PROMPT, methods=["POST"]),
        DocumentedRoute("/v1/mcp/resources", offers.resources, operations.MCP_RESOURCES),
        DocumentedRoute("/v1/mcp/resources/templates", offers.templates, operations.MCP_TEMPLATES),
        DocumentedRoute("/v1/mcp/resources/read", offers.read, operations.MCP_READ, methods=["POST"]),
        DocumentedRoute("/v1/mcp/complete", offers.complete, operations.MCP_COMPLETE, methods=["POST"]),
        DocumentedRoute("/health", health.health, operations.HEALTH),
        DocumentedRoute("/ready", health.ready, operations.READY),
        DocumentedRoute("/metrics", health.figures, operations.METRICS),
    ]
