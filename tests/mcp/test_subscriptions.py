"""Resources of the servers behind that clients subscribe to: both eras on both sides, and all that can go wrong."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp.types as t
import pytest
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from tenuto.tools.host.subscriptions import MOST
from tests.e2e.forked import tool_server
from tests.e2e.server import Server, script
from tests.mcp.behind import WAYS, ways
from tests.mcp.conftest import ERAS
from tests.mcp.test_handles import connected
from tests.mcp.test_news import Told
from tests.tools.servers import changing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:resources/"),  # the older protocol is what is tested
]
FLOOD = 2000
"""More than any queue takes on the way, and few enough for a busy machine."""
PROGRAM = Path(changing.__file__)


def entry(*arguments: str, **more: Any) -> dict[str, Any]:
    return {**tool_server(PROGRAM, *arguments), "timeout_s": 60, **more}


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the same one behind it in each way, and in each way in which not all of it can be had."""
    folder = tmp_path_factory.mktemp("subscriptions")
    more = {
        "own": entry(instance="session"),
        "part": entry(gateway={"resources": ["memo://?", "ctl:*"], "keys": ["ann"]}),
        "shut": entry(gateway=False),
        "full": entry(),
        "kept": entry(gateway={"schemes": ["memo"]}),
        **{f"deaf-{era}": entry("deaf", era=era) for era in ("legacy", "modern")},
        **{f"mute-{era}": entry("mute", era=era, timeout_s=1) for era in ("legacy", "modern")},
        **{f"ends-{era}": entry(era=era) for era in ("legacy", "modern")},
    }
    (folder / "tenuto.toml").write_text(
        'keys = [{name = "ann", key = "ann", person = true}, {name = "bob", key = "bob"}]\n'
    )
    with ways(PROGRAM, timeout_s=60) as entries:
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {**entries, **more}}))
        arguments = ("--mcp-config", str(folder / "mcp.json"), "--config", str(folder / "tenuto.toml"))
        server = Server(folder, script(folder / "model.json"), arguments)
        try:
            yield server.start()
        finally:
            server.close()


@pytest.fixture(params=ERAS)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Listener:
    """A client that hears of resources, as its era does."""

    def __init__(self, client: Client, mode: str, told: Told) -> None:
        self.client, self._mode, self.told = client, mode, told

    @property
    def news(self) -> list[str]:
        return self.told.news

    @asynccontextmanager
    async def subscribed(self, *uris: str) -> AsyncIterator[None]:
        if self._mode == "legacy":
            for uri in uris:
                await self.client.subscribe_resource(uri)
            yield
            for uri in uris:
                await self.client.unsubscribe_resource(uri)
            return
        async with (
            self.client.listen(resource_subscriptions=uris) as events,
            anyio.create_task_group() as group,
        ):
            group.start_soon(self._follow, events)
            yield
            group.cancel_scope.cancel()

    async def refused(self, uri: str) -> MCPError:
        with pytest.raises(MCPError) as refused:
            async with self.subscribed(uri):
                pass
        return refused.value

    async def do(self, server: str, what: str) -> str:
        """Let a server behind do something."""
        (contents,) = (await self.client.read_resource(f"mcp://{server}/ctl:{what}")).contents
        assert isinstance(contents, t.TextResourceContents)
        return contents.text

    async def made(self, server: str, uri: str) -> int:
        """How often the server has been asked to tell of a resource."""
        return int(json.loads(await self.do(server, "made")).get(uri, 0))

    async def _follow(self, events: Any) -> None:
        async for event in events:
            assert isinstance(event, ResourceUpdated)
            self.told.note(event.uri)
        self.told.note("the end")


@asynccontextmanager
async def listener(
    server: Server, mode: str, transport: str = "http", key: str | None = None
) -> AsyncIterator[Listener]:
    told = Told()
    options: dict[str, Any] = {"message_handler": told.hear} if mode == "legacy" else {}
    async with connected(server, transport, mode, key, **options) as client:
        yield Listener(client, mode, told)


