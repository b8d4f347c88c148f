"""GGUF files of models that read images, with random weights: a text model and its projector, under a megabyte each.

`square`: every image is one square that attends both ways (Gemma 3's projector). `tiles`: an image is cut into tiles
with tokens between them (SmolVLM's). `grid`: an image's patches have places in two dimensions (Qwen2-VL's).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from gguf import GGUFWriter, TokenType

Kind = Literal["square", "tiles", "grid"]
KINDS: tuple[Kind, ...] = ("square", "tiles", "grid")

CONTEXT, WIDTH, LAYERS, HEADS, INNER = 2048, 64, 2, 4, 128
SIDE, PATCH, MERGE = 32, 4, 2
SPECIALS = (
    *("<|im_start|>", "<|im_end|>", "<start_of_image>", "<end_of_image>", "<|vision_start|>", "<|vision_end|>"),
    *("<fake_token_around_image>", "<global-img>", *(f"<row_{y}_col_{x}>" for y in range(1, 9) for x in range(1, 9))),
)
MARKERS = ("<tool_call>", "</tool_call>")
TEMPLATE = """\
{%- if tools -%}
{{ '<|im_start|>system\\n' }}{%- for tool in tools -%}{{ tool | tojson + '\\n' }}{%- endfor -%}{{ '<|im_end|>\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] -%}{%- set called = call.function -%}
{{ '<tool_call>\\n{"name": "' + called.name + '", "arguments": ' + called.arguments + '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

_PROJECTORS = {"square": "gemma3", "tiles": "idefics3", "grid": "qwen2vl_merger"}


@dataclass(frozen=True, slots=True)
class Files:
    """A text model and the projector that goes with it."""

    model: Path
    projector: Path


def tiny_vision(folder: Path, kind: Kind, seed: int = 0) -> Files:
    """Write both files. The projector lies beside its model, under a name by which it is found."""
    files = Files(folder / f"tiny-{kind}.gguf", folder / f"mmproj-tiny-{kind}.gguf")
    _write_text(files.model, kind, seed)
    _write_projector(files.projector, kind, seed)
    return files


def _write_text(path: Path, kind: Kind, seed: int) -> None:
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    letters = [chr(byte if byte in plain else next(spare)) for byte in range(256)]
    tokens = [*letters, "ĊĊ", *MARKERS, *SPECIALS]
    writer = GGUFWriter(path, "qwen2vl" if kind == "grid" else "llama")
    weight = _weights(writer, seed)
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    if kind == "grid":
        writer.add_rope_dimension_sections([2, 3, 3, 0])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["Ċ Ċ"])
    kinds = [TokenType.NORMAL] * (len(letters) + 1) + [TokenType.USER_DEFINED] * len(MARKERS)
    writer.add_token_types(kinds + [TokenType.CONTROL] * len(SPECIALS))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    weight("token_embd.weight", len(tokens), WIDTH, scale=4.0)
    weight("output.weight", len(tokens), WIDTH, scale=4.0)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}.weight", WIDTH, WIDTH, scale=2.0)
            if kind == "grid" and part != "attn_output":
                weight(f"blk.{layer}.{part}.bias", WIDTH)
        weight(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, np.float32))
    _end(writer)


def _write_projector(path: Path, kind: Kind, seed: int) -> None:
    width, inner, heads = 32, 64, 2
    writer = GGUFWriter(path, "clip")
    weight = _weights(writer, seed + 1)
    writer.add_name(path.stem)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", _PROJECTORS[kind])
    writer.add_bool("clip.use_gelu", True)
    for name, value in (
        ("image_size", SIDE),
        ("patch_size", PATCH),
        ("embedding_length", width),
        ("feed_forward_length", inner),
        ("block_count", 1),
        ("projection_dim", WIDTH),
        ("attention.head_count", heads),
        ("projector.scale_factor", MERGE),
        ("preproc_image_size", 2 * SIDE),
    ):
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5] * 3)
    patches = (SIDE // PATCH) ** 2
    weight("v.patch_embd.weight", width, 3, PATCH, PATCH)
    if kind == "grid":
        weight("v.patch_embd.weight.1", width, 3, PATCH, PATCH)
    else:
        weight("v.patch_embd.bias", width)
        weight("v.position_embd.weight", patches, width)
    _norm(writer, "v.post_ln", width)
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        weight(f"v.blk.0.{part}.weight", width, width)
        weight(f"v.blk.0.{part}.bias", width)
    for norm in ("ln1", "ln2"):
        _norm(writer, f"v.blk.0.{norm}", width)
    weight("v.blk.0.ffn_up.weight", inner, width)
    weight("v.blk.0.ffn_up.bias", inner)
    weight("v.blk.0.ffn_down.weight", width, inner)
    weight("v.blk.0.ffn_down.bias", width)
    match kind:
        case "square":
            weight("mm.input_projection.weight", width, WIDTH)
            writer.add_tensor("mm.soft_emb_norm.weight", np.ones(width, np.float32))
        case "tiles":
            weight("mm.model.fc.weight", WIDTH, width * MERGE**2)
        case "grid":
            weight("mm.0.weight", width * MERGE**2, width * MERGE**2)
            weight("mm.0.bias", width * MERGE**2)
            weight("mm.2.weight", WIDTH, width * MERGE**2)
            weight("mm.2.bias", WIDTH)
    _end(writer)


def _weights(writer: GGUFWriter, seed: int) -> Callable[..., None]:
    random = np.random.default_rng(seed)

    def weight(name: str, *shape: int, scale: float = 1.0) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, values * np.float32(scale / np.sqrt(shape[-1])))

    return weight


def _norm(writer: GGUFWriter, name: str, width: int) -> None:
    writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.add_tensor(f"{name}.bias", np.zeros(width, np.float32))


def _end(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
