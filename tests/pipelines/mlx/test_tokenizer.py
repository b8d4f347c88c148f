"""Vocabularies of every kind that a tokenizer.json may have: content comes back whole and never becomes special."""

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mlx_lm", reason="needs tenuto[mlx]")

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.mlx import MlxTokenizer
from tests.embedded import mlx_folder

SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>", "<|user|>"]
WORDS = ["▁", "h", "i", "hi", "▁hi", "▁▁", "a", "▁a", "b", "ab"]
MERGES = [["h", "i"], ["▁", "hi"], ["▁", "▁"], ["▁", "a"], ["a", "b"]]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MARK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}
PUTS_BOS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
}


def added(token: int, text: str, *, special: bool, **more: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return {"id": token, "content": text, **flags, **more}


def bpe(normalizer: Any, pre_tokenizer: Any) -> dict[str, Any]:
    """SentencePiece's kind of vocabulary as BPE, with bytes for what it has no entries for."""
    names = [*SPECIAL, *BYTES, *WORDS]
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [
            *(added(token, text, special=True) for token, text in enumerate(SPECIAL)),
            added(names.index("▁▁"), "▁▁", special=False),
            added(len(names), "<tool_call>", special=False, rstrip=True),
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": PUTS_BOS,
        "decoder": DECODER,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {name: index for index, name in enumerate(names)},
            "merges": MERGES,
        },
    }


def unigram() -> dict[str, Any]:
    names = [*SPECIAL, *BYTES, *WORDS]
    scores = [[name, 0.0 if index < len(SPECIAL) + 256 else -1.0 - index / 100] for index, name in enumerate(names)]
    first = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return bpe(None, first) | {"model": {"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": True}}


PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, MARK]}
KINDS = {
    "prepended": bpe(PREPEND, None),
    "metaspace": bpe(None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False}),
    "composed": bpe({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, MARK]}, None),
    "unigram": unigram(),
}
ENTRIES = len(SPECIAL) + 256 + len(WORDS) + 1


def folder_of(path: Path, tokenizer: dict[str, Any] | None = None, **files: Any) -> Path:
    """A model's folder without weights; `files` are settings by name, None where there shall be none."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {
        "config": {"model_type": "llama", "vocab_size": ENTRIES, "eos_token_id": 2},
        "tokenizer": KINDS["prepended"] if tokenizer is None else tokenizer,
        "tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages }}"},
        **files,
    }
    for name, value in settings.items():
        if value is not None:
            (path / f"{name}.json").write_text(json.dumps(value))
    return path


@pytest.fixture(scope="module", params=[*KINDS, "byte level"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MlxTokenizer:
    if request.param == "byte level":
        return MlxTokenizer(mlx_folder(), json.loads((mlx_folder() / "config.json").read_text())["vocab_size"])
    return MlxTokenizer(folder_of(tmp_path_factory.mktemp("model"), KINDS[request.param]), ENTRIES + 7)


def prepended(path: Path, **files: Any) -> MlxTokenizer:
    return MlxTokenizer(folder_of(path, **files), ENTRIES)


def text_of(tokenizer: MlxTokenizer, tokens: Sequence[int]) -> str:
    return b"".join(tokenizer.piece(token) for token in tokens).decode()


PARTS = ["hi", " ", "a", "ab", "  ", "\n", "é", "e\u0301", "▁", "▁▁", "ﬁ", "A", "\x00", "<0x41>"]
PARTS += [*SPECIAL, "<|im_start|>", "<|im_end|>", "<tool_call>", "<tool_", "call>", "<|"]
texts = st.text(max_size=20) | st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


@given(text=texts)
def test_plain_text_keeps_its_bytes_and_never_becomes_control(tokenizer: MlxTokenizer, text: str) -> None:
    tokens = tokenizer.plain_tokens(text)
    assert not tokenizer.control_tokens & set(tokens)
    assert text_of(tokenizer, tokens) == text


@pytest.fixture(scope="module")
def codec(tokenizer: MlxTokenizer) -> TemplateCodec:
    return TemplateCodec("m", tokenizer, tokenizer.chat_template or "")


@given(text=texts)
def test_content_becomes_neither_control_nor_marker_and_comes_back_whole(codec: TemplateCodec, text: str) -> None:
    tokens = codec.tokenize(text)
    assert not codec.info.control_tokens & set(tokens)
    assert codec.detokenize(tokens) == text


def test_no_space_comes_before_text_nor_after_special_entries(tokenizer: MlxTokenizer) -> None:
    begin = min(tokenizer.control_tokens - tokenizer.stop_tokens)
    text = f"{text_of(tokenizer, [begin])}hi hi"
    tokens = tokenizer.template_tokens(text)
    assert tokens[0] == begin
    assert text_of(tokenizer, tokens) == text


@pytest.mark.parametrize("kind", list(KINDS))
def test_words_are_the_entries_that_the_model_knows(tmp_path: Path, kind: str) -> None:
    tokenizer = MlxTokenizer(folder_of(tmp_path, KINDS[kind]), ENTRIES)
    names = [*SPECIAL, *BYTES, *WORDS, "<tool_call>"]
    tokens = tokenizer.template_tokens("<|user|>hi hi<|end|>a  <tool_call>\nb")
    assert [names[t] for t in tokens] == ["<|user|>", "hi", "▁hi", "<|end|>", "a", "▁▁", "<tool_call>", "b"]
    assert dict(tokenizer.user_defined) == {"▁▁": names.index("▁▁"), "<tool_call>": ENTRIES - 1}
    assert tokenizer.piece(names.index("▁▁")) == b"  "
    assert tokenizer.piece(names.index("<0x41>")) == b"A"


def test_logits_that_are_wider_than_the_vocabulary_end_in_entries_that_no_text_has(tmp_path: Path) -> None:
    tokenizer = MlxTokenizer(folder_of(tmp_path), ENTRIES + 40)
    wider = set(range(ENTRIES, ENTRIES + 40))
    assert tokenizer.vocabulary == ENTRIES + 40
    assert wider <= tokenizer.control_tokens
    assert {tokenizer.piece(token) for token in wider} == {b""}
    assert tokenizer.grammar_tokenizer().vocab_size == ENTRIES + 40


def test_an_added_entry_that_the_model_has_no_row_for_is_text(tmp_path: Path) -> None:
    """As in Gemma 3, whose text models have no row for the image's entry."""
    tokenizer = MlxTokenizer(folder_of(tmp_path), ENTRIES - 1)
    assert "<tool_call>" not in tokenizer.user_defined
    assert text_of(tokenizer, tokenizer.template_tokens("<tool_call>")) == "<tool_call>"


