from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.engine.rig import Make, Rig, assert_nothing_is_left, build


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes engines over a script; each is stopped after the test and must have freed everything."""
    rigs: list[Rig] = []

    def begin(rules: Sequence[dict[str, Any]] = (), *, queue: int = 64, host: int = 1 << 20, **settings: Any) -> Rig:
        engine = {"queue": queue, "host_cache_bytes": host}
        engine |= {name: settings.pop(name) for name in ("prefill_chunk", "remembered_tokens") if name in settings}
        rigs.append(build(tmp_path / f"script-{len(rigs)}.json", rules, engine, settings))
        return rigs[-1]

    yield begin
    for rig in rigs:
        rig.backend.open()
        await rig.engine.stop(5.0)
        assert not rig.engine.is_alive
        if not rig.backend.broken:
            assert_nothing_is_left(rig)
