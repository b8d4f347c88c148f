"""A buffer that is cleared reads as zeros, and one that nobody has written to takes no memory."""

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llama_cpp")

import llama_cpp as lib

from tenuto.pipelines.llama_cpp import Model
from tenuto.pipelines.llama_cpp.context import Context
from tests.embedded import gguf_file

LARGE = 1 << 20


def native(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)((name, lib.llama_cpp._lib))


@contextmanager
def buffer(size: int) -> Iterator[tuple[int, int]]:
    """A buffer in main memory as the library makes them, and where its bytes lie."""
    kind = native("ggml_backend_cpu_buffer_type", ctypes.c_void_p)()
    made = native("ggml_backend_buft_alloc_buffer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(kind, size)
    yield made, native("ggml_backend_buffer_get_base", ctypes.c_void_p, ctypes.c_void_p)(made)
    native("ggml_backend_buffer_free", None, ctypes.c_void_p)(made)


@given(size=st.one_of(st.integers(1, 3 * mmap.PAGESIZE), st.integers(LARGE - 2, LARGE + 3 * mmap.PAGESIZE)))
def test_a_buffer_of_any_size_holds_what_it_was_cleared_with(size: int) -> None:
    clear = native("ggml_backend_buffer_clear", None, ctypes.c_void_p, ctypes.c_uint8)
    with buffer(size) as (made, base):
        for value in (7, 0, 255, 0):
            clear(made, value)
            assert ctypes.string_at(base, size) == bytes([value]) * size


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the library writes its zeros")
def test_a_cache_takes_memory_as_it_is_used() -> None:
    model = Model(gguf_file())
    before = resident_bytes()
    context = Context(model, streams=8, cells=4096, batch_tokens=64, threads=1)
    grown = resident_bytes() - before
    context.close()
    assert grown < 100 << 20, "the whole cache has 300 MB"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
