"""What a loaded model holds is free once it has been unloaded: with the last reference to it, not by a collection."""

import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from pydantic import ByteSize

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.backend import Sampling
from tenuto.pipelines.base import ToolChoice
from tenuto.runtime.config import Settings
from tenuto.runtime.engine.messages import Residency, Round
from tenuto.runtime.loop.life.keeper import Keeper
from tenuto.runtime.loop.life.loading import Available, LifeSettings, Loaded, Prepared
from tenuto.runtime.loop.model import EmbeddingModel, Model
from tenuto.runtime.loop.sharing import tool_block
from tenuto.runtime.metrics import Metrics
from tenuto.runtime.model_loading import Loader
from tenuto.sessions.items import ToolSpec
from tests.patience import HANGS_S
from tests.pipelines.families import CHATML
from tests.pipelines.formats.vocabularies import markers_of
from tests.pipelines.special_tokens import Specials
from tests.pipelines.tiny_chat import tiny_chat
from tests.pipelines.tiny_embedders import tiny_bert

pytestmark = pytest.mark.slow

TOOLS = [ToolSpec("pick", "", {"type": "object", "properties": {"one": {"enum": ["a", "b"]}}, "required": ["one"]})]


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Nothing is freed but by its last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def loader(folder: Path, file: Path, form: str = "hermes", tools: Sequence[ToolSpec] = ()) -> Loader:
    return Loader(settings_of(folder, file, form), Metrics(), 1, lambda: tools)


def settings_of(folder: Path, file: Path, form: str = "hermes") -> Settings:
    """With engines in this process, where it shows what of them is left."""
    return Settings(
        engine="thread",
        data_dir=folder,
        model=(str(file),),
        tool_format=(("*", form),),
        slots=2,
        context=256,
        host_cache_bytes=ByteSize(1 << 20),
    )


async def loaded(file: Path, folder: Path, form: str = "hermes") -> Loaded:
    loads = loader(folder, file, form)
    return await loads.load(await loads.prepare(Available(file.stem, str(file)), None), 0)


async def use(model: Model) -> None:
    """More sequences than slots, each with a call that is awaited or held to its schema."""
    for number, choice in enumerate((ToolChoice.AUTO, ToolChoice.REQUIRED, ToolChoice.AUTO)):
        grammar = model.codec.grammar(TOOLS, choice, parallel=True)
        round = Round(40, Sampling(), model.codec.info.stop_tokens, grammar=grammar)
        prompt = model.codec.tokenize(f"{number} say something")
        async for _ in model.engine.submit(f"s{number}", prompt, round, principal="alice"):
            pass


def chat_file(folder: Path, form: str) -> Path:
    return tiny_chat(
        folder / f"{form}.gguf", CHATML, Specials(("<|im_start|>",), tuple(markers_of(form)), ("<|im_end|>",))
    )


@pytest.mark.parametrize("form", ["hermes", "llama3", "mistral", "qwen3-coder", "gpt-oss"])
async def test_nothing_holds_a_models_weights_once_it_is_stopped(
    form: str, tmp_path: Path, no_collections: None
) -> None:
    one = await loaded(chat_file(tmp_path, form), tmp_path, form)
    assert isinstance(one.model, Model)
    await use(one.model)
    assert not one.memory.is_freed()
    await one.memory.stop()
    is_freed = one.memory.is_freed
    del one
    assert is_freed()


async def test_nothing_holds_the_weights_of_a_model_that_embeds_once_it_is_stopped(
    tmp_path: Path, no_collections: None
) -> None:
    one = await loaded(tiny_bert(tmp_path / "bert.gguf", "mean"), tmp_path)
    assert isinstance(one.model, EmbeddingModel)
    text = one.model.encoder.encode("hello")
    await one.model.engine.embed([text], principal="alice")
    assert not one.memory.is_freed()
    await one.memory.stop()
    is_freed = one.memory.is_freed
    del one
    assert is_freed()


