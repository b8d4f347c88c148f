"""An adapter is held against its base before anything native sees it: what is wrong is told in words."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.adapters import Adapter, fingerprint, fitting, parsed
from tenuto.pipelines.fit import Memory, Wishes
from tenuto.pipelines.planning import planned_into
from tests.embedded import gguf_file
from tests.pipelines.tiny_adapter import ALPHA, RANK, Pair, tiny_adapter, usual_facts
from tests.pipelines.tiny_embedders import tiny_bert
from tests.pipelines.tiny_llama import tiny_llama

Q, DOWN = "blk.0.attn_q.weight", "blk.0.ffn_down.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("base") / "base.gguf")


def refusal(path: Path, base: Path) -> str:
    with pytest.raises(ModelLoadFailed) as refused:
        fitting(Adapter(path), base)
    return str(refused.value)


def test_an_adapter_that_fits_tells_what_it_adapts(base: Path, tmp_path: Path) -> None:
    found = fitting(Adapter(tiny_adapter(tmp_path / "terse.gguf", base), 0.5), base)
    assert (found.ranks, found.alpha, found.left_out) == ((RANK,), ALPHA, ())
    assert found.nbytes == 4 * sum(np.prod(tensor.shape) for tensor in found.tensors.values())
    assert found.described == "terse.gguf: 4 tensors adapted with rank 4, alpha 8, scale 0.5"


def without(name: str) -> Callable[[GGUFWriter], None]:
    def facts(writer: GGUFWriter) -> None:
        usual: dict[str, Callable[[], object]] = {
            "general.type": lambda: writer.add_type("adapter"),
            "adapter.type": lambda: writer.add_string("adapter.type", "lora"),
            "adapter.lora.alpha": lambda: writer.add_float32("adapter.lora.alpha", ALPHA),
        }
        for key, add in usual.items():
            if key != name:
                add()

    return facts


def with_fact(name: str, add: Callable[[GGUFWriter], None]) -> Callable[[GGUFWriter], None]:
    def facts(writer: GGUFWriter) -> None:
        without(name)(writer)
        add(writer)

    return facts


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (without("general.type"), "is no adapter: its general.type is None"),
        (with_fact("general.type", lambda w: w.add_type("model")), "is no adapter: its general.type is 'model'"),
        (with_fact("general.type", lambda w: w.add_uint32("general.type", 1)), "is no adapter"),
        (without("adapter.type"), "is an adapter of the kind None, and not lora"),
        (with_fact("adapter.type", lambda w: w.add_string("adapter.type", "dora")), "of the kind 'dora'"),
        (
            with_fact("adapter.lora.alpha", lambda w: w.add_float64("adapter.lora.alpha", 8.0)),
            r"its adapter.lora.alpha is no number",
        ),
        (
            with_fact("adapter.lora.alpha", lambda w: w.add_float32("adapter.lora.alpha", float("nan"))),
            r"its adapter.lora.alpha is no number",
        ),
        (
            with_fact("", lambda w: w.add_array("adapter.alora.invocation_tokens", [1, 2])),
            r"is to be switched on within a text \(aLoRA\), which is not supported",
        ),
    ],
)
def test_a_file_that_is_no_lora_adapter_is_refused(
    base: Path, tmp_path: Path, facts: Callable[[GGUFWriter], None], words: str
) -> None:
    path = tiny_adapter(tmp_path / "bad.gguf", base, facts=facts)
    with pytest.raises(ModelLoadFailed, match=words):
        fitting(Adapter(path), base)


def changed(name: str, first: Callable[[Pair], Pair]) -> Callable[[dict[str, Pair]], Mapping[str, Pair]]:
    return lambda pairs: {**pairs, name: first(pairs[name])}


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (lambda pairs: {}, "adapts nothing"),
        (lambda pairs: {"blk.7.attn_q.weight": pairs[Q]}, "adapts 'blk.7.attn_q.weight', which .* does not have"),
        (lambda pairs: {Q: pairs[DOWN]}, r"is for another model: its tensors for 'blk.0.attn_q.weight' are 64 x 4"),
        (changed(Q, lambda pair: (pair[0].T, pair[1])), "is for another model"),
        (changed(Q, lambda pair: (pair[0], pair[1][:-1])), "is for another model"),
        (changed(Q, lambda pair: (pair[0][:-1], pair[1])), "have the ranks 3 and 4"),
        (changed(Q, lambda pair: (pair[0].astype(np.int32), pair[1])), "are no matrices that can be used"),
        (changed(Q, lambda pair: (pair[0].reshape(-1), pair[1])), "are no matrices that can be used"),
        (changed(Q, lambda pair: (pair[0][None], pair[1][None])), "is for another model"),
        (lambda pairs: {"output_norm.weight": pairs[Q]}, "is for another model"),
    ],
)
def test_an_adapter_of_another_shape_is_refused(
    base: Path, tmp_path: Path, pairs: Callable[[dict[str, Pair]], Mapping[str, Pair]], words: str
) -> None:
    path = tiny_adapter(tmp_path / "bad.gguf", base, pairs=pairs)
    with pytest.raises(ModelLoadFailed, match=words):
        fitting(Adapter(path), base)


def test_an_adapter_that_lacks_half_of_a_pair_or_has_more_is_refused(base: Path, tmp_path: Path) -> None:
    whole = tiny_adapter(tmp_path / "whole.gguf", base).read_bytes()
    other = tmp_path / "other.gguf"
    other.write_bytes(whole.replace(b"blk.0.attn_q.weight.lora_b", b"blk.0.attn_z.weight.lora_b"))
    assert "the pair of tensors for 'blk.0.attn_q.weight' lacks one" in refusal(other, base)
    other.write_bytes(whole.replace(b"blk.0.attn_q.weight.lora_b", b"blk.0.attn_q.weight.dora_b"))
    assert "has the tensor 'blk.0.attn_q.weight.dora_b', which is no part" in refusal(other, base)


def test_an_adapter_of_another_family_or_for_vectors_is_refused(base: Path, tmp_path: Path) -> None:
    path = tiny_adapter(tmp_path / "other.gguf", base, architecture="qwen3")
    assert "adapts models of the architecture 'qwen3'" in refusal(path, base)
    bert = tiny_bert(tmp_path / "bert.gguf", "mean")
    assert "adapters are applied to models that generate text" in refusal(
        tiny_adapter(tmp_path / "bert-lora.gguf", bert), bert
    )


def test_embeddings_that_are_the_output_too_are_not_adapted(base: Path, tmp_path: Path) -> None:
    def pairs(found: dict[str, Pair]) -> Mapping[str, Pair]:
        return {"token_embd.weight": (np.ones((vocabulary, RANK), np.float32), np.ones((width, RANK), np.float32))}

    width, vocabulary = 32, 266
    path = tiny_adapter(tmp_path / "untied.gguf", base, pairs=pairs)
    assert fitting(Adapter(path), base).ranks == (RANK,)
    tied = gguf_file()
    path = tiny_adapter(tmp_path / "tied.gguf", tied, pairs=pairs)
    assert "adapts 'token_embd.weight', which is the output of" in refusal(path, tied)


def test_a_missing_file_is_told_from_a_damaged_one(base: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.gguf", base).startswith("there is no file")
    whole = tiny_adapter(tmp_path / "whole.gguf", base).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) * 2 // 3])
    assert "is damaged" in refusal(tmp_path / "cut.gguf", base)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_an_adapter_that_was_changed_anywhere_in_its_head_fits_or_is_refused(
    base: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(tiny_adapter(tmp_path / "whole.gguf", base).read_bytes())
    for place in data.draw(st.lists(st.integers(4, 900), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    (tmp_path / "changed.gguf").write_bytes(content)
    with suppress(ModelLoadFailed):
        assert fitting(Adapter(tmp_path / "changed.gguf"), base).tensors


def test_norms_are_told_to_be_left_out(base: Path, tmp_path: Path) -> None:
    whole = tiny_adapter(tmp_path / "whole.gguf", base, facts=with_a_norm)
    found = fitting(Adapter(whole), base)
    assert found.left_out == ("blk.0.attn_norm.weight",)
    assert found.described.endswith("not applied: blk.0.attn_norm.weight")


def with_a_norm(writer: GGUFWriter) -> None:
    usual_facts(writer)
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(32, np.float32))


@pytest.mark.parametrize("scale", [0.0, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(tmp_path: Path, scale: float) -> None:
    with pytest.raises(ValueError, match="is not applied"):
        Adapter(tmp_path, scale)


@pytest.mark.parametrize(
    ("text", "path", "scale"),
    [
        ("a.gguf", "a.gguf", 1.0),
        ("a.gguf@0.5", "a.gguf", 0.5),
        ("a.gguf@-1", "a.gguf", -1.0),
        ("a@b/c.gguf", "a@b/c.gguf", 1.0),
        ("a@b/c.gguf@2", "a@b/c.gguf", 2.0),
    ],
)
def test_a_path_may_have_a_scale_behind_it(text: str, path: str, scale: float) -> None:
    assert parsed(text) == Adapter(Path(path), scale)


@pytest.mark.parametrize("text", ["a.gguf@0", "a.gguf@nan", "a.gguf@inf"])
def test_no_path_has_a_scale_behind_it_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not applied"):
        parsed(text)


def test_another_file_or_scale_is_told_by_the_fingerprint(base: Path, tmp_path: Path) -> None:
    one = tiny_adapter(tmp_path / "one.gguf", base)
    same = tmp_path / "same.gguf"
    same.write_bytes(one.read_bytes())
    other = tiny_adapter(tmp_path / "other.gguf", base, seed=1)
    found = [fingerprint(Adapter(path, scale)) for path, scale in ((one, 1), (same, 1), (other, 1), (one, 0.5))]
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_a_plan_counts_an_adapter(base: Path, tmp_path: Path) -> None:
    adapter = Adapter(tiny_adapter(tmp_path / "terse.gguf", base))
    wishes = Wishes(slots=2, context=256)
    plain, adapted = (planned_into(base, wishes, Memory(None), each) for each in (None, adapter))
    assert plain is not None
    assert adapted is not None
    more = adapted.total - plain.total
    assert more >= fitting(adapter, base).nbytes
    assert more - fitting(adapter, base).nbytes == adapted.step - plain.step
    assert (adapted.weights, adapted.cache) == (plain.weights, plain.cache)
