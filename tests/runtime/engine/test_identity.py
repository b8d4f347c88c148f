"""The embedded model says the same wherever its caches have been: on the device, in host memory, on disk."""

from pathlib import Path

import pytest

from tenuto.pipelines.backend import Sampling, TokenLogprob
from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.loader import LoadSettings, load
from tenuto.runtime.engine.counts import Family, families
from tenuto.runtime.engine.engine import DiskSettings, Engine, EngineSettings
from tenuto.runtime.engine.messages import Round, TokensSampled
from tenuto.runtime.engine.snapshots import Limits
from tenuto.runtime.loop.engine_client import EngineClient
from tenuto.sessions.items import UserItem
from tests.embedded import FORMS

SESSIONS, TURNS, CELLS = 5, 2, 1024
ASKS = ["What is {} + 2?", "My dog is called Rex{}. What is my dog called?", "Say hello to number {}."]
CLOSE = 1e-2
"""A cache that was computed again, in other pieces, may differ in the last digits: so near to each other are the logits
of two tokens that may then change places."""
Answer = list[TokenLogprob]


async def said(pipeline: Pipeline, settings: EngineSettings) -> tuple[dict[str, list[Answer]], dict[str, int]]:
    """What each session is answered in each turn, one after the other, and how often caches moved."""
    client = EngineClient("it", pipeline.backend.info.slots, Engine(pipeline, settings))
    ledgers: dict[str, list[int]] = {f"s{number}": [] for number in range(SESSIONS)}
    answers: dict[str, list[Answer]] = {name: [] for name in ledgers}
    try:
        for turn in range(TURNS):
            for number, (name, ledger) in enumerate(ledgers.items()):
                text = " ".join(ask.format(10 * number + turn) for ask in ASKS[: 1 if turn else None])
                rendered = pipeline.codec.suffix([], [UserItem(text)], [], ended=True)
                ledger += [*(token for item in rendered.items for token in item), *rendered.opening]
                held_to = Round(24, Sampling(logprobs=2), pipeline.codec.info.stop_tokens)
                opened = client.submit(name, ledger.copy(), held_to, principal="alice", kept_as=name)
                answer = [one async for event in opened if isinstance(event, TokensSampled) for one in event.logprobs]
                answers[name].append([one for one in answer if one is not None])
                ledger += [one.token for one in answers[name][-1]]
                client.expect(name, [0.0, 0.05, 3600.0][number % 3], 0.0)
        return answers, families(client.status.counts)[Family.MOVES]
    finally:
        await client.stop()


def assert_alike(one: Answer, other: Answer) -> None:
    """The same tokens, or two at the first difference that lie next to each other in both."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.token != theirs.token:
            for told in (mine, theirs):
                (_, first), (_, second) = told.top[:2]
                assert {token for token, _ in told.top[:2]} == {mine.token, theirs.token}
                assert abs(first - second) < CLOSE, f"{mine} or {theirs}"
            return
    assert len(one) == len(other)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("model", FORMS)
@pytest.mark.parametrize("slots", [1, 2])
async def test_answers_are_identical_however_little_room_the_caches_have(
    model: str, slots: int, tmp_path: Path
) -> None:
    def opened(slots: int) -> Pipeline:
        return load(model, LoadSettings(slots=slots, cells=CELLS, threads=1, cache_bytes=1 << 30))

    roomy, still = await said(opened(SESSIONS), EngineSettings(host_cache_bytes=1 << 30))
    assert not any(still.values())
    pipeline = opened(slots)
    one = 300 * pipeline.backend.info.bytes_per_token
    limits = Limits(1 << 28, 1 << 28, 3600.0, spare_bytes=0)
    for host in (0, 2 * one, 1 << 28):
        settings = EngineSettings(host_cache_bytes=host, disk=DiskSettings(tmp_path / str(host), limits))
        answers, moves = await said(opened(slots), settings)
        for name, turns in answers.items():
            assert_alike([one for turn in turns for one in turn], [one for turn in roomy[name] for one in turn])
        assert sum(moves.values()) >= SESSIONS
