"""Folders of tiny random MLX models over the vocabulary of the scripted pipeline: one for each kind of cache."""

import json
import math
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

from tenuto.pipelines.scripted import ScriptedTokenizer

VOCABULARY = ScriptedTokenizer().vocabulary
WINDOW = 48

_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "eos_token_id": 261,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "sliding": {
        **_LLAMA,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "sliding_window": WINDOW,
    },
    "hybrid": {
        "model_type": "lfm2",
        "architectures": ["Lfm2ForCausalLM"],
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "norm_eps": 1e-5,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 96,
        "block_multiple_of": 32,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv"],
        "eos_token_id": 261,
    },
}
"""Full attention, a window beside full attention, and a running state beside full attention."""


def write_model(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """Write a folder that mlx-lm loads. The same kind has the same weights each time."""
    config = {**CONFIGS[kind], **changes}
    network_class, arguments_class = _get_classes(config)
    network = network_class(arguments_class.from_dict(config))
    key = mx.random.key(7)
    weights = {}
    for name, value in tree_flatten(network.parameters()):
        key, own = mx.random.split(key)
        weights[name] = value if "norm" in name else mx.random.normal(value.shape, key=own) * _spread(name, value)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    return folder


def _spread(name: str, value: mx.array) -> float:
    """Wide enough that a random model neither repeats one token nor takes many for equally likely."""
    if "embed" in name:
        return 1.0
    gain = 3.0 if "lm_head" in name or "out_proj" in name or "w2" in name else 1.0
    width: int = value.shape[-1]
    return gain / math.sqrt(width)
