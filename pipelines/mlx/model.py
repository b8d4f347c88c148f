"""A folder with an MLX model: its weights, and the facts that its cache is planned by. No cache and no steps here.

Everything is evaluated when it is loaded, so that another thread may use it: streams belong to threads.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.backend import Weights
from tenuto.pipelines.mlx import caches
from tenuto.pipelines.mlx.caches import Cache


class Model:
    """The weights of a folder in MLX's form, quantised or not.

    Raises:
        ModelLoadFailed: a file is missing or broken, or the model is of a kind that mlx-lm does not know.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        config = _read_config(path)
        _require_weights(path)
        self.network, loaded = _load(path)
        self._config = {**config.get("text_config", {}), **config}
        self.eos_tokens = _tokens(loaded.get("eos_token_id"))
        mx.eval(list(_all_arrays(self.network)))
        cache, self.vocabulary = _probe(path, self.network)
        self.can_batch = caches.can_batch(cache)
        self._leaves = caches.measure(cache)
        self._empty = caches.new(self.network)
        identity = json.dumps([config, [type(leaf).__name__ for leaf in caches.leaves(cache)]], sort_keys=True)
        self.identity = hashlib.sha256(identity.encode()).hexdigest()
        self.weight_bytes = sum(array.nbytes for _, array in tree_flatten(self.network.parameters()))

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        return f"{self._config['model_type']}, {self.weight_bytes / 1e6:.0f} MB"

    @property
    def weights(self) -> Weights:
        """What the folder says of its weights."""
        width, quantisation = self._config.get("hidden_size"), self._config.get("quantization")
        bits = quantisation.get("bits") if isinstance(quantisation, dict) else None
        return Weights(
            form="safetensors",
            architecture=self._config["model_type"],
            quantisation=f"{bits}-bit" if bits else "",
            nbytes=self.weight_bytes,
            width=width if isinstance(width, int) else 0,
            are_on_device=mx.metal.is_available(),
        )

    @property
    def training_context(self) -> int:
        """The context length that the model was trained for; 0 where it does not say."""
        length = self._config.get("max_position_embeddings") or 0
        return length if isinstance(length, int) else 0

    @property
    def bytes_per_token(self) -> int:
        """What a token takes in a cache that has not forgotten any; 1 at least."""
        return max(1, sum(leaf.per_token for leaf in self._leaves))

    def cache_bytes(self, tokens: int) -> int:
        """What so many tokens of a sequence take in the cache."""
        return sum(leaf.nbytes(tokens) for leaf in self._leaves)

    def can_cut(self, tokens: int) -> bool:
        """Whether the cache of a sequence of so many tokens can be cut back to fewer."""
        return caches.can_cut(self._empty, tokens)

    def new_cache(self) -> Cache:
        """Make an empty cache for a sequence."""
        return caches.new(self.network)

    def forward(self, tokens: mx.array, cache: Cache) -> mx.array:
        """Build the graph of a pass over rows of tokens, which go on from the cache. Gives the logits of the last."""
        return self.network(tokens, cache=cache)[:, -1, :]


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise ModelLoadFailed(f"there is no folder {path}")
    try:
        config = json.loads((path / "config.json").read_text("utf-8"))
    except FileNotFoundError as error:
        raise ModelLoadFailed(f"{path} is not the folder of an MLX model: it has no config.json") from error
    except OSError as error:
        raise ModelLoadFailed(f"{path / 'config.json'} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelLoadFailed(f"{path / 'config.json'} is broken: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelLoadFailed(f"{path / 'config.json'} does not say which model_type it is for")
    return config


def _require_weights(path: Path) -> None:
    index = path / "model.safetensors.index.json"
    named: set[str] = set()
    if index.exists():
        try:
            named = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise ModelLoadFailed(f"{index} is broken: {error}") from error
    missing = sorted(name for name in named if not (path / name).exists())
    if missing:
        more = f", nor {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelLoadFailed(f"{path} has no {missing[0]}, which its index names{more}")
    if not any(path.glob("model*.safetensors")):
        raise ModelLoadFailed(f"{path} has no weights: no model*.safetensors")


def _load(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    try:
        network, config = load_model(path)
    except Exception as error:  # whatever the files made mlx-lm raise, they are what is wrong
        raise ModelLoadFailed(f"{path} cannot be loaded: {_in_a_line(error)}") from error
    return network, config


def _probe(path: Path, network: nn.Module) -> tuple[Cache, int]:
    """Run one token: shows that the model runs, and how wide its logits and its cache are."""
    try:
        cache = caches.new(network)
        logits = network(mx.array([[0]]), cache=cache)
        mx.eval(logits, caches.arrays(cache))
    except Exception as error:  # as above
        raise ModelLoadFailed(f"{path} cannot run: {_in_a_line(error)}") from error
    return cache, int(logits.shape[-1])


def _in_a_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _tokens(eos: Any) -> frozenset[int]:
    return frozenset(token for token in (eos if isinstance(eos, list) else [eos]) if isinstance(token, int))


def _all_arrays(value: Any) -> Iterator[mx.array]:
    """Every array below, with those that are no parameters: tables that a layer has worked out for itself."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, dict):  # a module is one
        for part in value.values():
            yield from _all_arrays(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _all_arrays(part)