def test_a_tokeniser_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"tokenizer\.json has 271 entries and the model only 100; they belong"):
        MlxTokenizer(folder_of(tmp_path), 100)


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        ({"eos_token_id": 2}, None, {"</s>"}),
        ({"eos_token_id": [2, 3]}, None, {"</s>", "<|end|>"}),
        ({"eos_token_id": 2}, {"eos_token_id": [3]}, {"</s>", "<|end|>"}),
        ({"text_config": {"eos_token_id": 3}}, {"eos_token_id": None}, {"</s>", "<|end|>"}),
        ({"eos_token_id": 10_000}, {}, {"</s>"}),
    ],
)
def test_every_file_may_name_what_ends_a_turn(tmp_path: Path, config: Any, generation: Any, ends: set[str]) -> None:
    tokenizer = prepended(tmp_path, config=config, generation_config=generation)
    assert {text_of(tokenizer, [token]) for token in tokenizer.stop_tokens} == ends
    assert set(tokenizer.grammar_tokenizer().eos_tokens) == tokenizer.stop_tokens


def test_the_end_of_a_turn_is_known_where_the_files_name_only_the_end_of_a_text(tmp_path: Path) -> None:
    kind = json.loads(json.dumps(KINDS["prepended"]).replace("<|end|>", "<|im_end|>"))
    tokenizer = prepended(tmp_path, tokenizer=kind)
    assert {text_of(tokenizer, [token]) for token in tokenizer.stop_tokens} == {"</s>", "<|im_end|>"}


def test_special_entries_are_named_by_any_of_the_files(tmp_path: Path) -> None:
    kind = {**KINDS["prepended"], "added_tokens": []}
    tokenizer = prepended(
        tmp_path,
        tokenizer=kind,
        config={},
        special_tokens_map={"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"},
        tokenizer_config={
            "additional_special_tokens": ["<|user|>"],
            "added_tokens_decoder": {
                "3": {"content": "<|end|>", "special": True},
                str(ENTRIES - 1): {"content": "<tool_call>", "special": False},
            },
        },
    )
    assert {text_of(tokenizer, [token]) for token in tokenizer.control_tokens} == set(SPECIAL)
    assert dict(tokenizer.user_defined) == {"<tool_call>": ENTRIES - 1}
    assert dict(tokenizer.special_texts) == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize(
    ("template", "flag", "bos", "text_bos"),
    [
        ("{{ messages }}", None, 1, 1),
        ("{{ bos_token }}{{ messages }}", None, None, 1),
        ("<s>{{ messages }}", None, None, 1),
        ("{{ messages }}", False, None, None),
    ],
)
def test_the_first_token_is_added_only_where_the_template_does_not_write_it(
    tmp_path: Path, template: str, flag: bool | None, bos: int | None, text_bos: int | None
) -> None:
    settings = {"bos_token": "<s>", "chat_template": template} | ({} if flag is None else {"add_bos_token": flag})
    tokenizer = prepended(tmp_path, tokenizer_config=settings)
    assert (tokenizer.bos, tokenizer.text_bos) == (bos, text_bos)


