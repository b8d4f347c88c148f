"""Compressed bodies, undone in pieces of a bounded size: what comes out is for the caller to bound. No I/O."""

import zlib

from tenuto.errors import InvalidRequest

ENCODINGS = ("gzip", "x-gzip", "deflate")
PIECE = 64 << 10
_GZIP, _ZLIB, _RAW = 31, 15, -15
_ZLIB_METHOD, _ZLIB_CHECK = 8, 31


class Inflater:
    """Undoes one Content-Encoding. Any thread, one at a time.

    Raises:
        InvalidRequest: nobody here knows the encoding.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding.strip().lower()
        if self._encoding not in ENCODINGS:
            raise InvalidRequest(
                f"Content-Encoding {encoding[:40]!r} is not supported; it may be {', '.join(ENCODINGS)}",
                "Content-Encoding",
            )
        self._waiting = b""
        self._may_hold_more = False
        self._stream = None if self._encoding == "deflate" else zlib.decompressobj(_GZIP)

    @property
    def has_more(self) -> bool:
        """Whether there may be more to read of what was pushed."""
        begun = self._stream is not None or len(self._waiting) > 1
        return begun and (bool(self._waiting) or self._may_hold_more)

    def push(self, data: bytes) -> None:
        """More has come."""
        self._waiting += data

    def read(self) -> bytes:
        """Some of what was pushed, at most PIECE bytes of it. Only where it `has_more`.

        Raises:
            InvalidRequest: it is not what its encoding says.
        """
        stream, data = self._begun(), self._waiting
        try:
            out = stream.decompress(data, PIECE)
        except zlib.error as exc:
            raise self._wrong(str(exc)) from None
        self._waiting = stream.unconsumed_tail or stream.unused_data
        self._may_hold_more = len(out) == PIECE
        return out

    def finish(self) -> None:
        """No more comes. Raises InvalidRequest where its end is missing."""
        if self._stream is None or not self._stream.eof:
            raise self._wrong("its end is missing")

    def _begun(self) -> "zlib._Decompress":
        if self._stream is None:  # what is called deflate has zlib's header by the standard, and often none
            first, second = self._waiting[:2]
            has_header = first % 16 == _ZLIB_METHOD and (first * 256 + second) % _ZLIB_CHECK == 0
            self._stream = zlib.decompressobj(_ZLIB if has_header else _RAW)
        elif self._stream.eof and self._waiting:
            if self._encoding == "deflate":
                raise self._wrong("something follows its end")
            self._stream = zlib.decompressobj(_GZIP)  # it may have several members, one after the other
        return self._stream

    def _wrong(self, why: str) -> InvalidRequest:
        words = f"the body is not {self._encoding}, as its Content-Encoding says: {why}"
        return InvalidRequest(words, "Content-Encoding")
