"""How many values a JSON text has, told before it is read."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto import json_bounds
from tenuto.json_bounds import has_at_most

STRING = re.compile(rb'"(?:\\.|[^"\\])*"', re.DOTALL)
TEXTS = st.recursive(
    st.none() | st.integers() | st.text('a,[{"\\\\'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a,[{"\\\\'), inner),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("piece", [1, 3, 1 << 16])
@given(value=TEXTS, values=st.integers(1, 20))
def test_what_stands_in_strings_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, piece: int, value: object, values: int
) -> None:
    monkeypatch.setattr(json_bounds, "_PIECE_BYTES", piece)
    text = json.dumps(value).encode()
    outside = STRING.sub(b"", text)
    wanted = sum(outside.count(sign) for sign in (b",", b"[", b"{")) < values
    assert has_at_most(text, values) == wanted or text.count(b'"') > 4 * values
