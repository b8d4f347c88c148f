"""The composition root: makes every part of a server, in order, and frees them in reverse. No logic of its own."""

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from tenuto.runtime.adapted_models import Adapters
from tenuto.runtime.addresses import is_loopback
from tenuto.runtime.apart.checks import ArgumentChecks
from tenuto.runtime.apart.pool import Pool
from tenuto.runtime.api.routes import OwnApi, routes
from tenuto.runtime.beside import Changed, beside
from tenuto.runtime.config import Settings
from tenuto.runtime.data_folder.ownership import DataFolder
from tenuto.runtime.dialects.anthropic.dialect import anthropic
from tenuto.runtime.dialects.base import DialectServices, MakeDialect
from tenuto.runtime.dialects.ollama.dialect import ollama
from tenuto.runtime.dialects.openai.dialect import openai
from tenuto.runtime.dialects.openai.errors import ERRORS
from tenuto.runtime.engine.snapshots import expire
from tenuto.runtime.http.application import HttpSettings, application
from tenuto.runtime.http.auth import Keys, holder, principal_of
from tenuto.runtime.http.dialect import Dialect, Dialects
from tenuto.runtime.http.docs_page import DocsApi
from tenuto.runtime.http.errors import ErrorForm
from tenuto.runtime.http.openapi import document
from tenuto.runtime.http.protected_resource import ProtectedResource, audiences
from tenuto.runtime.loop.life.keeper import Keeper
from tenuto.runtime.loop.life.loading import LifeSettings
from tenuto.runtime.loop.models import Models, Names
from tenuto.runtime.loop.policy import Policy
from tenuto.runtime.loop.runner import Runner
from tenuto.runtime.loop.services import Expiries, Services
from tenuto.runtime.loop.sharing import SharedPrefixes
from tenuto.runtime.loop.toolset import default_tools
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.runtime.loop.warm_prefixes import WarmPrefix, WarmPrefixes
from tenuto.runtime.mcp.direct_calls import DirectCalls
from tenuto.runtime.mcp.gateway import Behind
from tenuto.runtime.mcp.http import Endpoint
from tenuto.runtime.mcp.messages import BoundedMessages
from tenuto.runtime.mcp.news import News
from tenuto.runtime.mcp.own_tools import INPUTS
from tenuto.runtime.mcp.prompt_files import PromptFiles
from tenuto.runtime.mcp.server import Patience, Seal, build_server
from tenuto.runtime.mcp.server_card import ServerCard
from tenuto.runtime.mcp.watched import Watched
from tenuto.runtime.metrics import Metrics
from tenuto.runtime.model_loading import SNAPSHOTS, Loader, available
from tenuto.runtime.notes import Notebooks
from tenuto.runtime.oauth.tokens import Tokens
from tenuto.runtime.pulls import Pulls
from tenuto.runtime.stored_models import StoredModels
from tenuto.runtime.warm_file import check_models, read_warm_file
from tenuto.sessions.directory import Directory
from tenuto.sessions.items import ToolSpec
from tenuto.sessions.principal import Principal, Role
from tenuto.sessions.storage.store import Store
from tenuto.tools.approvals import Permission
from tenuto.tools.builtin import Calculator, Clock, Notes
from tenuto.tools.egress import Egress
from tenuto.tools.host import Host
from tenuto.tools.host.requested import RequestedServers
from tenuto.tools.mcp_config import ServerConfig, kept_in, read_mcp_config
from tenuto.tools.offering import Offering
from tenuto.tools.registry import Registry
from tenuto.tools.spec import ToolServer

TOOLS_START_S = 10.0
"""How long the start waits for configured MCP servers; what is not there by then joins later."""

DIALECTS: tuple[MakeDialect, ...] = (openai, anthropic, ollama)
"""The wire formats of others that are spoken."""
HOUSE_ERRORS = ERRORS
"""The form of errors in Tenuto's own API, and where nobody's path is asked for: most clients read OpenAI's."""


@dataclass(frozen=True, slots=True)
class App:
    """A server that is ready for requests.

    `errors_of` is the form in which a request's client reads errors, for what is refused before it is a request.
    `publish` tells the folder's other users where it is reached. `drain` lets runs come to an end; it returns when
    none is under way, or when their time is over. `is_working` says whether a run is at work now.
    """

    asgi: ASGIApp
    errors_of: Callable[[Scope], ErrorForm]
    publish: Callable[[str], None]
    drain: Callable[[], Coroutine[Any, Any, None]]
    is_working: Callable[[], bool]


