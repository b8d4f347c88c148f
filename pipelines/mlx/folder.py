"""What lies beside the weights in a model's folder: its settings, its chat template, its end tokens. No tokenising."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.sessions.items import JsonObject

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")
_OTHER_NAMES = ("cls_token", "mask_token")
_OTHER_LISTS = ("additional_special_tokens", "extra_special_tokens")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The settings files of a folder; those that are not there are empty."""

    path: Path
    config: JsonObject
    generation: JsonObject
    tokenizer: JsonObject
    """tokenizer_config.json over special_tokens_map.json."""

    @property
    def special_texts(self) -> Mapping[str, str]:
        """What templates expect: `bos_token`, `eos_token` and so on, as text, those that the folder names."""
        texts = ((name, _text_of(self.tokenizer.get(name))) for name in SPECIAL_NAMES)
        return {name: text for name, text in texts if text}

    @property
    def special_entries(self) -> frozenset[str]:
        """The texts of all entries that the folder names as special."""
        named = [self.tokenizer.get(name) for name in (*SPECIAL_NAMES, *_OTHER_NAMES)]
        for name in _OTHER_LISTS:
            more = self.tokenizer.get(name) or []
            named += more.values() if isinstance(more, dict) else more if isinstance(more, list) else []
        return frozenset(text for text in map(_text_of, named) if text)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a generation by the model's own settings: one or several, in any of its files."""
        inner = self.config.get("text_config")
        sources = (self.config, inner if isinstance(inner, dict) else {}, self.generation)
        return frozenset(token for source in sources for token in _ids_of(source.get("eos_token_id")))

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """How generation_config.json advises to choose tokens."""
        return SamplingDefaults.advised(self.generation)

    def chat_template(self) -> str | None:
        """The chat template, or None where there is none.

        Raises:
            ModelLoadFailed: a file that should have it cannot be read.
        """
        alone, beside = self.path / "chat_template.jinja", self.path / "additional_chat_templates" / "tool_use.jinja"
        if alone.exists():
            return _joined(_read(alone), _read(beside)) if beside.exists() else _read(alone)
        for settings in (_json(self.path / "chat_template.json"), self.tokenizer):
            template = _template_of(settings.get("chat_template"))
            if template is not None:
                return template
        return None


def read_folder(path: Path) -> ModelFolder:
    """Read the settings files of a model's folder.

    Raises:
        ModelLoadFailed: one of them is broken.
    """
    named, settings = _json(path / "special_tokens_map.json"), _json(path / "tokenizer_config.json")
    return ModelFolder(
        path=path,
        config=_json(path / "config.json"),
        generation=_json(path / "generation_config.json"),
        tokenizer=named | {key: value for key, value in settings.items() if value is not None},
    )


def require_tokenizer(path: Path) -> None:
    """See that the folder has a tokenizer.json.

    Raises:
        ModelLoadFailed: it has none.
    """
    if not (path / "tokenizer.json").exists():
        others = [name for name in ("tokenizer.model", "tiktoken.model", "tekken.json") if (path / name).exists()]
        beside = f", only {others[0]}, which is not read" if others else ""
        raise ModelLoadFailed(f"{path} has no tokenizer.json{beside}; convert the model with a fast tokenizer")


def read_tokenizer(path: Path) -> JsonObject:
    """Read the folder's tokenizer.json.

    Raises:
        ModelLoadFailed: there is none, or it is broken.
    """
    place = path / "tokenizer.json"
    require_tokenizer(path)
    tokenizer = _json(place)
    if not isinstance(tokenizer.get("model"), dict) or not isinstance(tokenizer.get("added_tokens", []), list):
        raise ModelLoadFailed(f"{place} is not a tokenizer")
    return tokenizer


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelLoadFailed(f"{path} cannot be read: {error}") from error


def _json(path: Path) -> JsonObject:
    if not path.exists():
        return {}
    try:
        value = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise ModelLoadFailed(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadFailed(f"{path} is not a JSON object")
    return value


def _text_of(token: Any) -> str | None:
    """The text of a token, which some files write as an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _ids_of(ids: Any) -> Iterator[int]:
    for token in ids if isinstance(ids, list) else [ids]:
        if isinstance(token, int) and not isinstance(token, bool):
            yield token


def _template_of(value: Any) -> str | None:
    """One template of what a file has: a text, or several by name."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    named = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
    plain, tools = (_text_of(named.get(name)) for name in ("default", "tool_use"))
    if plain and tools:
        return _joined(plain, tools)
    return plain or tools or next(filter(None, map(_text_of, named.values())), None)


def _joined(plain: str, tools: str) -> str:
    """One template of two, so that a conversation without tools is rendered as the model knows it.

    The plus signs keep the white space of the parts; a last line break is none of a template's text.
    """
    return f"{{% if tools +%}}{_one_break_less(tools)}{{%+ else +%}}{_one_break_less(plain)}{{%+ endif %}}"


def _one_break_less(template: str) -> str:
    return re.sub(r"\r?\n\Z", "", template)
