"""The tail of a server's output is bounded, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from tenuto.tools.host.stderr_tail import MAX_LINE_BYTES, MAX_LINES, StderrTail


@given(st.lists(st.binary(max_size=30), max_size=30))
def test_the_lines_are_the_same_however_the_output_is_cut(pieces: list[bytes]) -> None:
    cut, whole = StderrTail(), StderrTail()
    for piece in pieces:
        cut.add(piece)
    whole.add(b"".join(pieces))
    assert cut.lines == whole.lines


def test_only_the_last_lines_are_kept() -> None:
    tail = StderrTail()
    for number in range(1000):
        tail.add(f"{number}\n".encode())
    assert tail.lines == tuple(str(number) for number in range(1000 - MAX_LINES, 1000))


def test_a_line_without_an_end_is_bounded() -> None:
    tail = StderrTail()
    for _ in range(100):
        tail.add(b"x" * 1000)
    assert list(tail.lines) == ["x" * MAX_LINE_BYTES + " ..."]
    tail.add(b"\nnext\n")
    assert list(tail.lines) == ["x" * MAX_LINE_BYTES + " ...", "next"]
