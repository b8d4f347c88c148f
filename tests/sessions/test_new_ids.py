"""Ids that are made here are random, and no two are the same, whoever makes them."""

import os
import threading

import pytest

from tenuto.sessions.ids import new_hex


def test_an_id_has_as_many_digits_as_are_asked_for() -> None:
    for digits in (1, 13, 32, 5000):
        taken = new_hex(digits)
        assert len(taken) == digits
        assert set(taken) <= set("0123456789abcdef")


def test_threads_never_get_the_same_digits() -> None:
    found: list[list[str]] = [[] for _ in range(4)]

    def take(into: list[str]) -> None:
        into.extend(new_hex() for _ in range(1000))

    threads = [threading.Thread(target=take, args=(one,)) for one in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len({one for each in found for one in each}) == 4000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system starts its processes anew")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_other_digits_than_its_parent() -> None:
    new_hex()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, new_hex().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() != new_hex()
