"""While the model is silent, the stream of a message is not: its client's timer needs an event."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tenuto.runtime.app import opened
from tenuto.runtime.config import Settings
from tenuto.runtime.dialects.anthropic.dialect import anthropic
from tenuto.runtime.dialects.base import DialectServices
from tenuto.runtime.http.dialect import Dialect
from tests.dialects.test_messages_answer import data
from tests.e2e.server import script

pytestmark = pytest.mark.slow


def impatient(services: DialectServices) -> Dialect:
    return anthropic(replace(services, keep_alive_s=0.01))


async def test_a_silent_stream_says_that_it_is_there(tmp_path: Path) -> None:
    model = script(tmp_path / "model.json", [{"user": "slow", "text": "a", "delay_ms": 300}], cells=4096)
    settings = Settings(model=(model,), data_dir=tmp_path / "data")
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "slow"}], "tools": [], "stream": True}
    async with opened(settings, (impatient,)) as app:
        transport = httpx.ASGITransport(app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.post("/v1/messages", json=body)
    kinds = [event["type"] for event in data(response.content)]
    assert kinds[0] == "message_start"
    assert kinds.count("ping") > 1
    assert [kind for kind in kinds if kind != "ping"][-1] == "message_stop"
