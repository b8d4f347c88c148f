"""Compressed bodies come out as they were, and no further than somebody asks."""

import contextlib
import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import InvalidRequest
from tenuto.runtime.http.inflating import PIECE, Inflater


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": raw,
}


def inflated(encoding: str, pieces: list[bytes]) -> bytes:
    inflater, found = Inflater(encoding), b""
    for piece in pieces:
        inflater.push(piece)
        while inflater.has_more:
            part = inflater.read()
            assert len(part) <= PIECE
            found += part
    inflater.finish()
    return found


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("encoding", PACKED)
@given(data=st.binary(max_size=300) | st.integers(0, 4 * PIECE).map(bytes), size=st.integers(1, 200))
def test_a_body_comes_out_as_it_went_in_however_it_is_cut(encoding: str, data: bytes, size: int) -> None:
    packed = PACKED[encoding](data)
    assert inflated(encoding, cut(packed, max(size, len(packed) // 50))) == data


def test_a_gzip_body_may_have_several_members() -> None:
    assert inflated("gzip", [gzip.compress(b"one ") + gzip.compress(b"two")]) == b"one two"


@pytest.mark.parametrize("encoding", PACKED)
def test_an_empty_body_has_no_end(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match="end is missing"):
        inflated(encoding, [b""])


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_that_is_cut_off_is_refused(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match="end is missing"):
        inflated(encoding, [PACKED[encoding](b"hello" * 100)[:-1]])


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_not_compressed_is_refused_in_words(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match=f"not {encoding}, as its Content-Encoding says") as raised:
        inflated(encoding, [b'{"messages": []}'])
    assert raised.value.param == "Content-Encoding"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, deflate", "x" * 1000, ""])
def test_an_encoding_that_nobody_here_knows_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(InvalidRequest, match="it may be gzip") as raised:
        Inflater(encoding)
    assert len(str(raised.value)) < 200


@given(st.sampled_from(["gzip", "deflate"]), st.lists(st.binary(max_size=50), max_size=5))
def test_no_bytes_break_it(encoding: str, pieces: list[bytes]) -> None:
    with contextlib.suppress(InvalidRequest):
        inflated(encoding, pieces)
