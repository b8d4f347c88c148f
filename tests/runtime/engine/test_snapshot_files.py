"""The form of a snapshot's file: what was written is read, and whatever was changed in it is noticed."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.backend import Snapshot
from tenuto.runtime.engine.snapshots.file import Facts, Flaw, Header, Packed, Unusable, read_header, read_whole
from tenuto.sessions.tokens import Tokens

PIECE = 1 << 20
ids = st.integers(0, (1 << 32) - 1)
names = st.text(max_size=20)
extents = st.lists(st.tuples(*[st.integers(0, 1 << 30)] * 3), max_size=3).map(tuple)


def packed(facts: Facts, tokens: Tokens, data: object) -> Packed:
    return Packed(Header(facts, tokens), Snapshot(len(tokens), facts.nbytes, data, facts.extents))


def written(path: Path, one: Packed) -> bytes:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        one.write(descriptor, lambda: None)
    finally:
        os.close(descriptor)
    content = path.read_bytes()
    assert len(content) == one.size
    return content


def read(path: Path) -> tuple[Header, Snapshot]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_whole(descriptor, lambda _: None)
    finally:
        os.close(descriptor)


def flaw(path: Path, content: bytes) -> Flaw | None:
    path.write_bytes(content)
    try:
        read(path)
    except Unusable as error:
        return error.flaw
    return None


def example(path: Path, nbytes: int = 300) -> bytes:
    facts = Facts("model", "a/b", "alice", 5.5, nbytes, ((1, 2, 1),))
    return written(path, packed(facts, Tokens(range(10)), np.arange(nbytes, dtype=np.uint8)))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "file"


@given(
    who=st.tuples(names, names, names),
    when=st.floats(allow_nan=False, allow_infinity=False),
    tokens=st.lists(ids, max_size=50),
    pieces=extents,
    data=st.binary(max_size=2000),
    as_array=st.booleans(),
)
def test_what_was_written_is_read(
    path: Path,
    who: tuple[str, str, str],
    when: float,
    tokens: list[int],
    pieces: tuple[tuple[int, int, int], ...],
    data: bytes,
    as_array: bool,
) -> None:
    facts = Facts(*who, when, len(data), pieces)
    written(path, packed(facts, Tokens(tokens), np.frombuffer(bytearray(data), np.uint8) if as_array else data))
    header, snapshot = read(path)
    assert (header.facts, header.tokens) == (facts, Tokens(tokens))
    assert (snapshot.tokens, snapshot.nbytes, snapshot.extents) == (len(tokens), len(data), pieces)
    assert bytes(snapshot.data) == data


@pytest.mark.parametrize("nbytes", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
def test_a_cache_of_several_pieces_is_read_as_it_was(path: Path, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    written(path, packed(Facts("m", "s", "p", 0.0, nbytes), Tokens([1]), data))
    assert np.array_equal(read(path)[1].data, data)


def test_a_file_that_was_cut_anywhere_is_noticed_by_its_header_alone(path: Path) -> None:
    whole = example(path)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with pytest.raises(Unusable, match="cut"):
                read_header(descriptor)
        finally:
            os.close(descriptor)
    assert flaw(path, whole + b"\0") is Flaw.CUT
    assert flaw(path, whole) is None


def test_a_byte_that_was_changed_anywhere_is_noticed(path: Path) -> None:
    whole = example(path)
    for place in range(len(whole)):
        for change in (1, 128, 255):
            altered = bytearray(whole)
            altered[place] ^= change
            assert flaw(path, bytes(altered)) is not None, place


@given(begin=st.integers(0, 3 * PIECE), zeros=st.integers(1, 3 * PIECE))
def test_a_part_that_did_not_reach_the_disk_is_noticed(path: Path, begin: int, zeros: int) -> None:
    global _large
    if not _large:
        data = np.random.default_rng(1).integers(1, 256, 3 * PIECE + 1, np.uint8)
        _large = written(path, packed(Facts("m", "s", "p", 0.0, data.size), Tokens(range(9)), data))
    torn = bytearray(_large)
    torn[begin : begin + zeros] = bytes(len(torn[begin : begin + zeros]))
    assert flaw(path, bytes(torn)) is not None


_large = b""


def swapped(content: bytes, other: bytes, at: int) -> bytes:
    """The pieces are in the other's order."""
    return content[:at] + content[at + PIECE : at + 2 * PIECE] + content[at : at + PIECE] + content[at + 2 * PIECE :]


def exchanged(content: bytes, other: bytes, at: int) -> bytes:
    """The cache and its checksums are the other's."""
    return content[:at] + other[at:]


@pytest.mark.parametrize("change", [swapped, exchanged])
def test_pieces_in_another_order_or_of_another_file_are_noticed(
    path: Path, change: Callable[[bytes, bytes, int], bytes]
) -> None:
    data = np.random.default_rng(1).integers(0, 256, (2, 2 * PIECE), np.uint8)
    mine, other = (
        written(path, packed(Facts("m", sequence, "p", 0.0, 2 * PIECE), Tokens([1]), one))
        for sequence, one in zip("ab", data, strict=True)
    )
    at = mine.index(data[0, :64].tobytes())
    assert flaw(path, mine) is None
    # With the checksums in the order of their pieces too, where pieces are swapped.
    altered = change(mine, other, at)
    assert flaw(path, altered) is Flaw.ALTERED
    assert flaw(path, altered[:-8] + altered[-4:] + altered[-8:-4]) is Flaw.ALTERED


@given(lead=st.binary(max_size=60))
def test_what_is_no_snapshot_is_refused_before_much_of_it_is_read(path: Path, lead: bytes) -> None:
    assert flaw(path, lead) is not None
    assert flaw(path, b"tenutokv\x01\0\0\0" + lead) is not None
    assert flaw(path, b"tenutokv\x01\0\0\0" + b"\xff" * 12 + lead) in (Flaw.FORM, Flaw.CUT)
    assert flaw(path, b"tenutokv\x02\0\0\0" + bytes(100)) is Flaw.FORM


def test_tokens_are_the_same_as_bytes_and_back() -> None:
    tokens = Tokens([0, 1, 258, (1 << 32) - 1])
    assert tokens.to_bytes() == b"\0\0\0\0\1\0\0\0\2\1\0\0\xff\xff\xff\xff"
    assert Tokens.from_bytes(tokens.to_bytes()) == tokens
    with pytest.raises(ValueError, match="multiple"):
        Tokens.from_bytes(b"abc")
