"""Caches that are kept on disk: what a later engine finds of them, and what never gets there."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tenuto.pipelines.backend import Snapshot
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import load
from tenuto.runtime.engine import disk_caches, returning
from tenuto.runtime.engine.engine import DiskSettings, Engine, EngineSettings
from tenuto.runtime.engine.messages import Failed, Residency, Stopped, TokensSampled
from tenuto.runtime.engine.snapshots import Limits, forget
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.runtime.loop.open_round import OpenRound
from tenuto.sessions.items import UserItem
from tenuto.sessions.tokens import Tokens
from tests.patience import HANGS_S
from tests.runtime.engine.rig import round_of

LONG = "Count the ducks! " * 40
"""More tokens than it takes to be worth a file."""
SLOW_MS = 150.0
"""So long a step of the scripted model takes, that to compute is slower than to read."""
PLENTY = Limits(1 << 30, 1 << 28, 3600.0, spare_bytes=0)


@dataclass
class House:
    """An engine over a folder, and who uses it."""

    pipeline: Pipeline
    client: EngineClient
    folder: Path

    def prompt(self, text: str) -> Tokens:
        rendered = self.pipeline.codec.suffix([], [UserItem(text)], [], ended=True)
        return Tokens([*(token for item in rendered.items for token in item), *rendered.opening])

    def begin(self, name: str, tokens: Tokens, principal: str = "alice", kept_as: str | None = None) -> OpenRound:
        kept_as = name if kept_as is None else kept_as
        return self.client.submit(name, tokens, round_of(), principal=principal, kept_as=kept_as)

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*/*") if path.is_file())

    async def written(self, count: int = 1) -> None:
        """Wait for so many files that are whole."""
        with anyio.fail_after(HANGS_S):
            while len(self.files()) != count or any(path.suffix == ".partial" for path in self.files()):  # noqa: ASYNC110
                await anyio.sleep(0.005)


async def read(opened: OpenRound) -> tuple[list[int], Stopped]:
    tokens: list[int] = []
    async for event in opened:
        match event:
            case TokensSampled():
                tokens += event.tokens
            case Stopped():
                return tokens, event
            case Failed():
                raise AssertionError(event)
    raise AssertionError("it has not ended")


@asynccontextmanager
async def house(
    tmp_path: Path, *, delay_ms: float = SLOW_MS, limits: Limits | None = PLENTY, host: int = 1 << 28, **script: Any
) -> AsyncIterator[House]:
    rules: Sequence[dict[str, Any]] = [{"text": "ok", "delay_ms": delay_ms}]
    path = tmp_path / "script.json"
    text = json.dumps({"rules": rules, "batch_tokens": 4096, **script})
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    pipeline = load(f"scripted:{path}")
    folder = tmp_path / "caches"
    disk = None if limits is None else DiskSettings(folder, limits)
    engine = Engine(pipeline, EngineSettings(host_cache_bytes=host, disk=disk))
    client = EngineClient("it", pipeline.backend.info.slots, engine)
    try:
        yield House(pipeline, client, folder)
    finally:
        await client.stop()


async def test_a_later_engine_goes_on_with_the_cache_of_an_earlier_one(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        tokens = it.prompt(LONG)
        said, _ = await read(it.begin("s", tokens))
        await it.written()
    async with house(tmp_path) as it:
        tokens.extend(said)
        tokens.extend(it.prompt("And the geese?"))
        again, stopped = await read(it.begin("s", tokens))
        assert stopped.usage.residency is Residency.DISK
        assert stopped.usage.cached >= len(it.prompt(LONG)) - 1
        assert stopped.usage.computed == len(tokens) - stopped.usage.cached
        assert again == said


async def test_what_has_been_written_is_told_by_an_engine_that_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_caches, "LOOK_S", 0.01)
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
        with anyio.fail_after(HANGS_S):
            while not it.client.status.cache_bytes[Residency.DISK]:  # noqa: ASYNC110
                await anyio.sleep(0.005)
        assert it.client.status.cache_bytes[Residency.DISK] == it.files()[0].stat().st_size
    async with house(tmp_path) as it:
        with anyio.fail_after(HANGS_S):
            while not it.client.status.cache_bytes.get(Residency.DISK):  # noqa: ASYNC110
                await anyio.sleep(0.005)


async def test_what_another_turn_has_changed_is_used_up_to_there(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        other = it.prompt(LONG + "No, the swans!")
        same = it.prompt(LONG).shared(other)
        _, stopped = await read(it.begin("s", other))
        assert stopped.usage.residency is Residency.DISK
        assert stopped.usage.cached == same


async def test_what_must_not_be_kept_never_reaches_the_disk(tmp_path: Path) -> None:
    async with house(tmp_path, slots=1) as it:
        await read(it.begin("unstored", it.prompt(LONG), kept_as=""))
        await read(it.begin("stored", it.prompt(LONG + "Again.")))
        await it.written()
    assert len(it.files()) == 1, "nor when the engine stops"


async def test_a_cache_that_is_computed_as_fast_as_it_is_read_is_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path, delay_ms=0) as it:
        await read(it.begin("s", it.prompt(LONG)))
    assert it.files() == []


async def test_short_ones_are_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt("Count!")))
    assert it.files() == []


async def test_what_is_forgotten_is_gone_when_that_is_said(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
        await it.client.forget("s", "s")
        assert it.files() == []
        assert not it.client.holds("s", 1)
    async with house(tmp_path) as it:
        _, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.residency is Residency.NONE


async def test_what_is_forgotten_while_it_is_used_ends_and_is_gone(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
        opened = it.begin("s", it.prompt(LONG + LONG))
        await it.client.forget("s", "s")
        await read(opened)
    assert it.files() == []


async def test_what_the_engine_does_not_know_is_forgotten_too(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        await it.client.forget("s", "s")
        assert it.files() == []


async def test_without_an_engine_it_is_the_folder_that_forgets(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    await it.client.forget("s", "s")
    forget(it.folder, "s")
    assert it.files() == []


async def test_nobody_elses_cache_is_used(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG), principal="alice"))
        await it.written()
    async with house(tmp_path) as it:
        _, stopped = await read(it.begin("s", it.prompt(LONG), principal="bob"))
        assert stopped.usage.residency is Residency.NONE


async def test_who_comes_back_at_once_waits_for_no_copy_and_the_last_are_written_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "SETTLE_S", HANGS_S)
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await read(it.begin("other", it.prompt("Hello")))
        assert it.pipeline.backend.info.slots > 1, "nobody had to give way"
        assert it.files() == []
    assert len(it.files()) == 1


async def test_an_altered_file_is_as_good_as_none(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
        [path] = it.files()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    async with house(tmp_path) as it:
        said, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.residency is Residency.NONE
        assert bytes(said[:2]) == b"ok"


async def test_a_cache_that_the_backend_refuses_is_computed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        refused = []

        def refuse(slot: int, snapshot: Snapshot) -> None:
            refused.append(slot)
            raise ValueError("it cannot be restored")

        monkeypatch.setattr(it.pipeline.backend, "restore", refuse)
        said, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert bytes(said[:2]) == b"ok"
        assert (stopped.usage.cached, len(refused)) == (0, 1)
    async with house(tmp_path) as it:
        _, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.sampled


async def test_another_models_caches_are_not_used(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path, cells=4096) as it:
        _, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.residency is Residency.NONE


async def test_a_cache_that_host_memory_has_no_room_for_is_computed(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path, host=0) as it:
        said, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.residency is Residency.NONE
        assert bytes(said[:2]) == b"ok"


async def test_a_round_that_is_cancelled_while_its_cache_is_read_is_over(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        opened = it.begin("s", it.prompt(LONG))
        opened.cancel()
        await read(opened)
        _, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.sampled


async def test_a_sequence_that_grows_is_written_a_few_times_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returning, "SETTLE_S", 0.0)
    async with house(tmp_path, delay_ms=20) as it:
        tokens = it.prompt(LONG)
        sizes: set[tuple[int, int]] = set()
        for turn in range(12):
            said, _ = await read(it.begin("s", tokens))
            tokens.extend(said)
            tokens.extend(it.prompt(f"And then, for the {turn}th time?" * 3))
            await anyio.sleep(0.05)
            sizes |= {(path.stat().st_ino, path.stat().st_size) for path in it.files()}
        assert sum(size for _, size in sizes) <= 6 * max(size for _, size in sizes)


@pytest.mark.parametrize("limits", [None, Limits(1 << 10, 1 << 10, 3600.0)])
async def test_where_nothing_may_be_kept_all_goes_on(tmp_path: Path, limits: Limits | None) -> None:
    async with house(tmp_path, limits=limits) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.client.forget("s", "s")
    assert it.files() == []


async def test_a_folder_that_cannot_be_made_is_logged_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "caches").write_text("in the way")
    async with house(tmp_path) as it:
        _, stopped = await read(it.begin("s", it.prompt(LONG)))
        assert stopped.usage.sampled
    assert "no caches are kept on disk" in caplog.text


# Those of other sequences.


async def test_what_another_sequence_has_on_disk_serves_a_new_one_of_its_principals(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        other = it.prompt(LONG + "No, the swans!")
        same = it.prompt(LONG).shared(other)
        _, strangers = await read(it.begin("t", other, principal="bob"))
        assert strangers.usage.cached == 0
        said, stopped = await read(it.begin("u", other))
        assert stopped.usage.cached == same
        assert stopped.usage.computed == len(other) - same
        await it.written(3)
    async with house(tmp_path, limits=None) as it:
        assert said == (await read(it.begin("u", other)))[0]


async def test_what_was_forgotten_serves_no_other_sequence(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path) as it:
        await it.client.forget("s", "s")
        _, stopped = await read(it.begin("u", it.prompt(LONG + "No, the swans!")))
        assert stopped.usage.cached == 0


async def test_a_cache_that_cannot_be_cut_serves_another_sequence_only_whole(tmp_path: Path) -> None:
    async with house(tmp_path, can_truncate=False) as it:
        tokens = it.prompt(LONG)
        said, _ = await read(it.begin("s", tokens))
        await it.written()
    async with house(tmp_path, can_truncate=False) as it:
        _, cut = await read(it.begin("t", it.prompt(LONG + "No, the swans!")))
        assert cut.usage.cached == 0
    async with house(tmp_path, can_truncate=False) as it:
        tokens.extend(said)
        tokens.extend(it.prompt("And the geese?"))
        _, whole = await read(it.begin("u", tokens))
        assert whole.usage.cached >= len(it.prompt(LONG))


async def test_a_snapshot_is_not_read_for_less_than_what_it_takes_to_read_it(tmp_path: Path) -> None:
    async with house(tmp_path) as it:
        await read(it.begin("s", it.prompt(LONG)))
        await it.written()
    async with house(tmp_path, delay_ms=0.0) as it:
        await read(it.begin("quick", it.prompt("Fish! " * 300)))
        _, stopped = await read(it.begin("u", it.prompt(LONG + "No, the swans!")))
        assert (stopped.usage.residency, stopped.usage.cached) == (Residency.NONE, 0)