@asynccontextmanager
async def opened(settings: Settings, dialects: Sequence[MakeDialect] = DIALECTS) -> AsyncIterator[App]:
    """A complete server, except for its listening socket. Enter and leave it in one task.

    Raises:
        TenutoError: a part cannot be made; the parts made before it have been freed.
    """
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(await anyio.to_thread.run_sync(DataFolder.acquire, settings.data_dir))
        store = await _store(settings, stack)
        metrics, pool = Metrics(), Pool()
        stack.push_async_callback(pool.close)
        configs = kept_in(read_mcp_config(settings.mcp_config), settings.data_dir) if settings.mcp_config else ()
        news = News()
        directory = Directory(store, implicit_ttl_s=settings.implicit_session_s)
        host, registry = await _tools(configs, directory, Notebooks(directory, store), news, pool, stack)
        models, caches, warm = await _models(settings, metrics, registry, stack)

        services = Services(
            store=store,
            models=models,
            directory=directory,
            registry=registry,
            policy=_policy(registry, configs, settings),
            requested=await stack.enter_async_context(
                RequestedServers(Egress(settings.egress), registry.servers, registry.check)
            ),
            metrics=metrics,
            expiries=Expiries(settings.client_tool_expires_s, settings.approval_expires_s),
            shared_prefixes=SharedPrefixes(settings.shared_prefixes),
            offering=Offering(host.servers),
            caches_on_disk=caches,
        )
        runner = await stack.enter_async_context(Runner(services, _defaults(settings)))
        await _warm(WarmPrefixes(warm, models, runner.preview, metrics.warm_prefixes), stack)
        runner.watchers.append(news.run_rests)
        runner.directory.watchers.append(news.sessions_listed)
        await stack.enter_async_context(beside(news.follow))
        mcp = await stack.enter_async_context(_mcp(settings, runner, news, host, folder.key))
        pulls = await stack.enter_async_context(Pulls(Egress(settings.egress)))
        resource = await _resource(settings, stack)
        own = routes(OwnApi(runner, metrics, pool, host.servers, services.offering))
        own += [Route("/mcp", BoundedMessages(mcp)), *_card(settings), *(resource.routes() if resource else ())]
        spoken = _dialects(own, [make(DialectServices(runner, pulls)) for make in dialects])
        yield App(
            asgi=application(spoken, _keys(settings, folder.owner.secret), _http_settings(settings), resource),
            errors_of=spoken.errors_of,
            publish=folder.publish,
            drain=partial(_drain, runner, mcp, news, settings.shutdown_s),
            is_working=lambda: runner.health().working > 0,
        )


async def _caches_on_disk(settings: Settings) -> Path | None:
    """Where engines keep caches, without those whose time is over. What a server has kept earlier is known also where
    nothing is kept now, so that a session's goes with it."""
    folder = settings.data_dir / SNAPSHOTS
    await anyio.to_thread.run_sync(expire, folder, time.time() - settings.disk_cache_s)
    return folder if settings.disk_cache_bytes or folder.exists() else None


async def _store(settings: Settings, stack: AsyncExitStack) -> Store:
    url = f"sqlite:///{settings.data_dir / 'sessions.db'}"
    store = await anyio.to_thread.run_sync(partial(Store.open, url, durability=settings.durability))
    stack.push_async_callback(anyio.to_thread.run_sync, store.close)
    await stack.enter_async_context(beside(store.keep_trying))
    return store


async def _tools(
    configs: tuple[ServerConfig, ...],
    directory: Directory,
    notebooks: Notebooks,
    news: News,
    pool: Pool,
    stack: AsyncExitStack,
) -> tuple[Host, Registry]:
    """The configured servers, and the tools of these and of the built-in ones, kept as they change."""
    changed = Changed()
    host = await stack.enter_async_context(Host(configs, on_change=changed.set))
    servers: list[ToolServer] = [Calculator(), Clock(), Notes(notebooks), *host.servers]
    registry = Registry(servers, host.limits, ArgumentChecks(pool), lambda: host.instructions)
    directory.gone.append(host.forget)
    await host.settled(TOOLS_START_S)
    await registry.refresh()
    await stack.enter_async_context(beside(partial(changed.follow, partial(_refresh, registry, news, host))))
    return host, registry


async def _refresh(registry: Registry, news: News, host: Host) -> None:
    """List the tools again, and notify MCP clients of what has changed."""
    before = registry.list()
    await registry.refresh()
    if registry.list() != before:
        await news.tools_changed()
    await news.offers_are(tuple(server.offered.listed for server in host.servers))


async def _models(
    settings: Settings, metrics: Metrics, registry: Registry, stack: AsyncExitStack
) -> tuple[Models, Path | None, tuple[WarmPrefix, ...]]:
    """The owner of all models, with those loaded that are to be there from the start, and what is to be kept warm."""
    warm = await anyio.to_thread.run_sync(_warm_prefixes, settings)
    adapters, stored = Adapters(dict(settings.lora)), StoredModels()
    named = await anyio.to_thread.run_sync(available, settings.model, adapters)
    if settings.lora:
        await anyio.to_thread.run_sync(lambda: adapters.check([*named, *stored.list()]))
    at_start = len(named) if settings.load == "start" else 1
    life = LifeSettings(
        budget=settings.model_memory,
        keep_s=settings.keep_loaded_s,
        wait_s=settings.load_wait_s,
        pins=frozenset(settings.pin),
        finishes=settings.swap == "finish",
        named_stay=settings.load == "start",
    )
    caches = await _caches_on_disk(settings)  # before an engine looks there
    loader = Loader(settings, metrics, at_start, partial(_default_tools, registry, settings), adapters)
    keeper = await stack.enter_async_context(Keeper(loader, named, life, stored, adapters))
    models = Models(keeper, Names(settings.alias, settings.strict_model_names))
    if settings.warm is not None:
        await anyio.to_thread.run_sync(check_models, settings.warm, warm, models)
    if settings.load == "start":
        await keeper.begin()
    return models, caches, warm


