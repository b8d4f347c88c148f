"""A store of one's own, and a server of files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.pipelines.model_store import ModelStore
from tests.pipelines.model_store.servers import Files, serving


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "downloads")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setattr("tenuto.pipelines.model_store.download.WAITS_S", (0.0,))
    with serving(Files()) as server:
        yield server
