"""A vocabulary of the 256 bytes and a few control and marker entries, and the chat template that goes with it."""

import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import llguidance

_BYTES = 256
_CONTROL = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Text of the entries that open and close calls and reasoning."""

SPECIALS: Mapping[str, int] = MappingProxyType({text: _BYTES + i for i, text in enumerate(_CONTROL + MARKERS)})
"""Text and id of every entry that is not a byte."""

END = SPECIALS["<|end|>"]
ASSISTANT = SPECIALS["<|assistant|>"]
ROLES = frozenset(SPECIALS[f"<|{role}|>"] for role in ("tools", "system", "user", "assistant", "tool"))

TEMPLATE = """\
{%- if tools -%}
<|tools|>{{ 'Called as <tool_call>\\n{"name": ..., "arguments": {...}}\\n</tool_call>:\\n' }}
{%- for tool in tools -%}{{ (tool | tojson) + '\\n' }}{%- endfor -%}
<|end|>
{%- endif -%}
{%- for message in messages -%}
<|{{ message.role }}|>
{%- if message.reasoning_content -%}<think>{{ message.reasoning_content }}</think>{%- endif -%}
{{- message.content or '' -}}
{%- for call in message.tool_calls or [] -%}
<tool_call>{{ '\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else (call.function.arguments | tojson) -}}
{{ '}\\n' }}</tool_call>
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""
"""Append-only: what it wrote for a conversation is a prefix of what it writes for a longer one."""

SWITCHED_TEMPLATE = TEMPLATE.replace(
    "{%- if tools -%}",
    "{%- if reasoning_effort -%}<|tools|>Reasoning: {{ reasoning_effort }}<|end|>{%- endif -%}{%- if tools -%}",
    1,
).replace(
    "<|assistant|>{%- endif -%}",
    "<|assistant|>{%- if enable_thinking is false -%}<think></think>{%- endif -%}{%- endif -%}",
)
"""The same with the switches of well-known families: one shows in the beginning, one in what opens a turn."""

_SPECIAL = re.compile("(" + "|".join(re.escape(text) for text in SPECIALS) + ")")
PIECES = (*(bytes([byte]) for byte in range(_BYTES)), *(text.encode() for text in SPECIALS))
"""The bytes of every entry."""


class ScriptedTokenizer:
    """The vocabulary. Every token below 256 is the byte of its number."""

    def __init__(self) -> None:
        self._building = threading.Lock()

    @property
    def vocabulary(self) -> int:
        """How many entries there are."""
        return len(PIECES)

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The one end of a turn."""
        return frozenset({END})

    @property
    def control_tokens(self) -> frozenset[int]:
        """The roles and the end of a turn."""
        return frozenset(SPECIALS[text] for text in _CONTROL)

    @property
    def user_defined(self) -> Mapping[str, int]:
        """The markers of calls and reasoning."""
        return MappingProxyType({text: SPECIALS[text] for text in MARKERS})

    @property
    def bos(self) -> int | None:
        """None: a conversation begins with a role."""
        return None

    @property
    def text_bos(self) -> int | None:
        """None: a text begins with its first byte."""
        return None

    @property
    def special_texts(self) -> Mapping[str, str]:
        """The end of a turn."""
        return MappingProxyType({"eos_token": "<|end|>"})

    def template_tokens(self, text: str) -> list[int]:
        """Tokenise template text: control and marker entries are recognised."""
        tokens: list[int] = []
        for part in _SPECIAL.split(text):
            tokens += [SPECIALS[part]] if part in SPECIALS else self.plain_tokens(part)
        return tokens

    def plain_tokens(self, text: str) -> list[int]:
        """Give the bytes of a text; lone surrogates, which have none, become question marks."""
        return list(text.encode(errors="replace"))

    def piece(self, token: int) -> bytes:
        """Give the bytes of an entry, control entries as their text."""
        return PIECES[token]

    def grammar_tokenizer(self) -> Any:
        """Give the llguidance.LLTokenizer of this vocabulary; built at the first call and kept."""
        with self._building:
            return self._grammar_tokenizer

    @cached_property
    def _grammar_tokenizer(self) -> Any:
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), eos_token=[END])


class _Bytes:
    """The vocabulary as llguidance asks for it."""

    eos_token_id = END
    bos_token_id: int | None = None
    tokens: Sequence[bytes] = PIECES
    special_token_ids = tuple(SPECIALS.values())

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
