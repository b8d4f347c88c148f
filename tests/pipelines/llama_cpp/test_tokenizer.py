import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llama_cpp")
gguf = pytest.importorskip("gguf")

from llguidance.llamacpp import lltokenizer_from_vocab  # noqa: E402 -- needs llama_cpp

from tenuto.pipelines.llama_cpp import LlamaTokenizer, Model  # noqa: E402 -- needs the extra
from tenuto.pipelines.loader import find  # noqa: E402 -- beside it
from tests.patience import HANGS_S  # noqa: E402 -- beside it

SENTENCEPIECE = ["<unk>", "<s>", "</s>", "<|end|>", "<|user|>", "<tool_call>"]
WORDS = ["▁", "h", "i", "hi", "▁hi", "▁▁", "a", "▁a", "b", "ab"]


@pytest.fixture(scope="module")
def embedded() -> LlamaTokenizer:
    return LlamaTokenizer(Model(find("embedded:gguf").path, vocabulary_only=True))


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> LlamaTokenizer:
    """A SentencePiece vocabulary, which puts a space before text and after every special entry."""
    return LlamaTokenizer(_sentencepiece(tmp_path_factory.mktemp("model") / "spaced.gguf", template="{{ messages }}"))


def _sentencepiece(path: Path, template: str) -> Model:
    kinds = gguf.TokenType
    names = [*SENTENCEPIECE, *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    control = {"<s>", "</s>", "<|end|>", "<|user|>"}
    types = [
        kinds.UNKNOWN
        if name == "<unk>"
        else kinds.CONTROL
        if name in control
        else kinds.USER_DEFINED
        if name == "<tool_call>"
        else kinds.BYTE
        if name.startswith("<0x")
        else kinds.NORMAL
        for name in names
    ]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(names)
    writer.add_token_scores([-float(index) if types[index] == kinds.NORMAL else 0.0 for index in range(len(names))])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(template)
    for name, value in {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 8,
    }.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_uint32("llama.attention.head_count", 1)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return Model(path, vocabulary_only=True)


def text_of(tokenizer: LlamaTokenizer, tokens: Sequence[int]) -> str:
    return b"".join(tokenizer.piece(token) for token in tokens).decode()


def names_of(tokens: Sequence[int]) -> list[str]:
    return [[*SENTENCEPIECE, *("" for _ in range(256)), *WORDS][token] for token in tokens]


@given(text=st.text())
def test_plain_text_keeps_its_bytes_and_never_becomes_control(embedded: LlamaTokenizer, text: str) -> None:
    tokens = embedded.plain_tokens(text)
    assert text_of(embedded, tokens) == text
    assert not embedded.control_tokens & set(tokens)


@given(parts=st.lists(st.sampled_from(["hi", " ", "a", "ab", "\n", "é", "<|end|>", "<|user|>", "<tool_call>", "\x01"])))
def test_a_vocabulary_that_adds_spaces_gives_exactly_the_text(spaced: LlamaTokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    for tokens in (spaced.template_tokens(text), spaced.plain_tokens(text)):
        assert text_of(spaced, tokens) == text
    assert not spaced.control_tokens & set(spaced.plain_tokens(text))


def test_no_space_comes_before_text_nor_after_special_entries(spaced: LlamaTokenizer) -> None:
    assert names_of(spaced.template_tokens("<|user|>hi hi<|end|>a")) == ["<|user|>", "hi", "▁hi", "<|end|>", "a"]


def test_template_text_has_its_control_and_user_defined_entries(embedded: LlamaTokenizer) -> None:
    tokens = embedded.template_tokens("<|im_start|>user\n<tool_call><|im_end|>")
    assert [text_of(embedded, [token]) for token in tokens if token in embedded.control_tokens] == [
        "<|im_start|>",
        "<|im_end|>",
    ]
    assert embedded.user_defined["<tool_call>"] in tokens


def test_every_end_of_generation_token_stops(embedded: LlamaTokenizer) -> None:
    assert {text_of(embedded, [token]) for token in embedded.stop_tokens} == {"<|im_end|>"}


def test_a_lone_surrogate_becomes_a_question_mark(embedded: LlamaTokenizer) -> None:
    assert text_of(embedded, embedded.plain_tokens("a\ud800b")) == "a?b"


def test_the_first_token_is_added_only_where_the_template_does_not_write_it(
    embedded: LlamaTokenizer, spaced: LlamaTokenizer, tmp_path: Path
) -> None:
    writes_it = LlamaTokenizer(_sentencepiece(tmp_path / "m.gguf", template="{{ bos_token }}{{ messages }}"))
    assert (embedded.bos, spaced.bos, writes_it.bos) == (None, 1, None)
    assert dict(writes_it.special_texts) == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_the_grammar_tokenizer_is_built_once_for_all_threads(embedded: LlamaTokenizer) -> None:
    with ThreadPoolExecutor(4) as threads:
        built: list[Any] = list(threads.map(lambda _: embedded.grammar_tokenizer(), range(8)))
    assert len({id(each) for each in built}) == 1
    assert built[0].vocab_size == embedded.vocabulary
    assert set(built[0].eos_tokens) == embedded.stop_tokens


@pytest.mark.filterwarnings("ignore:llama_token_get_attr is deprecated")
def test_grammars_see_the_vocabulary_as_llguidance_would_read_it(tmp_path: Path) -> None:
    embedded = Model(find("embedded:gguf").path, vocabulary_only=True)
    for model in (embedded, _sentencepiece(tmp_path / "m.gguf", template="{{ messages }}")):
        tokenizer = LlamaTokenizer(model)
        ours = tokenizer.grammar_tokenizer()
        theirs = lltokenizer_from_vocab(model.vocab, eos_token=ours.eos_tokens)
        entries = range(tokenizer.vocabulary)
        assert [ours.is_special_token(token) for token in entries] == [
            theirs.is_special_token(token) for token in entries
        ]
        assert [ours.decode_bytes([token]) for token in entries] == [theirs.decode_bytes([token]) for token in entries]
        text = "<tool_call>hi <|end|> h\u00e9"
        assert ours.tokenize_str(text) == theirs.tokenize_str(text)
        assert ours.tokenize_str(text, parse_special=True) == theirs.tokenize_str(text, parse_special=True)


def test_the_native_library_writes_nothing_to_the_terminal() -> None:
    code = "from tenuto.pipelines.loader import load; load('embedded:gguf')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANGS_S, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
