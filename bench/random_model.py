"""Write a Llama model with random weights in Q8_0: of a real size, made in seconds, the same at every run.

Speed does not depend on the weights' values, so it serves every speed comparison. `SHAPES` are those of real models,
with their own number of heads, width of the inner layers, and vocabulary. Usage:
    python bench/random_model.py [--shape 125m|135m|0.5b] [--seed 0] [OUT.gguf]
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from numpy.typing import NDArray

OUT = Path(__file__).parent / "out"
SPECIALS = ("<|pad|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>")
HEAD = 64
LONGEST = 12
CONTEXT = 32_768


@dataclass(frozen=True)
class Shape:
    """How large the parts of a Llama are. Those that are None follow from the width."""

    layers: int
    width: int
    vocabulary: int
    groups: int | None = None
    inner: int | None = None
    is_tied: bool = False
    """Whether tokens are read from the same weights as they are written with."""


SHAPES = {
    "125m": Shape(12, 768, 32_000),
    "135m": Shape(30, 576, 49_152, groups=3, inner=1536, is_tied=True),
    "0.5b": Shape(24, 896, 151_936, groups=2, inner=4864, is_tied=True),
}
"""A plain one, SmolLM2's, and Qwen2.5's."""
TEMPLATE = """\
{%- if tools -%}<|im_start|>system
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools><|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.role == 'tool' %}<tool_response>
{{ message.content }}
</tool_response>{% else %}{{ message.content or '' }}{% endif -%}
{%- for call in message.tool_calls or [] -%}
{{ '' if loop.first and not message.content else '\\n' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def vocabulary(size: int, random: np.random.Generator) -> tuple[list[str], list[str]]:
    """Make tokens and the merges that build them, each from two tokens made before."""
    tokens, merges = byte_symbols(), list[str]()
    known = set(tokens)
    letters = [tokens[ord(letter)] for letter in " etaoinshrdlcumwfgypbvk"]
    short = list(letters)  # what may become part of a longer one
    while len(tokens) < size:
        for first, second in random.integers(len(short), size=(len(short), 2)).tolist():
            left, right = short[first], short[second]
            # A space only begins a token, as the pre-tokeniser cuts text there.
            if left + right in known or letters[0] in right or len(left + right) > LONGEST or len(tokens) == size:
                continue
            known.add(left + right)
            tokens.append(left + right)
            merges.append(f"{left} {right}")
            if len(left + right) <= LONGEST // 2:
                short.append(left + right)
    return tokens, merges


def write(path: Path, shape: Shape, *, context: int = CONTEXT, seed: int = 0) -> int:
    """Write the file and give the number of its parameters."""
    random = np.random.default_rng(seed)
    width, heads = shape.width, shape.width // HEAD
    groups, inner = shape.groups or max(1, heads // 3), shape.inner or width * 8 // 3 // 256 * 256
    named = (*SPECIALS, *MARKERS)
    tokens, merges = vocabulary(shape.vocabulary - len(named), random)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds += [gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.USER_DEFINED] * len(MARKERS)
    tokens += named

    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types(kinds)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|pad|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    parameters = 0

    def weight(name: str, *shape: int) -> None:
        nonlocal parameters
        values: NDArray[np.float32] = random.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[-1])
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", quantize(values.astype(np.float32), kind), raw_dtype=kind)
        parameters += values.size

    weight("token_embd", len(tokens), width)
    if not shape.is_tied:
        weight("output", len(tokens), width)
    writer.add_tensor("output_norm.weight", np.ones(width, dtype=np.float32))
    for layer in range(shape.layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(width, dtype=np.float32))
        weight(f"blk.{layer}.attn_q", width, width)
        weight(f"blk.{layer}.attn_k", groups * HEAD, width)
        weight(f"blk.{layer}.attn_v", groups * HEAD, width)
        weight(f"blk.{layer}.attn_output", width, width)
        weight(f"blk.{layer}.ffn_gate", inner, width)
        weight(f"blk.{layer}.ffn_up", inner, width)
        weight(f"blk.{layer}.ffn_down", width, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return parameters


def random_model(shape: str = "125m") -> Path:
    """Give the file of a shape's model, made now if it is not there."""
    path = OUT / f"random-{shape}-q8_0.gguf"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        write(unfinished, SHAPES[shape])
        unfinished.rename(path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--shape", choices=SHAPES, default="125m")
    parser.add_argument("--context", type=int, default=CONTEXT)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    path = given.out or OUT / f"random-{given.shape}-q8_0.gguf"
    parameters = write(path, SHAPES[given.shape], context=given.context, seed=given.seed)
    print(f"{path}: {parameters / 1e6:.1f} M parameters, {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
