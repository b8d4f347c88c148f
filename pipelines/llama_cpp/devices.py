"""The accelerators that llama.cpp would put layers on, and how much memory is free on each."""

import ctypes
import sys
from typing import Any

import llama_cpp as lib

from tenuto.pipelines.fit import Device
from tenuto.pipelines.llama_cpp.native import can_offload
from tenuto.pipelines.machine_memory import usable

_GPU, _INTEGRATED = 1, 2  # enum ggml_backend_dev_type


def devices(*, are_empty: bool = False) -> tuple[Device, ...]:
    """In the library's own order, with what a model may take of each; integrated ones where there are no others.

    `are_empty`: with all their memory, as if nobody used them.
    """
    if not can_offload():
        return ()
    found = [_device(number, are_empty=are_empty) for number in range(_call("ggml_backend_dev_count", ctypes.c_size_t))]
    for kind in (_GPU, _INTEGRATED):
        of_kind = tuple(device for of, device in found if of == kind)
        if of_kind:
            return of_kind
    return ()


def _device(number: int, *, are_empty: bool) -> tuple[int, Device]:
    handle = ctypes.c_void_p(_call("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t(number)))
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call("ggml_backend_dev_memory", None, handle, ctypes.pointer(free), ctypes.pointer(total))
    kind: int = _call("ggml_backend_dev_type", ctypes.c_int, handle)
    name: bytes = _call("ggml_backend_dev_name", ctypes.c_char_p, handle)
    is_unified = sys.platform == "darwin" or kind == _INTEGRATED
    return kind, Device(name.decode(errors="replace"), usable((total if are_empty else free).value), is_unified)


def _call(name: str, result: Any, *arguments: Any) -> Any:
    prototype = ctypes.CFUNCTYPE(result, *map(type, arguments))
    return prototype((name, lib.llama_cpp._lib))(*arguments)