async def _warm(prefixes: WarmPrefixes, stack: AsyncExitStack) -> None:
    """Keep prefixes computed, and wait for a while until they are."""
    await stack.enter_async_context(beside(prefixes.keep))
    await prefixes.settled()


def _warm_prefixes(settings: Settings) -> tuple[WarmPrefix, ...]:
    names = {key.name for key in settings.keys if key.name is not None}
    return () if settings.warm is None else read_warm_file(settings.warm, names)


def _default_tools(registry: Registry, settings: Settings) -> Sequence[ToolSpec]:
    return default_tools([one.spec for one in registry.list()], settings.default_tools)


def _policy(registry: Registry, configs: tuple[ServerConfig, ...], settings: Settings) -> Policy:
    everywhere = None if settings.agent_permission is None else Permission(settings.agent_permission)
    return Policy(registry, {config.name: config.permission for config in configs}, everywhere)


def _defaults(settings: Settings) -> Defaults:
    return Defaults(
        max_tokens=settings.max_tokens,
        max_tool_rounds=settings.max_tool_rounds,
        deadline_s=settings.deadline_s,
        default_tools=settings.default_tools,
        tool_share=settings.tool_share,
    )


def _dialects(own: Sequence[Route], others: Sequence[Dialect]) -> Dialects:
    """All that is spoken, with Tenuto's own API as the house's, and the description of all."""
    described = (*others, Dialect("tenuto", HOUSE_ERRORS, tuple(own)))
    docs = DocsApi(partial(document, described))
    pages = (Route("/openapi.json", docs.document), Route("/docs", docs.page))
    return Dialects(Dialect("tenuto", HOUSE_ERRORS, (*own, *pages)), others)


def _http_settings(settings: Settings) -> HttpSettings:
    return HttpSettings(
        max_body_bytes=settings.max_body_bytes,
        arrival_s=settings.arrival_s,
        allowed_hosts=(settings.host, *_public_host(settings), *settings.allowed_hosts),
        allowed_origins=settings.allowed_origins,
    )


def _public_host(settings: Settings) -> list[str]:
    host = None if settings.public_url is None else urlsplit(settings.public_url).hostname
    return [] if host is None else [host]


async def _resource(settings: Settings, stack: AsyncExitStack) -> ProtectedResource | None:
    """What this server is to OAuth, where access tokens are taken."""
    url, issuers = settings.public_url, settings.oauth_issuer
    if url is None or not issuers:
        return None
    return ProtectedResource(url, issuers, await stack.enter_async_context(Tokens(issuers, audiences(url))))


def _card(settings: Settings) -> list[Route]:
    return ServerCard(settings.public_url, needs_key=not _is_open(settings), issuers=settings.oauth_issuer).routes()


def _keys(settings: Settings, secret: str) -> Keys:
    return Keys(_holders(settings), secret, open_to_all=_is_open(settings))


def _is_open(settings: Settings) -> bool:
    """Whether everybody is the local user."""
    return not (settings.api_key or settings.keys or settings.oauth_issuer) and is_loopback(settings.host)


def _holders(settings: Settings) -> dict[str, Principal]:
    """Who has which key."""
    holders = {key: holder(key) for key in settings.api_key}
    for each in settings.keys:
        roles = {role for role, has in ((Role.PERSON, each.person), (Role.ADMIN, each.admin)) if has}
        holders[each.key] = holder(each.key, each.name, roles)
    return holders


@asynccontextmanager
async def _mcp(settings: Settings, runner: Runner, news: News, host: Host, key: bytes) -> AsyncIterator[Endpoint]:
    """The runtime's own MCP server, while clients can be connected to it."""
    seal = Seal(key, settings.approval_expires_s)
    behind = Behind(host.servers, runner.registry, [*INPUTS])
    direct, files = DirectCalls(settings.approval_expires_s), PromptFiles(settings.prompts)
    patience = Patience(settings.task_after_s, settings.implicit_session_s)
    watched = Watched(behind)
    server = build_server(
        runner, news, files, behind, watched, direct, principal_of=principal_of, seal=seal, patience=patience
    )
    endpoint = Endpoint(server, principal_of=principal_of, max_body_bytes=settings.max_body_bytes, on_end=news.forget)
    async with direct.run(), watched.run(), endpoint.run():
        yield endpoint


async def _drain(runner: Runner, mcp: Endpoint, news: News, seconds: float) -> None:
    """No new runs from now on. Standing MCP streams end when no run needs them any more."""
    await runner.drain(seconds)
    news.close()
    mcp.stop()
