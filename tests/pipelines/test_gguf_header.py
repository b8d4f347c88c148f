"""The head of a GGUF file, read without a backend; whatever stands there, the answer is a header or a sentence."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.gguf_header import read_gguf_header
from tests.embedded import gguf_file


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def head(values: bytes = b"", count: int = 0, tensors: bytes = b"", num_tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, count) + values + tensors


def test_the_embedded_models_head_says_what_it_is() -> None:
    found = read_gguf_header(gguf_file())
    assert (found.architecture, found.context, found.quantisation, found.version) == ("llama", 4096, "Q8_0", 3)
    assert found.chat_template
    assert found.parameters > 1_000_000
    assert found.values["tokenizer.ggml.tokens"] is None, "a vocabulary is passed over"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF", "is damaged: it ends before its head does"),
        (b"hello" * 10, "is not a GGUF file"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(40), "is in big-endian byte order, which is not supported"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "has version 1 of the format, which is not supported"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "it claims 1099511627776 values"),
        (head(text(b"a") + struct.pack("<I", 77), 1), "it has a value of the unknown type 77"),
        (head(text(b"a") + struct.pack("<IIQ", 9, 9, 1), 1), "it has an array of arrays"),
        (head(text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 50), 1), "it claims an array of"),
        (head(struct.pack("<Q", 1 << 60), 1), "it ends in the middle of its head"),
        (head(text(b"\xff") + struct.pack("<IB", 0, 1), 1), "or holds no text there"),
        (head(b"", 0, text(b"t") + struct.pack("<IQIQ", 1, 1000, 0, 0), 1), "it ends before its tensor 't' does"),
        (head(b"", 0, text(b"t") + struct.pack("<I", 1 << 30), 1), "has 1073741824 dimensions"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(ModelLoadFailed, match=words):
        read_gguf_header(tmp_path / "x.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_a_file_that_was_changed_anywhere_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(gguf_file().read_bytes()[:60_000])
    for place in data.draw(st.lists(st.integers(0, 3000), max_size=8)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadFailed):  # it is cut off at least
        read_gguf_header(path)