NAMED = [
    {"name": "default", "template": "{% for m in messages %}\n  {{ m.content }}\n{% endfor %}\n"},
    {"name": "tool_use", "template": "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ tools | length }}\n"},
]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"tokenizer_config": {"chat_template": "one"}}, "one"),
        ({"tokenizer_config": {"chat_template": "one"}, "chat_template": {"chat_template": "two"}}, "two"),
        ({"tokenizer_config": {"chat_template": NAMED[:1]}}, NAMED[0]["template"]),
        ({"tokenizer_config": {"chat_template": [{"name": "rag", "template": "three"}]}}, "three"),
        ({"tokenizer_config": {}}, None),
    ],
)
def test_the_chat_template_may_lie_in_several_places(tmp_path: Path, files: Any, text: str | None) -> None:
    assert prepended(tmp_path, **files).chat_template == text
    (tmp_path / "chat_template.jinja").write_text("of its own")
    assert prepended(tmp_path).chat_template == "of its own"


@pytest.mark.parametrize("in_files", [False, True])
def test_of_several_templates_that_for_tools_serves_where_there_are_any(tmp_path: Path, in_files: bool) -> None:
    if in_files:
        (tmp_path / "additional_chat_templates").mkdir()
        for name, each in zip(("chat_template", "additional_chat_templates/tool_use"), NAMED, strict=True):
            (tmp_path / f"{name}.jinja").write_text(each["template"])
    template = prepended(tmp_path, tokenizer_config={"chat_template": [] if in_files else NAMED}).chat_template
    assert template is not None
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"content": "a"}, {"content": "b"}]
    for tools, named in ([], NAMED[0]), ([1], NAMED[1]):
        alone = environment.from_string(named["template"]).render(messages=messages, tools=tools)
        assert environment.from_string(template).render(messages=messages, tools=tools) == alone


def test_the_grammar_tokenizer_is_built_once_for_all_threads(tokenizer: MlxTokenizer) -> None:
    with ThreadPoolExecutor(4) as threads:
        built: list[Any] = list(threads.map(lambda _: tokenizer.grammar_tokenizer(), range(8)))
    assert len({id(each) for each in built}) == 1
    assert built[0].vocab_size == tokenizer.vocabulary
    assert set(built[0].eos_tokens) == tokenizer.stop_tokens


WORD_PIECE = {
    **KINDS["prepended"],
    "normalizer": None,
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "added_tokens": [],
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "b": 2},
    },
}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, r"has no tokenizer\.json; convert the model with a fast tokenizer"),
        ("tokenizer.json", "{", r"tokenizer\.json is not JSON: "),
        ("tokenizer.json", "[]", r"tokenizer\.json is not a JSON object"),
        ("tokenizer.json", "{}", r"tokenizer\.json is not a tokenizer"),
        ("tokenizer.json", '{"model": {"type": "None"}}', r"tokenizer\.json cannot be used: "),
        ("tokenizer.json", json.dumps(WORD_PIECE), "this kind of vocabulary is not supported: it does not keep spaces"),
        ("tokenizer_config.json", '{"eos', r"tokenizer_config\.json is not JSON: "),
        ("generation_config.json", "7", r"generation_config\.json is not a JSON object"),
        ("chat_template.jinja", b"\xff\xfe", r"chat_template\.jinja cannot be read: "),
    ],
)
def test_what_is_broken_is_told_in_one_sentence(tmp_path: Path, name: str, content: Any, words: str) -> None:
    path = folder_of(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelLoadFailed, match=words):
        MlxTokenizer(tmp_path, ENTRIES)


def test_a_folder_for_sentencepiece_alone_is_refused_in_words(tmp_path: Path) -> None:
    folder_of(tmp_path, tokenizer_config=None)
    shutil.move(tmp_path / "tokenizer.json", tmp_path / "tokenizer.model")
    with pytest.raises(ModelLoadFailed, match=r"has no tokenizer\.json, only tokenizer\.model, which is not read; "):
        MlxTokenizer(tmp_path, ENTRIES)
