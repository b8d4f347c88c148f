"""Owners: one task for each session's commands, in order."""

import gc
import weakref
from collections.abc import Iterator

import anyio
import pytest

from tenuto.errors import StoreFailed
from tenuto.runtime.loop.owners import Owners


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Only counts of references free anything."""
    gc.disable()
    yield
    gc.enable()


class Held:
    """What a command works on."""


@pytest.mark.usefixtures("uncollected")
async def test_a_command_that_failed_holds_nothing_once_its_error_was_told() -> None:
    async def fail(held: Held) -> None:
        assert held is not None
        raise StoreFailed("the disk is full")

    async def asked(owners: Owners, held: Held) -> None:
        with pytest.raises(StoreFailed):
            await owners.ask(("alice", "s"), lambda: fail(held))

    held = Held()
    seen = weakref.ref(held)
    async with anyio.create_task_group() as group:
        owners = Owners(group)
        await asked(owners, held)
    del held
    assert seen() is None
