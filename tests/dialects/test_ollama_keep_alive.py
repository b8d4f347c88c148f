"""`keep_alive`: durations as Go writes them, and numbers of seconds."""

import pytest

from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.ollama.keep_alive import seconds


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (0, 0.0),
        ("0", 0.0),
        (300, 300.0),
        (0.5, 0.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("1.5s", 1.5),
        (-1, None),
        ("-1m", None),
        ("-1s", None),
    ],
)
def test_a_duration_is_so_many_seconds(value: float | str, meant: float | None) -> None:
    assert seconds(value) == meant


@pytest.mark.parametrize("value", ["", "5", "m", "5 m", "5x", "1h-3m", "9" * 100 + "s", "inf"])
def test_what_is_no_duration_is_refused(value: str) -> None:
    with pytest.raises(InvalidRequest, match="keep_alive"):
        seconds(value)