async def test_weights_are_not_free_while_a_request_reads_with_them(tmp_path: Path) -> None:
    one = await loaded(chat_file(tmp_path, "llama3"), tmp_path, "llama3")
    assert isinstance(one.model, Model)
    reads, is_freed = one.model.codec.tokenize, one.memory.is_freed
    await one.memory.stop()
    del one
    assert not is_freed()
    del reads
    assert is_freed()


@pytest.mark.parametrize("tools", [TOOLS, []])
async def test_a_loaded_model_has_read_what_stands_before_every_conversation(
    tools: list[ToolSpec], tmp_path: Path
) -> None:
    file = chat_file(tmp_path, "hermes")
    loads = loader(tmp_path, file, tools=tools)
    one = await loads.load(await loads.prepare(Available(file.stem, str(file)), None), 0)
    assert isinstance(one.model, Model)
    held = one.model.engine.status.cache_bytes[Residency.DEVICE]
    block = tool_block(one.model.codec, tools)
    assert held == max(len(block), 1) * one.model.backend.bytes_per_token
    assert one.model.engine.places == 0
    await use(one.model)
    await one.memory.stop()


async def test_a_load_that_is_given_up_before_it_is_warm_leaves_no_engine(tmp_path: Path) -> None:
    file = chat_file(tmp_path, "hermes")
    async with anyio.create_task_group() as group:

        def given_up() -> list[ToolSpec]:
            group.cancel_scope.cancel()
            return TOOLS

        loads = Loader(settings_of(tmp_path, file), Metrics(), 1, given_up)
        group.start_soon(loads.load, await loads.prepare(Available(file.stem, str(file)), None), 0)
    assert group.cancel_scope.cancelled_caught
    assert not [thread.name for thread in threading.enumerate() if thread.name == "engine-hermes"]


def is_mapped(file: Path) -> bool:
    return str(file) in Path("/proc/self/maps").read_text()


linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")


@linux
async def test_a_model_is_unloaded_when_its_weights_have_gone(tmp_path: Path, no_collections: None) -> None:
    file, better = chat_file(tmp_path, "hermes"), chat_file(tmp_path, "llama3")
    async with Keeper(loader(tmp_path, file), [Available("one", str(file))]) as keeper:
        await ask(keeper)
        assert is_mapped(file)
        await keeper.swap("one", str(better))
        await freed(keeper, 1)
        assert [is_mapped(file), is_mapped(better)] == [False, True]
        await ask(keeper)
        await keeper.unload("one", HANGS_S)
        assert not is_mapped(better)
        assert keeper.holdings().held == keeper.standing("one").nbytes == 0


@linux
async def test_a_load_that_fails_leaves_no_weights(tmp_path: Path, no_collections: None) -> None:
    file = chat_file(tmp_path, "hermes")
    async with Keeper(loader(tmp_path, file, "no such format"), [Available("one", str(file))]) as keeper:
        for _ in range(2):
            with pytest.raises(ModelLoadFailed, match="no such format"):
                await ask(keeper)
            assert not is_mapped(file)


@linux
async def test_a_model_that_takes_more_than_was_planned_leaves_no_weights(tmp_path: Path, no_collections: None) -> None:
    file = chat_file(tmp_path, "hermes")
    settings = LifeSettings(budget=2 * file.stat().st_size)
    loads = Underestimated(loader(tmp_path, file))
    async with Keeper(loads, [Available("one", str(file))], settings) as keeper:
        with pytest.raises(ModelLoadFailed, match="were planned"):
            await ask(keeper)
        assert not is_mapped(file)
        assert keeper.holdings().held == 0


class Underestimated:
    """A loader whose models take more than the budget that they were planned for."""

    def __init__(self, loads: Loader) -> None:
        self._loads, self.load = loads, loads.load

    async def prepare(self, available: Available, budget: int | None) -> Prepared:
        del budget
        return replace(await self._loads.prepare(available, None), nbytes=1)


async def ask(keeper: Keeper) -> None:
    model = await keeper.loaded_for("one", "alice")
    assert isinstance(model, Model)
    await use(model)
    model.uses.give_back()


async def freed(keeper: Keeper, times: int) -> None:
    for _ in range(int(HANGS_S * 100)):
        if keeper.holdings().unloads["one"] == times:
            return
        await anyio.sleep(0.01)
