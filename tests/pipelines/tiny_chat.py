"""GGUF files of tiny models that chat: a family's template and special tokens, with random weights."""

from pathlib import Path

import numpy as np
from gguf import TokenType

from tenuto.pipelines.base import Pipeline
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.formats import FORMATS
from tenuto.pipelines.llama_cpp import LlamaBackend, LlamaSettings, LlamaTokenizer, Model
from tests.pipelines.families import CHATML
from tests.pipelines.formats.vocabularies import markers_of
from tests.pipelines.held import CELLS, SLOTS
from tests.pipelines.special_tokens import Specials
from tests.pipelines.tiny_gguf import HEADS, INNER, LAYERS, WIDTH, begun, byte_symbols, ended

CONTEXT = 4096
_LIKELY = b'"}]>,\n'
_LIKELIER, _STEADY = 0.5, 12.0


CALLING = sorted(set(FORMATS) - {"plain"})
"""The formats that have calls."""


def load_tiny(path: Path, name: str) -> Pipeline:
    """A model whose vocabulary has the markers of a format and speaks it. Its file is ours: nothing tries it first."""
    specials = Specials(("<|im_start|>",), tuple(markers_of(name)), ("<|im_end|>",))
    model = Model(tiny_chat(path, CHATML, specials))
    codec = TemplateCodec(name, LlamaTokenizer(model), CHATML, name)
    return Pipeline(codec, LlamaBackend(model, LlamaSettings(slots=SLOTS, cells=CELLS, threads=1, batch_tokens=512)))


def tiny_chat(path: Path, template: str, specials: Specials) -> Path:
    """A Llama of one token a byte, to which what closes a text is likelier than what goes on with it.

    Sampled at temperature 1 it says anything a grammar allows, in strings of a few characters.
    """
    tokens = [*byte_symbols(), *specials.all]
    writer, weight = begun(path, "llama", len(tokens), CONTEXT)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges(["a b", "c d"])
    marked = set(specials.markers)
    kinds = [TokenType.USER_DEFINED if text in marked else TokenType.CONTROL for text in specials.all]
    writer.add_token_types([TokenType.NORMAL] * 256 + kinds)
    keys = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    for add, end in zip(keys, specials.ends, strict=False):
        add(tokens.index(end))
    if specials.bos:
        writer.add_bos_token_id(tokens.index(specials.bos))
    writer.add_add_bos_token(bool(specials.bos))
    writer.add_chat_template(template)
    # One number of the embedding is the same for every token, and so much larger than the others that no layer changes
    # it: what the output layer makes of it is a bias.
    random = np.random.default_rng(1)
    embedding, output = (random.standard_normal((len(tokens), WIDTH), dtype=np.float32) for _ in range(2))
    likely = [token for token in range(len(tokens)) if token >= 256 or token in _LIKELY]
    embedding[:, 0] = _STEADY
    output /= np.sqrt(np.float32(WIDTH))
    output[:, 0] = 0.0
    output[likely, 0] = _LIKELIER
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output.weight", output)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weight(f"blk.{layer}.{part}.weight", WIDTH, WIDTH, scale=0.5)
        weight(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        weight(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        for kind in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{kind}.weight", np.ones(WIDTH, np.float32))
    return ended(writer, path)
