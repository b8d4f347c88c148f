from collections.abc import Iterator

import pytest

from tests.oauth.authority import Authority
from tests.oauth.authority import authority as running


@pytest.fixture
def authority() -> Iterator[Authority]:
    with running() as one:
        yield one