@pytest.mark.parametrize("way", [*WAYS, "own"])
async def test_a_client_hears_of_what_it_has_subscribed_to_alone(way: str, mode: str, owner: Server) -> None:
    own, other = f"memo://of-{way}-{mode}", f"memo://of-{way}-{mode}-other"
    async with listener(owner, mode) as client:
        async with client.subscribed(f"mcp://{way}/{own}"):
            assert await client.made(way, own) == 1
            await client.do(way, f"change:{other}")
            await client.do(way, f"change:{own}/below")
            await client.told.until(f"mcp://{way}/{own}/below")
            await client.do(way, f"change:{own}")
            await client.told.until(f"mcp://{way}/{own}")
        await client.do(way, f"await:0:{own}")
        assert client.news == [f"mcp://{way}/{own}/below", f"mcp://{way}/{own}"]


async def test_a_client_of_the_proxy_hears_and_subscribes_once(mode: str, owner: Server) -> None:
    own = f"memo://proxy-{mode}"
    async with listener(owner, mode, "stdio") as client:
        async with client.subscribed(f"mcp://stdio-legacy/{own}"):
            await client.do("stdio-legacy", f"change:{own}/below")
            await client.told.until(f"mcp://stdio-legacy/{own}/below")
            assert await client.made("stdio-legacy", own) == 1
        await client.do("stdio-legacy", f"await:0:{own}")
        refused = await client.refused("mcp://nobody/memo://a")
        assert "there is no resource 'mcp://nobody/memo://a'" in refused.error.message
        refused = await client.refused("mcp://deaf-legacy/memo://a")
    assert refused.error.message == "invalid_request: deaf-legacy does not tell of changes of its resources"


@pytest.mark.parametrize("way", WAYS)
async def test_clients_share_one_subscription_until_the_last_leaves(way: str, owner: Server) -> None:
    own, shown = f"memo://shared-{way}", f"mcp://{way}/memo://shared-{way}"
    async with (
        listener(owner, "legacy") as one,
        listener(owner, "auto", key="ann") as two,
        listener(owner, "legacy", key="bob") as three,
    ):
        async with two.subscribed(shown):
            async with one.subscribed(shown), three.subscribed(shown):
                await one.do(way, f"change:{own}")
                for each in (one, two, three):
                    await each.told.until(shown)
            assert await one.made(way, own) == 1
            await one.do(way, f"await:1:{own}")
            two.news.clear()
            await one.do(way, f"change:{own}")
            await two.told.until(shown)
        await one.do(way, f"await:0:{own}")
    assert (one.news, three.news) == ([shown], [shown])


@pytest.mark.parametrize("way", ["stdio-legacy", "http-modern"])
async def test_a_client_that_vanishes_leaves_nothing_behind(way: str, mode: str, owner: Server) -> None:
    own = f"memo://left-{way}-{mode}"
    async with listener(owner, "auto") as witness:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(listener(owner, mode))
            if mode == "legacy":
                await client.client.subscribe_resource(f"mcp://{way}/{own}")
            else:
                await stack.enter_async_context(client.subscribed(f"mcp://{way}/{own}"))
            await witness.do(way, f"await:1:{own}")
        await witness.do(way, f"await:0:{own}")


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_starts_again_is_subscribed_to_again_and_its_clients_hear_once(
    era: str, mode: str, owner: Server
) -> None:
    server, own = f"ends-{era}", f"memo://kept-{mode}"
    shown = f"mcp://{server}/{own}"
    async with listener(owner, mode) as client, client.subscribed(shown):
        with pytest.raises(MCPError):
            await client.do(server, "end")
        await client.told.until(shown)
        await client.do(server, f"await:1:{own}")
        await client.do(server, f"change:{own}/below")
        await client.told.until(f"{shown}/below")
    assert client.news == [shown, f"{shown}/below"]


