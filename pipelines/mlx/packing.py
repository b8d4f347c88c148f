"""A sequence's cache as an array of bytes and back: a header in JSON that describes a tree, then the tree's arrays.

Exact: nothing is rounded, and no more is kept than the tokens need. Engine thread only.
"""

import json
import math
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tenuto.errors import GenerationFailed
from tenuto.pipelines.mlx import caches
from tenuto.pipelines.mlx.caches import Cache
from tenuto.pipelines.mlx.model import Model

Bytes = NDArray[np.uint8]

_LENGTH_BYTES = 8


def pack(model: Model, cache: Cache, tokens: int) -> Bytes:
    """Copy a cache of so many tokens into bytes."""
    exact = caches.exact(cache)
    arrays: list[mx.array] = []
    tree = _describe([layer.state for layer in exact], arrays)
    flat = [array.reshape(-1).view(mx.uint8) for array in arrays if array.size]
    mx.eval(flat)
    header = json.dumps({"model": model.identity, "tokens": tokens, "tree": tree}).encode()
    parts = [len(header).to_bytes(_LENGTH_BYTES, "little"), header, *flat]
    return np.concatenate(
        [np.frombuffer(part, np.uint8) if isinstance(part, bytes) else np.asarray(part) for part in parts]
    )


def unpack(model: Model, data: Any, tokens: int) -> Cache:
    """Make a cache of what `pack` gave for so many tokens of the same model.

    Raises:
        GenerationFailed: the bytes are of something else, or are not whole.
    """
    octets: Bytes = np.frombuffer(data, np.uint8)
    end = _LENGTH_BYTES + int.from_bytes(octets[:_LENGTH_BYTES].tobytes(), "little")
    try:
        header = json.loads(octets[_LENGTH_BYTES:end].tobytes())
        if header["model"] != model.identity or header["tokens"] != tokens:
            raise ValueError("they are of another model or another number of tokens")
        reader = _Reader(octets[end:])
        states = reader.read(header["tree"])
        if reader.octets.size:
            raise ValueError("there are more than the header names")
        cache = [type(layer).from_state(state) for layer, state in zip(model.new_cache(), states, strict=True)]
        caches.evaluate(cache)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GenerationFailed(f"the cache does not fit this model: {error}") from error
    return cache


def _describe(tree: Any, arrays: list[mx.array]) -> Any:
    """The tree as JSON, in which an array is an object; the arrays are appended in the same order."""
    if isinstance(tree, mx.array):
        arrays.append(tree)
        return {"shape": list(tree.shape), "dtype": str(tree.dtype).removeprefix("mlx.core.")}
    if isinstance(tree, list | tuple):
        return [_describe(branch, arrays) for branch in tree]
    assert tree is None or isinstance(tree, bool | int | float | str), f"a cache holds {type(tree)}"
    return tree


class _Reader:
    """Reads the arrays that a tree names, one after the other."""

    def __init__(self, octets: Bytes) -> None:
        self.octets = octets

    def read(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self.read(branch) for branch in tree]
        if isinstance(tree, dict):
            return self._array(tuple(tree["shape"]), getattr(mx, tree["dtype"]))
        return tree

    def _array(self, shape: tuple[int, ...], dtype: Any) -> mx.array:
        nbytes = math.prod(shape) * dtype.size
        if nbytes > self.octets.size:
            raise ValueError("some are missing")
        part, self.octets = self.octets[:nbytes], self.octets[nbytes:]
        return mx.array(part).view(dtype).reshape(shape) if nbytes else mx.zeros(shape, dtype)
