"""The special tokens of well-known families, as their tokenisers have them, by the names of their chat templates."""

from typing import NamedTuple


class Specials(NamedTuple):
    """What a family's vocabulary has beside ordinary text."""

    control: tuple[str, ...]
    """Entries that a tokeniser calls special: they give no text."""
    markers: tuple[str, ...] = ()
    """Entries that it calls added: user-defined ones."""
    ends: tuple[str, ...] = ()
    """Those that end a turn, the end of sequence first."""
    bos: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """Each entry once: control entries, then markers."""
        return tuple(dict.fromkeys((*self.control, *self.ends, *((self.bos,) if self.bos else ()), *self.markers)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(names: str) -> tuple[str, ...]:
    """`tool_call` is the pair `<tool_call>` and `</tool_call>`."""
    return tuple(tag for name in names.split() for tag in (f"<{name}>", f"</{name}>"))


_CHATML = Specials(_words("<|im_start|> <|endoftext|>"), _pairs("tool_call tool_response think"), ("<|im_end|>",))
_CHATML_HERMES = Specials(_CHATML.control, _pairs("tool_call"), ("<|im_end|>", "<|endoftext|>"))
_LLAMA_3 = Specials(
    _words("<|start_header_id|> <|end_header_id|> <|python_tag|> <|end_of_text|>"),
    ends=("<|eot_id|>", "<|eom_id|>"),
    bos="<|begin_of_text|>",
)
_MISTRAL = Specials(
    _words("[INST] [/INST] [TOOL_CALLS] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS]"),
    ends=("</s>",),
    bos="<s>",
)
_MISTRAL_3 = _MISTRAL._replace(
    control=(
        *_MISTRAL.control,
        *_words("[SYSTEM_PROMPT] [/SYSTEM_PROMPT] [ARGS] [CALL_ID] [TOOL_CONTENT] [IMG] [THINK] [/THINK]"),
    )
)
_DEEPSEEK = Specials(
    _words("<｜User｜> <｜Assistant｜>"),
    (
        *(f"<｜tool▁{what}▁{side}｜>" for what in ("calls", "call", "outputs", "output") for side in ("begin", "end")),
        "<｜tool▁sep｜>",
        *_pairs("think"),
    ),
    ("<｜end▁of▁sentence｜>",),
    "<｜begin▁of▁sentence｜>",
)
_COMMAND_R = Specials(
    _words(
        "<|START_OF_TURN_TOKEN|> <|SYSTEM_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|START_THINKING|> <|END_THINKING|> "
        "<|START_ACTION|> <|END_ACTION|> <|START_RESPONSE|> <|END_RESPONSE|> <|START_TEXT|> <|END_TEXT|> "
        "<|START_TOOL_RESULT|> <|END_TOOL_RESULT|>"
    ),
    ends=("<|END_OF_TURN_TOKEN|>",),
    bos="<BOS_TOKEN>",
)
_GLM = Specials(
    _words("[gMASK] <sop> <|system|> <|assistant|>"),
    _pairs("think tool_call tool_response arg_key arg_value"),
    _words("<|endoftext|> <|user|> <|observation|>"),
)
_GRANITE = Specials(_words("<|start_of_role|> <|end_of_role|> <|tool_call|>"), ends=("<|end_of_text|>",))
_KIMI = Specials(
    _words("[BOS] [EOS] <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|>"),
    (
        *_words(
            "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_argument_begin|> "
            "<|tool_call_end|>"
        ),
        *_pairs("think"),
    ),
    ("<|im_end|>",),
)
_GEMMA_4 = Specials(
    _words("<|turn> <|tool> <tool|> <|image> <|audio>"),
    _words('<|channel> <channel|> <|tool_call> <tool_call|> <|tool_response> <tool_response|> <|think|> <|"|>'),
    ("<turn|>",),
    "<bos>",
)
_LFM2 = Specials(
    _words("<|im_start|> <|tool_list_start|> <|tool_list_end|> <|tool_response_start|> <|tool_response_end|>"),
    (*_words("<|tool_call_start|> <|tool_call_end|>"), *_pairs("think")),
    ("<|im_end|>",),
    "<|startoftext|>",
)
_LAGUNA = Specials(
    _words("<assistant>"), _pairs("system user think tool_call tool_response arg_key arg_value"), ("</assistant>",)
)

_HUNYUAN = (
    *_pairs("think tool_calls tool_call arg_key arg_value tool_responses tool_response"),
    "<tool_sep>",
)

SPECIALS: dict[str, Specials] = {
    "Apertus-8B-Instruct": Specials(
        _words(
            "<|system_start|> <|system_end|> <|developer_start|> <|developer_end|> <|user_start|> <|user_end|> "
            "<|assistant_start|> <|inner_prefix|> <|inner_suffix|> <|tools_prefix|> <|tools_suffix|>"
        ),
        ends=("<|assistant_end|>",),
        bos="<s>",
    ),
    "Apriel-1.6-15b-Thinker-fixed": Specials(
        _words("<|begin_system|> <|begin_user|> <|begin_assistant|> <|begin_tool_result|> <|begin_content|>"),
        ("<tool_calls>", "</tool_calls>", "[BEGIN FINAL RESPONSE]"),
        ("<|end|>",),
    ),
    "Bielik-11B-v3.0-Instruct": Specials(
        _words("<|im_start|> <|function_list|> <|function_output|>"),
        _pairs("think tool_call"),
        ("<|im_end|>",),
        "<s>",
    ),
    "ByteDance-Seed-OSS": Specials(
        _words("<seed:pad>"),
        _pairs("seed:think seed:tool_call seed:cot_budget_reflect"),
        ("<seed:eos>",),
        "<seed:bos>",
    ),
    "Cohere2MoE": _COMMAND_R,
    "CohereForAI-c4ai-command-r-plus-tool_use": _COMMAND_R,
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": _COMMAND_R,
    "GLM-4.6": _GLM,
    "GLM-4.7-Flash": _GLM,
    "GigaChat3-10B-A1.8B": Specials(_words("<|role_sep|> <|message_sep|>"), ends=("</s>",), bos="<s>"),
    "GigaChat3.1-10B-A1.8B": Specials(_words("<|role_sep|> <|function_call|>"), ends=("<|message_sep|>",), bos="<s>"),
    "HuggingFaceTB-SmolLM3-3B": _CHATML,
    "Kimi-K2-Instruct": _KIMI,
    "Kimi-K2-Thinking": _KIMI,
    "Kimi-K3": Specials((), _words("<|open|> <|close|> <|sep|>"), ("<|end_of_msg|>",), "[BOS]"),
    "LFM2-8B-A1B": _LFM2,
    "LFM2.5-8B-A1B": _LFM2,
    "LFM2.5-Instruct": _LFM2,
    "MiMo-VL": _CHATML_HERMES,
    "MiniMax-M1": Specials(
        _words("<beginning_of_sentence>"), _pairs("tool_calls think"), ("<end_of_sentence>",), "<begin_of_document>"
    ),
    "MiniMax-M2": Specials(_words("]~b]"), _pairs("minimax:tool_call think"), ("[e~[",), "]~!b["),
    "MiniMax-M3": Specials(_words("]~b]"), (*_pairs("mm:think tool_call"), "]<]minimax[>["), ("[e~[",), "]~!b["),
    "Mistral-Small-3.2-24B-Instruct-2506": _MISTRAL_3,
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": Specials(
        _words("<|im_start|>"), _pairs("tool_call tool_response think"), ("<|im_end|>",), "<s>"
    ),
    "NVIDIA-Nemotron-Nano-v2": Specials(
        _words("<SPECIAL_10> <SPECIAL_11>"),
        _pairs("think TOOLCALL TOOL_RESPONSE AVAILABLE_TOOLS"),
        ("<SPECIAL_12>",),
        "<s>",
    ),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": _CHATML_HERMES._replace(bos="<|begin_of_text|>"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": _CHATML_HERMES._replace(bos="<|begin_of_text|>"),
    "Qwen-QwQ-32B": _CHATML,
    "Qwen-Qwen2.5-7B-Instruct": _CHATML_HERMES,
    "Qwen-Qwen3-0.6B": _CHATML,
    "Qwen3-Coder": _CHATML,
    "Qwen3.5-4B": _CHATML,
    "Reka-Edge": Specials((), _pairs("think tool_call tool_response"), ("<sep>",)),
    "Spark2.5": Specials(
        _words("<|System|> <|User|> <|Bot|> <|Tool|>"),
        _pairs("think tool_call tool_response arg_key arg_value"),
        ("<｜end▁of▁sentence｜>",),
        "<｜start▁of▁sentence｜>",
    ),
    "StepFun3.5-Flash": _CHATML,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": _DEEPSEEK,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": _DEEPSEEK,
    "deepseek-ai-DeepSeek-V3.1": _DEEPSEEK,
    "deepseek-ai-DeepSeek-V3.2": _DEEPSEEK._replace(markers=(*_pairs("think"), "｜DSML｜")),
    "deepseek-ai-DeepSeek-V4": _DEEPSEEK._replace(markers=(*_pairs("think"), "｜DSML｜")),
    "deepseek-ai-DeepSeek-V4-Flash-0731": _DEEPSEEK._replace(markers=(*_pairs("think"), "｜DSML｜")),
    "fireworks-ai-llama-3-firefunction-v2": _LLAMA_3,
    "google-gemma-2-2b-it": Specials(_words("<start_of_turn>"), ends=_words("<eos> <end_of_turn>"), bos="<bos>"),
    "google-gemma-4-31B-it": _GEMMA_4,
    "google-gemma-4-31B-it-interleaved": _GEMMA_4,
    "ibm-granite-granite-3.3-2B-Instruct": _GRANITE,
    "ibm-granite-granite-4.0": _GRANITE._replace(markers=_pairs("tool_call tool_response think")),
    "ibm-granite-granite-4.1": _GRANITE._replace(markers=_pairs("tool_call tool_response think")),
    "inclusionai-ling-3.0-flash": Specials(
        (), _pairs("role think tool_call tool_response arg_key arg_value"), ("<|role_end|>",)
    ),
    "llama-cpp-deepseek-r1": _DEEPSEEK,
    "meetkai-functionary-medium-v3.1": _LLAMA_3,
    "meetkai-functionary-medium-v3.2": _LLAMA_3,
    "meta-llama-Llama-3.1-8B-Instruct": _LLAMA_3,
    "meta-llama-Llama-3.2-3B-Instruct": _LLAMA_3,
    "meta-llama-Llama-3.3-70B-Instruct": _LLAMA_3,
    "microsoft-Phi-3.5-mini-instruct": Specials(
        _words("<|system|> <|user|> <|assistant|>"), ends=_words("<|endoftext|> <|end|>"), bos="<s>"
    ),
    "mistralai-Ministral-3-14B-Reasoning-2512": _MISTRAL_3,
    "mistralai-Mistral-Nemo-Instruct-2407": _MISTRAL,
    "moonshotai-Kimi-K2": _KIMI,
    "muse-glimmer": Specials(_words("<|start|> <|message|> <|eom|>"), (), _words("<|eot|>")),
    "openai-gpt-oss-120b": Specials(
        _words("<|startoftext|> <|endoftext|> <|start|> <|end|> <|message|> <|channel|> <|constrain|>"),
        ends=_words("<|return|> <|call|>"),
    ),
    "openbmb-MiniCPM5-1B": Specials(
        _words("<|im_start|>"), _pairs("think tool_response") + _words("<tool_sep> <tool_def_sep>"), ("<|im_end|>",)
    ),
    "poolside-Laguna-S-2.1": _LAGUNA,
    "poolside-Laguna-XS-2.1": _LAGUNA,
    "poolside-Laguna-XS.2": _LAGUNA,
    "tencent-Hy3": Specials(
        tuple(f"<｜{name}:opensource｜>" for name in _words("hy_User hy_Assistant hy_pad reasoning_mode")),
        tuple(tag.replace(">", ":opensource>") for tag in _HUNYUAN),
        ("<｜hy_eos:opensource｜>",),
        "<｜hy_begin_of_sentence:opensource｜>",
    ),
    "unsloth-Apriel-1.5": Specials(
        _words("<|system|> <|user|> <|assistant|> <|tool_result|> <|content|>"),
        _pairs("thinking tool_calls"),
        ("<|end|>",),
    ),
    "unsloth-mistral-Devstral-Small-2507": _MISTRAL_3,
    "upstage-Solar-Open-100B": Specials(
        _words("<|begin|> <|end|> <|content|> <|think|> <|tool_response|>"),
        _words(
            "<|tool_calls|> <|tool_call:begin|> <|tool_call:name|> <|tool_call:args|> <|tool_call:end|> "
            "<|tool_response:begin|> <|tool_response:end|>"
        ),
        _words("<|flush|> <|calls|>"),
    ),
}
