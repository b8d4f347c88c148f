"""What each layer of a GGUF model takes in memory, told from the heads of its files. No backend, nothing is loaded.

Where a file does not say enough, more is assumed: every layer keeps the whole context, and a running state if any does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tenuto.pipelines.gguf_header import GgufHeader, Tensor

# Every so manyeth layer of these families keeps the whole context, and the others a window; the file may say it itself.
# https://github.com/ggml-org/llama.cpp/tree/master/src/models, load_swa_pattern
_PERIODS = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "exaone-moe": 4, "olmo2": 4,
    "afmoe": 4, "mellum": 4,
}  # fmt: skip
ENCODERS = frozenset(
    {"bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert"}
    | {"t5encoder", "gemma-embedding"}
)
"""Architectures whose models generate nothing, though the library may say that they decode."""
_MOST_LAYERS = 4096
_RECURRENT = (".ssm_", ".shortconv", ".time_mix")
_ATTENTION = (".attn_k.", ".attn_qkv.", ".attn_kv", ".attn_k_b.", ".attn_v.")


@dataclass(frozen=True, slots=True)
class Layer:
    """Bytes of its weights and of the largest of them; numbers that a cell of its cache keeps; bytes of a slot's state.

    `is_windowed`: it keeps a window of the last cells only.
    """

    weights: int
    largest: int = 0
    keys: int = 0
    values: int = 0
    state: int = 0
    is_windowed: bool = False
    adapter: int = 0
    """Bytes of what an adapter adds to it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model that generates text. `inputs` stay in main memory; `outputs` come after the last layer. Of `inputs`, so
    many bytes are `tied`: they serve as outputs too, as a copy where those are on an accelerator.

    `step` is how many numbers a step works with at most for each token, and `heads` are the sizes that a quantised
    cache must cut into blocks. `training_context` 0: not known.
    """

    architecture: str
    training_context: int
    vocabulary: int
    layers: tuple[Layer, ...]
    inputs: int
    outputs: int
    tied: int
    step: int
    heads: tuple[int, ...] = ()
    queries: int = 0
    """How many heads ask of the cache, at most in a layer."""
    window: int = 0
    adapter: int = 0
    """Bytes of what an adapter adds to other tensors than those of a layer."""

    @property
    def weights(self) -> int:
        """Bytes of all weights that the files hold."""
        return self.inputs + sum(layer.weights for layer in self.layers) + self.outputs


def shape_of(headers: Sequence[GgufHeader], adapter: Mapping[str, Tensor] = {}) -> Shape:
    """The shape of the model whose files have these heads, in their order, with the tensors of an adapter to it."""
    facts = _Facts(headers[0])
    tensors = {name: tensor for header in headers for name, tensor in header.tensors.items()}
    count = min(facts.number("block_count"), _MOST_LAYERS)
    by_layer, others = _by_layer(tensors, count)
    added, added_beside = _by_layer(adapter, count)
    inputs = sum(tensor.nbytes for name, tensor in others.items() if "embd" in name)
    outputs = sum(tensor.nbytes for name, tensor in others.items() if "embd" not in name)
    embeddings = others.get("token_embd.weight", Tensor((0, 0), 0))
    layers = [_layer(facts, number, of_layer, added[number]) for number, of_layer in by_layer.items()]
    return Shape(
        architecture=facts.architecture,
        training_context=facts.number("context_length"),
        vocabulary=embeddings.shape[-1],
        layers=tuple(layers),
        inputs=inputs,
        outputs=outputs,
        tied=0 if "output.weight" in others else embeddings.nbytes,
        step=facts.step() + 2 * max((sum(tensor.shape[:2]) for tensor in adapter.values()), default=0),
        heads=facts.heads() if any(layer.keys for layer in layers) else (),
        queries=max(facts.number("attention.head_count", -1), 0),
        window=facts.number("attention.sliding_window") if any(layer.is_windowed for layer in layers) else 0,
        adapter=sum(tensor.nbytes for tensor in added_beside.values()),
    )


def _by_layer(tensors: Mapping[str, Tensor], count: int) -> tuple[dict[int, dict[str, Tensor]], dict[str, Tensor]]:
    """The tensors of each layer, and the others."""
    found: dict[int, dict[str, Tensor]] = {number: {} for number in range(count)}
    others: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        _, _, rest = name.partition("blk.")
        number, _, _ = rest.partition(".")
        kept = found.get(int(number), others) if name.startswith("blk.") and number.isdecimal() else others
        kept[name] = tensor
    return found, others


def embeds(header: GgufHeader) -> bool:
    """Whether it is made for vectors of texts, or scores of pairs: its file names a pooling, or it only encodes."""
    return header.architecture in ENCODERS or _Facts(header).number("pooling_type") > 0


class _Facts:
    """The metadata of a file, by the names behind its architecture."""

    def __init__(self, header: GgufHeader) -> None:
        self.architecture, self._values = header.architecture, header.values

    def number(self, key: str, layer: int = 0, default: int = 0) -> int:
        """A number, where need be that of a layer; of one that is there for each layer, the greatest for layer -1."""
        found = self._values.get(f"{self.architecture}.{key}", default)
        if isinstance(found, list):
            numbers = [int(each) for each in found if isinstance(each, int)]
            return max(numbers, default=0) if layer < 0 else numbers[layer] if layer < len(numbers) else default
        return found if isinstance(found, int) else default

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self._values

    def head(self, of: str, layer: int = 0) -> int:
        """The size of a head of keys or values."""
        shared = self.number("embedding_length") // max(1, self.number("attention.head_count", layer))
        return self.number(f"attention.{of}_length", default=shared)

    def heads(self) -> tuple[int, ...]:
        windowed = (self.number(f"attention.{name}_length_swa") for name in ("key", "value"))
        return tuple(sorted({self.head("key", -1), self.head("value", -1), *windowed} - {0}))

    def is_windowed(self, layer: int) -> bool:
        if not self.number("attention.sliding_window"):
            return False
        pattern = self._values.get(f"{self.architecture}.attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return layer < len(pattern) and bool(pattern[layer])
        period = _PERIODS.get(self.architecture, 0)
        if isinstance(pattern, int) and period:
            period = pattern
        return period > 0 and layer % period < period - 1

    def state(self) -> int:
        """Numbers of the running state of a layer; llama-hparams.cpp has them so."""
        width, kernel = self.number("embedding_length"), max(0, self.number("ssm.conv_kernel") - 1)
        inner, size = self.number("ssm.inner_size"), self.number("ssm.state_size")
        if head := self.number("wkv.head_size"):
            return width * (self.number("token_shift_count", default=2) + head)
        if length := self.number("shortconv.l_cache"):
            return width * (length - 1)
        if head := self.number("kda.head_dim"):
            heads = self.number("attention.head_count", -1)
            return 3 * (kernel or 3) * heads * head + head * head * heads
        return kernel * (inner + 2 * self.number("ssm.group_count") * size) + size * inner

    def step(self) -> int:
        """Measured with many architectures: a tenth to a half more than their graphs take."""
        width = self.number("embedding_length")
        heads = self.number("attention.head_count", -1) * max(self.head("key", -1), self.head("value", -1))
        used = self.number("expert_used_count", -1)
        inner = max(self.number("expert_feed_forward_length", -1), 0) or self.number("feed_forward_length", -1)
        shared = self.number("expert_shared_feed_forward_length", -1) or inner * self.number("expert_shared_count", -1)
        experts = used * (2 * inner + width) + 2 * shared if used else 0
        return max(2 * self.number("feed_forward_length", -1), experts) + 9 * width + heads + self._inner()

    def _inner(self) -> int:
        return 4 * self.number("ssm.inner_size") + 2 * self.number("ssm.group_count") * self.number("ssm.state_size")


def _layer(facts: _Facts, number: int, tensors: Mapping[str, Tensor], added: Mapping[str, Tensor]) -> Layer:
    sizes = [tensor.nbytes for tensor in tensors.values()]
    keys, values = _kept(facts, number, tensors)
    is_recurrent = any(mark in name for name in tensors for mark in _RECURRENT)
    return Layer(
        weights=sum(sizes),
        largest=max(sizes, default=0),
        keys=keys,
        values=values,
        state=4 * facts.state() if is_recurrent else 0,
        is_windowed=facts.is_windowed(number),
        adapter=sum(tensor.nbytes for tensor in added.values()),
    )


def _kept(facts: _Facts, number: int, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """How many numbers of keys and values a layer keeps of each token."""
    if not any(mark in name for name in tensors for mark in _ATTENTION):
        return 0, 0
    heads = facts.number("attention.head_count_kv", number, facts.number("attention.head_count", number))
    keys, values = heads * facts.head("key", number), heads * facts.head("value", number)
    if facts.has("attention.key_length_mla"):
        return keys + facts.number("attention.indexer.key_length"), 0
    own_keys, own_values = tensors.get(f"blk.{number}.attn_k.weight"), tensors.get(f"blk.{number}.attn_v.weight")
    keys = keys if own_keys is None else own_keys.shape[-1]
    values = max(keys, values) if own_values is None else own_values.shape[-1]
    return keys + facts.number("attention.indexer.key_length"), values
