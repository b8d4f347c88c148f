"""What Ollama's requests for answers do with each field: serve, ignore or refuse it. docs/ollama.md shows these.

A field is refused where leaving it out of account would give another answer than was asked for.
"""

from typing import Any

from tenuto.runtime.dialects.ollama.wire import MOST_INPUTS, MOST_STOPS, MOST_TOP_LOGPROBS
from tenuto.runtime.dialects.refusals import Refusal

_MODEL = "a name from `/api/tags`, with or without a tag `:latest`; if absent or `default`, the first model"
_BOTH = {
    "model": _MODEL,
    "stream": "true if absent: a line of JSON for each piece; `false`: one JSON object",
    "format": "`json` or a JSON schema; enforced by a grammar while the model writes",
    "options": "see below",
    "think": "false: the model does not reason, where its chat template has a switch for it, and none of it is shown;"
    " a level is true, and for templates that look at it",
    "logprobs": "from the model's own distribution, before penalties and temperature",
    "top_logprobs": f"0 to {MOST_TOP_LOGPROBS}, with `logprobs`",
    "keep_alive": "how long the model stays loaded without use; of an admin, and not for models loaded at the start",
}

CHAT_SERVED: dict[str, str] = {
    **_BOTH,
    "messages": "roles `system`, `developer`, `user`, `assistant`, `tool`; if empty, the answer says that it is loaded",
    "tools": "`function`: run by the client; other types are left out; an empty list is the same as none",
}
GENERATE_SERVED: dict[str, str] = {
    **_BOTH,
    "prompt": "what the user says; if empty, the answer says that the model is loaded",
    "suffix": "what follows the answer, which then fills the gap; for models whose vocabulary has tokens for that",
    "system": "instructions before it",
    "images": "in base64, as in messages",
    "raw": "true: the model goes on from the prompt itself, without its template and without a session",
}

EMBED_SERVED: dict[str, str] = {
    "model": "a model that embeds; if absent or `default`, the first of these",
    "input": f"a text, or a list of up to {MOST_INPUTS}; if empty, there are no embeddings",
    "truncate": "true if absent: of a text that is too long its beginning is read; false: it is an error that names it",
    "dimensions": "the first so many numbers of each embedding, with length 1 again; 0: all",
}

_EVERYWHERE = {
    "truncate": "a prompt that is too long is an error with both sizes",
    "shift": "an answer ends where the context does",
}
EMBED_IGNORED: dict[str, str] = {
    "keep_alive": "that of chats and prompts counts",
    "options": "the model is loaded already, and nothing is chosen",
}
CHAT_IGNORED: dict[str, str] = {**_EVERYWHERE}
GENERATE_IGNORED: dict[str, str] = {**_EVERYWHERE}

OPTIONS_SERVED: dict[str, str] = {
    "num_predict": "limits the answer, all its rounds together; below 1: the server's own limit",
    "temperature": "if absent, a default that suits the model",
    "top_k": "0 or less turns it off",
    "top_p": "1 or more turns it off",
    "min_p": "up to 1",
    "seed": "the same seed and the same request give the same answer; below 0: another one each time",
    "stop": f"a list of up to {MOST_STOPS}, or a string",
    "repeat_penalty": "up to 10, over the last 64 tokens; 0 or 1 turns it off",
    "presence_penalty": "-2 to 2",
    "frequency_penalty": "-2 to 2",
}
OPTIONS_IGNORED: dict[str, str] = {
    "num_ctx": "the server has set the context when it started; `/api/show` says how long it is",
    "num_keep": "nothing is shifted out of the context",
    **dict.fromkeys(
        (
            *("num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa", "low_vram", "f16_kv"),
            *("vocab_only", "logits_all", "embedding_only", "draft_num_predict"),
        ),
        "the model is loaded already",
    ),
    "mirostat_tau": "a part of `mirostat`",
    "mirostat_eta": "a part of `mirostat`",
    "penalize_newline": "line breaks are tokens like others",
}


def _given(value: Any) -> bool:
    return value not in (None, "", [], {})


def _shapes(value: float | None) -> bool:
    return value not in (None, 0, 1)


def _not_last_64(value: int | None) -> bool:
    return value not in (None, 64)


OPTIONS_LEFT_OUT: dict[str, Refusal] = {
    "typical_p": Refusal(_shapes, "there is no such way to choose tokens here"),
    "tfs_z": Refusal(_shapes, "there is no such way to choose tokens here"),
    "mirostat": Refusal(bool, "there is no such way to choose tokens here"),
    "repeat_last_n": Refusal(_not_last_64, "the repetition penalty looks at the last 64 tokens"),
}
"""Options that would change the answer, and without which clients can do: the answer's diagnostics tell of them."""

CHAT_REFUSED: dict[str, Refusal] = {}
GENERATE_REFUSED: dict[str, Refusal] = {
    "context": Refusal(
        _given, "answers bring none; send the conversation to /api/chat, or name a session in the header"
    ),
    "template": Refusal(_given, "the model's own template is used; with `raw` there is none"),
}
