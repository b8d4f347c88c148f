"""A small Llama in PyTorch: the same arithmetic as llama.cpp and MLX, written for training on a processor."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model. `context`: the longest sequence that its positions are made for.

    `theta` is far larger than Llama's 10,000: by it only half of a head's numbers turn with the position, and the other
    half can find a word wherever it stands. With 10,000 a head of 32 has 8 such numbers over 500 tokens.
    """

    vocabulary: int
    width: int = 128
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    """Numbers in a head's query."""
    hidden: int = 384
    context: int = 4096
    theta: float = 1e8
    epsilon: float = 1e-5

    def facts(self) -> dict[str, Any]:
        """As plain data, for a checkpoint."""
        return asdict(self)


class RmsNorm(nn.Module):
    """Llama's normalisation."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width]."""
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(x.dtype) * self.weight.to(x.dtype)


class Block(nn.Module):
    """Attention with rotary positions and grouped heads, then a gated feed-forward."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width, head = shape.width, shape.head_width
        self.attention_norm = RmsNorm(width, shape.epsilon)
        self.q = nn.Linear(width, shape.heads * head, bias=False)
        self.k = nn.Linear(width, shape.kv_heads * head, bias=False)
        self.v = nn.Linear(width, shape.kv_heads * head, bias=False)
        self.o = nn.Linear(shape.heads * head, width, bias=False)
        self.feed_norm = RmsNorm(width, shape.epsilon)
        self.gate = nn.Linear(width, shape.hidden, bias=False)
        self.up = nn.Linear(width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [batch, time, width]; cos, sin: [time, head width]."""
        shape = self.shape
        batch, time, _ = x.shape
        y = self.attention_norm(x)
        q = self.q(y).view(batch, time, shape.heads, shape.head_width).transpose(1, 2)
        k = self.k(y).view(batch, time, shape.kv_heads, shape.head_width).transpose(1, 2)
        v = self.v(y).view(batch, time, shape.kv_heads, shape.head_width).transpose(1, 2)
        cos, sin = cos.to(q.dtype), sin.to(q.dtype)
        q, k = _placed(q, cos, sin), _placed(k, cos, sin)
        attended = attention(q, k, v)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, time, -1))
        y = self.feed_norm(x)
        fed: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return fed

    def looks(self, x: Tensor, cos: Tensor, sin: Tensor, head: int, places: Tensor) -> Tensor:
        """Where a head looks from some places: logarithms of its shares, [batch, places, time].

        x: [batch, time, width], as for `forward`; places: [batch, places].
        """
        shape, wide = self.shape, self.shape.head_width
        shared = head // (shape.heads // shape.kv_heads)
        y = self.attention_norm(x)
        asking = y.gather(1, places[..., None].expand(-1, -1, shape.width))
        q = functional.linear(asking, self.q.weight[head * wide : (head + 1) * wide])
        k = functional.linear(y, self.k.weight[shared * wide : (shared + 1) * wide])
        q = _placed(q, cos[places].to(q.dtype), sin[places].to(q.dtype))
        scores = (q @ _placed(k, cos.to(k.dtype), sin.to(k.dtype)).mT).float() * wide**-0.5
        ahead = torch.arange(x.shape[1], device=x.device) > places[..., None]
        shares: Tensor = scores.masked_fill(ahead, float("-inf")).log_softmax(-1)
        return shares


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention. q: [batch, heads, time, head width]; k, v: [batch, kv heads, time, head width].

    PyTorch's own on a GPU. On a CPU that takes half of a step's time; there the queries go in eight parts, each over no
    more keys than it may see, and the heads that share keys as one matrix: three times as fast, when compiled.
    """
    if q.device.type != "cpu":
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    batch, heads, time, width = q.shape
    shared = k.shape[1]
    q = (q * width**-0.5).view(batch, shared, heads // shared, time, width)
    part = max(64, -(-time // 8))
    parts: list[Tensor] = []
    for begin in range(0, time, part):
        end = min(time, begin + part)
        ahead = torch.arange(begin, end)[:, None] < torch.arange(end)[None, :]
        asked = q[:, :, :, begin:end].reshape(batch, shared, -1, width)
        scores = (asked @ k[:, :, :end].mT).view(batch, shared, -1, end - begin, end)
        shares = scores.float().masked_fill(ahead, float("-inf")).softmax(-1).to(v.dtype)
        found = shares.view(batch, shared, -1, end) @ v[:, :, :end]
        parts.append(found.view(batch, shared, -1, end - begin, width))
    return torch.cat(parts, 3).view(batch, heads, time, width)


class Network(nn.Module):
    """Token ids to hidden states; the embedding is the output matrix too."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width, shape.epsilon)
        cos, sin = _rotary(shape)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deviation = 0.8 / math.sqrt(parameter.shape[1])
                if name.endswith(("o.weight", "down.weight")):
                    deviation /= math.sqrt(2 * shape.layers)
                nn.init.normal_(parameter, 0, deviation)
        nn.init.normal_(self.embedding.weight, 0, 0.03)

    def forward(self, ids: Tensor, inputs: list[Tensor] | None = None) -> Tensor:
        """ids: [batch, time] to hidden states [batch, time, width]. `inputs` gets what every block was given."""
        time = ids.shape[1]
        x = self.embedding(ids)
        for block in self.blocks:
            if inputs is not None:
                inputs.append(x)
            x = block(x, self.cos[:time], self.sin[:time])
        states: Tensor = self.norm(x)
        return states

    def looks(self, inputs: list[Tensor], places: Tensor) -> list[Tensor]:
        """Where the heads that copy look, one in each of the last two blocks: [batch, places, time] of logarithms."""
        time = inputs[0].shape[1]
        heads = (self.shape.heads // 2, self.shape.heads - 1)
        found: list[Tensor] = []
        for block, x, head in zip(self.blocks[-2:], inputs[-2:], heads, strict=False):
            assert isinstance(block, Block)
            found.append(block.looks(x, self.cos[:time], self.sin[:time], head, places))
        return found

    def logits(self, states: Tensor) -> Tensor:
        """Hidden states [..., width] to logits [..., vocabulary]."""
        return functional.linear(states, self.embedding.weight)

    def matrices(self) -> list[nn.Parameter]:
        """The weights inside of the blocks: the optimiser for matrices takes these."""
        return [p for name, p in self.named_parameters() if p.dim() == 2 and not name.startswith("embedding")]

    def others(self) -> list[nn.Parameter]:
        """The embedding and the norms."""
        return [p for name, p in self.named_parameters() if p.dim() != 2 or name.startswith("embedding")]


def _rotary(shape: Shape) -> tuple[Tensor, Tensor]:
    inverse = 1.0 / (shape.theta ** (torch.arange(0, shape.head_width, 2).float() / shape.head_width))
    angles = torch.outer(torch.arange(shape.context).float(), inverse)
    both = torch.cat([angles, angles], -1)
    return both.cos(), both.sin()


def _placed(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turned by the position."""
    return x * cos + _turned(x) * sin


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)
