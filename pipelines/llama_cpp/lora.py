"""A LoRA adapter beside a model's weights, as llama.cpp has it. Freed when nobody holds it any more.

A context has the adapter for all of its steps: to change it between the rows of a step would cost a graph each time.
"""

import ctypes
import os
import weakref
from dataclasses import replace
from typing import Any

import llama_cpp as lib

from tenuto.pipelines.adapters import Adapter, Fitting, fingerprint
from tenuto.pipelines.backend import Weights
from tenuto.pipelines.llama_cpp.native import Model, failure


class LlamaAdapter:
    """An adapter that fits the model: what does not was refused before (adapters.py).

    Raises:
        ModelLoadFailed: the library refuses it all the same.
    """

    def __init__(self, model: Model, adapter: Adapter) -> None:
        with model.changing:
            self._pointer = lib.llama_adapter_lora_init(model.pointer, os.fsencode(adapter.path))
        if not self._pointer:
            raise failure(f"the adapter {adapter.path} cannot be applied to {model.path}")
        self._scale = adapter.scale
        # It leaves the weights before they can go: this holds them.
        weakref.finalize(self, _free, model, self._pointer).atexit = False

    def apply_to(self, context: Any) -> None:
        """Let a new context of the model have it, which must be freed before it."""
        adapters = (lib.llama_adapter_lora_p_ctypes * 1)(self._pointer)
        lib.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(self._scale))


def adapted(weights: Weights, adapter: Fitting) -> Weights:
    """What there is to say of weights with an adapter."""
    return replace(weights, nbytes=weights.nbytes + adapter.nbytes, adapter=fingerprint(adapter.adapter))


def _free(model: Model, pointer: Any) -> None:
    with model.changing:
        lib.llama_adapter_lora_free(pointer)
