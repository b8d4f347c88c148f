"""Zeros that take no memory: on Linux a cache is cleared by giving its pages back, and not by writing to all of them.

The library fills a new cache with zeros, most of which a server never needs. Pages that were given back read as zeros,
and become memory at the first write: what `ggml_backend_buffer_clear` means stays the same. There is no setting for it,
so the library's function is replaced in its tables, by the layout of ggml/src/ggml-backend-impl.h. The layout is tried
out on a small buffer first; where it is another one, nothing is replaced.
"""

import ctypes
import mmap
import sys
from typing import Any

import llama_cpp as lib

_WORD = ctypes.sizeof(ctypes.c_void_p)
_ALLOC = 1  # a word of `struct ggml_backend_buffer_type`
_CLEAR, _TYPE, _BASE, _SIZE = 9, 11, 12, 13  # words of `struct ggml_backend_buffer`
_LARGE = 1 << 20
"""Smaller buffers are cleared as ever."""
_MADV_DONTNEED = 4

_Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Clear = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint8)


class Zeros:
    """What takes the place of the library's functions; it must live as long as they. Any thread may call them.

    Raises:
        AttributeError: the library, or the system's, has no such functions.
    """

    def __init__(self) -> None:
        self._get_base = _function("ggml_backend_buffer_get_base", ctypes.c_void_p, ctypes.c_void_p)
        self._get_size = _function("ggml_backend_buffer_get_size", ctypes.c_size_t, ctypes.c_void_p)
        self._free = _function("ggml_backend_buffer_free", None, ctypes.c_void_p)
        self._allocate = _function("ggml_backend_buft_alloc_buffer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._clear = _function("ggml_backend_buffer_clear", None, ctypes.c_void_p, ctypes.c_uint8)
        self._type = _function("ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
        self._give_back = ctypes.CDLL(None).madvise
        self._give_back.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._on_alloc, self._on_clear = _Alloc(self._allocated), _Clear(self._cleared)
        self._least, self._last_cleared = 0, 0

    def install(self) -> bool:
        """Replace them, if the tables are those that are meant."""
        if not self._has_the_layout():
            return False
        entry = _word(self._type, _ALLOC)
        original = entry.value
        self._native_alloc = _Alloc(original or 0)
        entry.value = _address(self._on_alloc)
        if not self._is_asked():
            entry.value = original
            return False
        self._least = _LARGE
        return True

    def _has_the_layout(self) -> bool:
        buffer = self._allocate(self._type, 64)
        found = [_word(buffer, index).value for index in (_TYPE, _BASE, _SIZE)]
        is_known = found == [self._type, self._get_base(buffer), self._get_size(buffer)]
        has_clear = bool(_word(buffer, _CLEAR).value)
        self._free(buffer)
        return is_known and has_clear

    def _is_asked(self) -> bool:
        """Whether a new buffer, for now of any size, is cleared by what is to clear it."""
        buffer = self._allocate(self._type, 64)
        self._clear(buffer, 1)
        is_asked = bool(self._last_cleared == buffer)
        self._free(buffer)
        return is_asked

    def _allocated(self, kind: int, size: int) -> int | None:
        buffer: int | None = self._native_alloc(kind, size)
        if buffer and size >= self._least:
            _word(buffer, _CLEAR).value = _address(self._on_clear)
        return buffer

    def _cleared(self, buffer: int, value: int) -> None:
        base, size = self._get_base(buffer), self._get_size(buffer)
        begin = -(-base // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (base + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if value == 0 and begin < end and self._give_back(begin, end - begin, _MADV_DONTNEED) == 0:
            ctypes.memset(base, 0, begin - base)
            ctypes.memset(end, 0, base + size - end)
        else:  # as ever; locked pages cannot be given back
            ctypes.memset(base, value, size)
        self._last_cleared = buffer


def replace_writing() -> Zeros | None:
    """Clear large buffers so from now on, where that is known to work. The result must be kept for ever."""
    if sys.platform != "linux":
        return None  # elsewhere such pages need not read as zeros
    try:
        zeros = Zeros()
    except AttributeError:
        return None
    return zeros if zeros.install() else None


def _word(address: int, index: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(address + index * _WORD)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the library, with types of its own."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, lib.llama_cpp._lib))
