"""A tokenizer.json made exact: whatever changes the text on its way to tokens is taken out of it. Plain data.

Hugging Face's tokenisers may put a space before a text, compose its characters, or take the white space beside a
special entry. Content's tokens have to give it back, and a text is tokenised in parts, so none of this may happen.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.mlx.folder import ModelFolder
from tenuto.sessions.items import JsonObject

SPACE = "▁"
"""What stands for a space in SentencePiece's vocabularies."""


def exact(tokenizer: JsonObject, folder: ModelFolder, vocabulary: int) -> JsonObject:
    """The same tokeniser for a model with so many rows of logits, adding nothing to a text and taking nothing from it.

    Raises:
        ModelLoadFailed: it has entries that the model has no row for.
    """
    entries = _entries(tokenizer["model"])
    if max(entries.values(), default=0) >= vocabulary:
        raise ModelLoadFailed(
            f"{folder.path}: tokenizer.json has {max(entries.values()) + 1} entries and the model only {vocabulary}; "
            "they belong to different models"
        )
    return {
        **tokenizer,
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "normalizer": _normalizer(tokenizer.get("normalizer")),
        "pre_tokenizer": _without_added_space(tokenizer.get("pre_tokenizer")),
        "model": {**tokenizer["model"], "dropout": None} if "dropout" in tokenizer["model"] else tokenizer["model"],
        "added_tokens": [token for token in _added(tokenizer, folder, entries) if token["id"] < vocabulary],
    }


def for_content(tokenizer: JsonObject) -> JsonObject:
    """The same, where no added entry takes the white space beside it, and no text is spelled with special entries."""
    added = [{**token, "lstrip": False, "rstrip": False} for token in tokenizer["added_tokens"]]
    model = tokenizer["model"]
    if model.get("type") == "Unigram":  # it takes any entry that fits, so those that are special get another name
        hidden = {token["id"] for token in added if token["special"] and token["id"] < len(model["vocab"])}
        entries = enumerate(model["vocab"])
        renamed = [[f"\uffff{index}\uffff" if index in hidden else text, score] for index, (text, score) in entries]
        added = [token for token in added if token["id"] not in hidden]
        model = {**model, "vocab": renamed}
    return {**tokenizer, "added_tokens": added, "model": model}


def is_byte_level(tokenizer: JsonObject) -> bool:
    """Whether the characters of entries stand for bytes, as in GPT-2's vocabulary."""
    return any(step.get("type") == "ByteLevel" for step in _steps(tokenizer))


def has_spaces_marked(tokenizer: JsonObject) -> bool:
    """Whether `▁` stands for a space, as in SentencePiece's vocabularies."""
    return any(
        step.get("type") == "Metaspace" or (step.get("type") == "Replace" and SPACE in str(step))
        for step in _steps(tokenizer)
    )


def falls_back_to_bytes(tokenizer: JsonObject) -> bool:
    """Whether entries such as `<0x0A>` stand for a byte."""
    return bool(tokenizer["model"].get("byte_fallback")) or any(
        step.get("type") == "ByteFallback" for step in _steps(tokenizer)
    )


def begins_with(tokenizer: JsonObject) -> str | None:
    """The text of the entry that the tokeniser puts before a text, where it puts one."""
    for step in _inner(tokenizer.get("post_processor"), "processors"):
        first = (step.get("single") or [{}])[0] if step.get("type") == "TemplateProcessing" else {}
        if "SpecialToken" in first:
            return str(first["SpecialToken"]["id"])
    return None


def _entries(model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, list):  # Unigram: pairs of an entry and its score, in the order of ids
        return {entry[0]: index for index, entry in enumerate(vocabulary)}
    return dict(vocabulary)


def _added(tokenizer: JsonObject, folder: ModelFolder, entries: Mapping[str, int]) -> list[JsonObject]:
    """The added entries: those of the file, those of tokenizer_config.json, and those that are special by name."""
    added: dict[str, JsonObject] = {token["content"]: token for token in tokenizer.get("added_tokens", [])}
    for index, token in (folder.tokenizer.get("added_tokens_decoder") or {}).items():
        known = added.get(token["content"], _added_token(int(index), token["content"]))
        added[token["content"]] = {**known, "special": known["special"] or bool(token.get("special"))}
    unknown = tokenizer["model"].get("unk_token")
    for text in sorted(folder.special_entries | ({unknown} if isinstance(unknown, str) else set())):
        known = added.get(text) or ({} if text not in entries else _added_token(entries[text], text))
        if known:
            added[text] = {**known, "special": True}
    return sorted(added.values(), key=lambda token: int(token["id"]))


def _added_token(index: int, text: str) -> JsonObject:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": index, "content": text, **flags}


def _normalizer(step: Any) -> Any:
    """What marks spaces, and nothing that adds, composes, strips or folds."""
    kept = [step for step in _inner(step, "normalizers") if step.get("type") == "ByteLevel" or _marks_spaces(step)]
    return {"type": "Sequence", "normalizers": kept} if kept else None


def _marks_spaces(step: Mapping[str, Any]) -> bool:
    return step.get("type") == "Replace" and step.get("pattern") == {"String": " "} and step.get("content") == SPACE


def _without_added_space(step: Any) -> Any:
    if not isinstance(step, dict):
        return step
    match step.get("type"):
        case "Sequence":
            return {**step, "pretokenizers": [_without_added_space(inner) for inner in step["pretokenizers"]]}
        case "Metaspace":
            # `add_prefix_space` is what older files have in place of the scheme.
            kept = {key: value for key, value in step.items() if key != "add_prefix_space"}
            return {**kept, "prepend_scheme": "never"}
        case "ByteLevel":
            return {**step, "add_prefix_space": False}
    return step


def _steps(tokenizer: JsonObject) -> Iterator[Mapping[str, Any]]:
    yield from _inner(tokenizer.get("normalizer"), "normalizers")
    yield from _inner(tokenizer.get("pre_tokenizer"), "pretokenizers")
    yield from _inner(tokenizer.get("decoder"), "decoders")


def _inner(step: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """A step, or those of a sequence of them."""
    if isinstance(step, dict):
        if step.get("type") == "Sequence":
            for inner in step.get(name, []):
                yield from _inner(inner, name)
        else:
            yield step