async def test_what_cannot_be_read_or_is_not_told_of_is_refused(mode: str, owner: Server) -> None:
    async with listener(owner, mode, key="bob") as bob, listener(owner, mode, key="ann") as ann:
        for uri in ("mcp://part/memo://a", "mcp://shut/memo://a", "mcp://nobody/memo://a", "mcp://../memo://a"):
            refused = await bob.refused(uri)
            assert (refused.error.code, refused.error.message) == (t.INVALID_PARAMS, f"there is no resource {uri!r}")
        for uri in ("mcp://part/memo://secret", "mcp://stdio-modern/memo://none", f"mcp://kept/memo://{'x' * 5000}"):
            refused = await ann.refused(uri)
            assert refused.error.code == t.INVALID_PARAMS
            assert refused.error.message.startswith("there is no resource")
        for era in ("legacy", "modern"):
            refused = await ann.refused(f"mcp://deaf-{era}/memo://a")
            told = f"invalid_request: deaf-{era} does not tell of changes of its resources"
            assert (refused.error.code, refused.error.message) == (t.INVALID_PARAMS, told)


async def test_what_is_hidden_is_not_told_of_and_a_claimed_scheme_stays(mode: str, owner: Server) -> None:
    async with listener(owner, mode, key="ann") as ann, ann.subscribed("mcp://part/memo://a", "memo://a"):
        await ann.do("part", "change:memo://a/secret")
        await ann.do("part", "change:memo://a")
        await ann.told.until("mcp://part/memo://a")
        await ann.do("kept", "change:memo://a/below")
        await ann.told.until("memo://a/below")
    assert ann.news == ["mcp://part/memo://a", "memo://a/below"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_never_answers_is_waited_for_in_vain_but_once(era: str, mode: str, owner: Server) -> None:
    async with listener(owner, mode) as client:
        refused = await client.refused(f"mcp://mute-{era}/memo://a")
        assert refused.error.message == f"tool_failed: mute-{era} did not answer within 1 s"
        async with client.subscribed(f"mcp://mute-{era}/memo://heard"):
            await client.do(f"mute-{era}", "change:memo://heard")
            await client.told.until(f"mcp://mute-{era}/memo://heard")


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
async def test_a_flood_of_news_is_told_as_few_and_others_are_told_meanwhile(way: str, mode: str, owner: Server) -> None:
    own, quiet = f"memo://flood-{mode}", f"mcp://kept/memo://quiet-{mode}"
    shown = f"mcp://{way}/{own}"
    async with (
        listener(owner, mode) as client,
        listener(owner, mode) as other,
        client.subscribed(shown),
        other.subscribed(quiet),
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.do, way, f"flood:{FLOOD}:{own}/*")
        group.start_soon(client.do, way, f"flood:{FLOOD}:{own}")
        await client.told.until(shown)
        await other.do("kept", f"change:memo://quiet-{mode}")
        await other.told.until(quiet)
    assert len(client.news) < FLOOD
    assert other.news == [quiet]


async def test_who_has_all_places_is_refused_another_and_gives_one_to_somebody_else(mode: str, owner: Server) -> None:
    all_places = [f"mcp://full/memo://{mode}-{number}" for number in range(MOST)]
    async with listener(owner, mode, key="ann") as ann, listener(owner, "auto", key="bob") as bob:
        async with ann.subscribed(*all_places):
            async with listener(owner, mode, key="ann") as another:
                refused = await another.refused("mcp://full/memo://more")
            assert "the table of subscriptions at full is full" in refused.error.message
            async with bob.subscribed("mcp://full/memo://of-bob"):
                await ann.told.until(all_places[0] if mode == "legacy" else "the end")
                await bob.do("full", "change:memo://of-bob")
                await bob.told.until("mcp://full/memo://of-bob")
        await bob.do("full", f"await:0:memo://{mode}-{MOST - 1}")
    assert len(ann.news) == 1
