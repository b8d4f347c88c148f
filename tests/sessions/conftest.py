from collections.abc import Iterator

import pytest

from tenuto.sessions.storage.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store in memory."""
    opened = Store.open("sqlite://")
    yield opened
    opened.close()
