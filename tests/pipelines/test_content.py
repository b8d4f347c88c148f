"""Content never becomes control or marker tokens, and its tokens give it back, for every string."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.content import ContentTokenizer, StreamDecoder
from tenuto.pipelines.vocabulary import Vocabulary, is_marker, vocabulary_of

MARKERS = ["<|im_start|>", "<|im_end|>", "<|pad|>", "<tool_call>", "</tool_call>", "<tool_response>", "<tools>"]
FRAGMENTS = [
    *MARKERS,
    "<",
    ">",
    "<|",
    "|>",
    "<<",
    "tool_call",
    "<tool_",
    "call>",
    "</",
    "im_end",
    '{"name": "',
    "\n",
    " ",
]

seeded_texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=12).map("".join)


@given(text=st.text() | seeded_texts)
def test_content_never_becomes_reserved_tokens_and_comes_back_whole(embedded_codec: TemplateCodec, text: str) -> None:
    tokens = embedded_codec.tokenize(text)
    assert not embedded_codec.info.control_tokens.intersection(tokens)
    assert embedded_codec.detokenize(tokens) == text


def test_ordinary_content_keeps_the_macros_that_the_model_was_trained_on(embedded_codec: TemplateCodec) -> None:
    tokens = embedded_codec.tokenize('{"name": "x", "arguments": {"y": "z"}}')
    assert [embedded_codec.detokenize([token]) for token in tokens[:1]] == ['{"name": "']


def test_a_marker_in_content_is_cut_after_its_first_character_alone(embedded_codec: TemplateCodec) -> None:
    cut = [*embedded_codec.tokenize("see <"), *embedded_codec.tokenize("tool_call> here")]
    assert embedded_codec.tokenize("see <tool_call> here") == cut


def test_a_lone_surrogate_becomes_the_replacement_character(embedded_codec: TemplateCodec) -> None:
    assert embedded_codec.detokenize(embedded_codec.tokenize("a\ud800b")) == "a\ufffdb"
    assert embedded_codec.detokenize(embedded_codec.tokenize("\ud83d\ude00")) == "\U0001f600"


@pytest.mark.parametrize(
    ("text", "marker"),
    [("<tool_call>", True), ("[INST]", True), ('", "', False), ("<a b>", False), ("<>", False), ("]x[", False)],
)
def test_markers_are_bracketed_words(text: str, marker: bool) -> None:
    assert is_marker(text) is marker


def greedy_vocabulary(*entries: str) -> Vocabulary:
    """Every byte, then the entries, of which those in angle brackets are reserved."""
    pieces = (*(bytes([byte]) for byte in range(256)), *(entry.encode() for entry in entries))
    named = {entry: 256 + index for index, entry in enumerate(entries)}
    return vocabulary_of(pieces, frozenset(), frozenset(), named)


def greedy_tokens(vocabulary: Vocabulary, text: str, fold: bool = False) -> list[int]:
    """A tokeniser that takes the longest entry and recognises reserved ones; `fold`: it reads text in lower case."""
    rest, tokens = (text.lower() if fold else text).encode(), list[int]()
    while rest:
        token = max(
            range(len(vocabulary.pieces)),
            key=lambda t: len(vocabulary.pieces[t]) * rest.startswith(vocabulary.pieces[t]),
        )
        tokens.append(token)
        rest = rest[len(vocabulary.pieces[token]) :]
    return tokens


@given(text=st.text("<a>b\u00e9", max_size=24))
def test_overlapping_and_nested_markers_are_broken_too(text: str) -> None:
    vocabulary = greedy_vocabulary("<a>", "<a><a>", "<<a>>", "<a<a>", "ab")
    content = ContentTokenizer(lambda piece: greedy_tokens(vocabulary, piece), vocabulary)
    tokens = content.tokens(text)
    assert not vocabulary.reserved.intersection(tokens)
    assert b"".join(vocabulary.pieces[token] for token in tokens).decode() == text


@given(text=st.text("<aA>", max_size=16))
def test_a_tokeniser_that_normalises_text_into_a_marker_is_cut_finer(text: str) -> None:
    vocabulary = greedy_vocabulary("<a>")
    content = ContentTokenizer(lambda piece: greedy_tokens(vocabulary, piece, fold=True), vocabulary)
    tokens = content.tokens(text)
    assert not vocabulary.reserved.intersection(tokens)
    assert b"".join(vocabulary.pieces[token] for token in tokens).decode() == text.lower()


def test_a_character_that_is_itself_a_reserved_token_is_spelled_in_bytes() -> None:
    pieces = (*(bytes([byte]) for byte in range(256)), "\u2603".encode())
    vocabulary = vocabulary_of(pieces, frozenset(), frozenset({256}), {})
    content = ContentTokenizer(lambda piece: [256 if c == "\u2603" else ord(c) for c in piece], vocabulary)
    assert content.tokens("a\u2603b") == [ord("a"), *"\u2603".encode(), ord("b")]


@given(text=st.text(), cuts=st.lists(st.integers(0, 40)))
def test_a_streamed_text_is_the_text_whatever_the_pieces(text: str, cuts: list[int]) -> None:
    data = text.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = tuple(data[a:b] for a, b in pairwise(places))
    decoder = StreamDecoder(vocabulary_of(pieces, frozenset(), frozenset(), {}))
    shown = [decoder.push(token) for token in range(len(pieces))]
    assert "".join(shown) + decoder.flush() == text


def test_a_character_that_was_cut_becomes_the_replacement_character() -> None:
    decoder = StreamDecoder(vocabulary_of((b"\xe2\x98", b"\xff"), frozenset(), frozenset(), {}))
    assert decoder.push(0) == ""
    assert decoder.flush() == "\ufffd"
    assert decoder.push(1) + decoder.flush() == "\ufffd"


def test_reserved_tokens_give_no_text_while_streaming_and_their_text_in_detokenize(
    embedded_codec: TemplateCodec,
) -> None:
    decoder = embedded_codec.decoder()
    end = next(iter(embedded_codec.info.stop_tokens))
    assert decoder.push(end) == ""
    assert embedded_codec.detokenize([end]) == "<|im_end|>"
