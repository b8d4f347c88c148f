"""A model's life: loaded for the first who asks, kept within the budget, unloaded under nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Conflict, ModelLoadFailed, NoRoomForModel, NotFound, Overloaded, ShuttingDown
from tenuto.runtime.loop.life.accountant import Accountant, Holding, Share
from tenuto.runtime.loop.life.keeper import Keeper
from tenuto.runtime.loop.life.loading import Available
from tenuto.runtime.loop.life.states import TABLE, IllegalModelTransition, ModelState, ModelTrigger, advanced
from tenuto.runtime.loop.models import Models
from tenuto.runtime.loop.shelf import LoadOptions
from tests.patience import HANGS_S
from tests.runtime.loop.keeping import GatedLoads, keeping, script, size, using


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    return [script(tmp_path, name) for name in ("a", "b", "c", "d")]


@pytest.fixture
def loads(tmp_path: Path) -> GatedLoads:
    return GatedLoads(tmp_path)


@pytest.fixture
async def three(tmp_path: Path, loads: GatedLoads, sources: list[str]) -> AsyncIterator[Keeper]:
    """Four models, and a budget for three."""
    ready: asyncio.Future[Keeper] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def run() -> None:
        async with keeping(loads, sources, budget=3 * await size(tmp_path)) as keeper:
            ready.set_result(keeper)
            await leave.wait()

    task = asyncio.create_task(run())
    yield await ready
    leave.set()
    await task


def state(keeper: Keeper, id: str) -> str:
    return keeper.standing(id).state


async def until(keeper: Keeper, id: str, wanted: str) -> None:
    with anyio.fail_after(HANGS_S):
        for _ in range(int(HANGS_S * 100)):
            if state(keeper, id) == wanted:
                return
            await anyio.sleep(0.01)


def test_what_is_not_in_the_table_cannot_happen_to_a_model() -> None:
    for one, trigger in product(ModelState, ModelTrigger):
        if (one, trigger) in TABLE:
            assert advanced(one, trigger) is TABLE[one, trigger]
        else:
            with pytest.raises(IllegalModelTransition):
                advanced(one, trigger)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40), st.booleans())))
def test_the_accountant_never_holds_more_than_its_budget(moves: list[tuple[int, int, bool]]) -> None:
    accountant = Accountant(100)
    held: dict[int, int] = {}
    for who, nbytes, takes in moves:
        if takes and who not in held and accountant.fits(Holding(nbytes)):
            accountant.take(who, Holding(nbytes))
            held[who] = nbytes
        elif not takes:
            accountant.free(who)
            held.pop(who, None)
        assert accountant.used == sum(held.values()) <= 100
    assert accountant.high_water <= 100


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from("xyz"), st.booleans())))
def test_what_several_hold_together_is_counted_once_and_goes_with_the_last(
    moves: list[tuple[int, int, str, bool]],
) -> None:
    """A share has 20 bytes, so that a budget of 60 has room for two and what is beside them."""
    accountant = Accountant(60)
    held: dict[int, tuple[int, str]] = {}
    for who, own, key, takes in moves:
        holding = Holding(own, Share(key, 20))
        if takes and who not in held:
            more = own + (0 if key in {other for _, other in held.values()} else 20)
            assert accountant.fits(holding) is (accountant.used + more <= 60)
            assert accountant.short(holding) == max(0, accountant.used + more - 60)
            if accountant.fits(holding):
                accountant.take(who, holding)
                held[who] = own, key
        elif not takes:
            accountant.free(who)
            held.pop(who, None)
        shares = {other for _, other in held.values()}
        assert accountant.used == sum(own for own, _ in held.values()) + 20 * len(shares) <= 60


def test_what_comes_free_with_some_is_what_nobody_else_holds() -> None:
    accountant, weights = Accountant(100), Share("weights", 60)
    accountant.take("base", Holding(10, weights))
    accountant.take("adapted", Holding(20, weights))
    assert accountant.used == 90
    assert accountant.short(Holding(50), {"base"}) == 30, "the weights stay with the other"
    assert accountant.fits(Holding(50), {"base", "adapted"})
    assert accountant.fits(Holding(10, weights))
    assert not accountant.fits(Holding(11, weights))


async def test_all_who_ask_for_a_model_wait_for_one_load(three: Keeper, loads: GatedLoads) -> None:
    loads.gates["a"] = anyio.Event()
    waiting = [asyncio.create_task(three.loaded_for("a", "alice")) for _ in range(5)]
    await until(three, "a", "loading")
    await loads.began.setdefault("a", anyio.Event()).wait()
    assert three.standing("a").waiting == 5
    loads.gates["a"].set()
    models = await asyncio.gather(*waiting)
    assert len({id(model) for model in models}) == 1
    assert loads.loads == ["a"]
    assert three.standing("a").in_use == 5


async def test_a_load_that_fails_answers_all_who_wait_in_words_and_holds_nothing(
    three: Keeper, loads: GatedLoads
) -> None:
    loads.gates["a"] = anyio.Event()
    loads.fails.add("a")
    waiting = [asyncio.create_task(three.loaded_for("a", "alice")) for _ in range(3)]
    await loads.began.setdefault("a", anyio.Event()).wait()
    loads.gates["a"].set()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(one) for one in told] == ["a is broken"] * 3
    assert state(three, "a") == "failed"
    assert three.accountant.used == 0
    with pytest.raises(ModelLoadFailed, match="a is broken"):  # those who come at once hear the same, without a load
        await three.loaded_for("a", "alice")
    assert loads.loads == ["a"]
    loads.fails.clear()
    assert (await three.load("a", "admin", LoadOptions())).state == "loaded"


async def test_the_one_used_longest_ago_makes_room(three: Keeper) -> None:
    for id in ("a", "b", "c", "a"):
        async with using(three, id):
            pass
    async with using(three, "d"):
        assert {id: state(three, id) for id in "acd"} == dict.fromkeys("acd", "loaded")
        assert state(three, "b") == "available"
    assert three.accountant.high_water == three.accountant.budget


async def test_a_pinned_model_makes_no_room(tmp_path: Path, loads: GatedLoads, sources: list[str]) -> None:
    async with keeping(loads, sources, budget=2 * await size(tmp_path), pins=frozenset({"a"})) as keeper:
        for id in ("a", "b", "c", "d"):
            async with using(keeper, id):
                assert state(keeper, "a") == "loaded"


async def test_what_can_never_fit_is_refused_at_once_with_the_numbers(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    one = await size(tmp_path)
    async with keeping(loads, sources, budget=2 * one - 1, pins=frozenset({"a"})) as keeper:
        async with using(keeper, "a"):
            pass
        with pytest.raises(ModelLoadFailed, match=rf"takes up to {one} bytes .* is {2 * one - 1}, .* hold {one}"):
            await keeper.loaded_for("b", "alice")


async def test_a_model_is_not_unloaded_under_a_run_and_who_waits_is_told_why(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    one = await size(tmp_path)
    async with keeping(loads, sources, budget=one) as keeper, using(keeper, "a"):
        with pytest.raises(NoRoomForModel, match=f"takes {one} bytes, and {one} of {one} are held; in use: a with 1"):
            await keeper.loaded_for("b", "alice", 0.05)
        assert state(keeper, "a") == "loaded"
        await until(keeper, "b", "available")  # nobody wants it any more


async def test_a_model_that_is_always_in_use_gives_way_in_the_end(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    async with keeping(loads, sources, budget=await size(tmp_path)) as keeper:
        first = await keeper.loaded_for("a", "alice")
        waiting = asyncio.create_task(keeper.loaded_for("b", "alice"))
        await until(keeper, "a", "unloading")
        again = asyncio.create_task(keeper.loaded_for("a", "alice"))  # it takes nothing new, so this waits
        await anyio.lowlevel.checkpoint()
        first.uses.give_back()
        (await waiting).uses.give_back()
        assert (await again) is not first


async def test_a_client_that_leaves_takes_its_load_back_only_where_it_has_not_begun(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    loads.gates["b"] = anyio.Event()
    async with keeping(loads, sources, budget=2 * await size(tmp_path)) as keeper, using(keeper, "a"):
        begun = asyncio.create_task(keeper.loaded_for("b", "alice"))
        await loads.began.setdefault("b", anyio.Event()).wait()
        queued = asyncio.create_task(keeper.loaded_for("c", "alice"))
        await until(keeper, "c", "loading")
        for task in (begun, queued):
            task.cancel()
        await asyncio.gather(begun, queued, return_exceptions=True)
        await until(keeper, "c", "available")
        assert state(keeper, "b") == "loading"
        loads.gates["b"].set()
        await until(keeper, "b", "loaded")
        assert keeper.standing("b").in_use == 0
        assert loads.loads == ["a", "b"]


async def test_who_asks_while_a_model_is_unloaded_gets_it_loaded_again(three: Keeper) -> None:
    first = await three.loaded_for("a", "alice")
    unloading = asyncio.create_task(three.unload("a", HANGS_S))
    await until(three, "a", "unloading")
    waiting = [asyncio.create_task(three.loaded_for("a", "alice")) for _ in range(3)]
    await anyio.lowlevel.checkpoint()
    first.uses.give_back()
    models = await asyncio.gather(*waiting)
    await unloading
    assert first not in models
    assert three.standing("a").in_use == 3


async def test_an_idle_model_is_unloaded_after_its_time_and_a_pinned_one_never(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    async with keeping(loads, sources, keep_s=0.0, pins=frozenset({"b"})) as keeper:
        async with using(keeper, "a"), using(keeper, "b"):
            pass
        await until(keeper, "a", "available")
        assert state(keeper, "b") == "loaded"
        assert keeper.accountant.used == keeper.standing("b").nbytes


async def test_one_principal_cannot_take_all_places_of_those_who_wait(loads: GatedLoads, sources: list[str]) -> None:
    loads.gates["a"] = anyio.Event()
    async with keeping(loads, sources, most_waiting=4) as keeper:
        waiting = [asyncio.create_task(keeper.loaded_for("a", "alice")) for _ in range(4)]
        await until(keeper, "a", "loading")
        with pytest.raises(Overloaded):
            await keeper.loaded_for("a", "bob")
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
        bob = asyncio.create_task(keeper.loaded_for("a", "bob"))
        await anyio.lowlevel.checkpoint()
        with pytest.raises(Overloaded):
            await keeper.loaded_for("a", "alice")
        loads.gates["a"].set()
        await bob


async def test_a_shutdown_during_a_load_refuses_who_waits_and_frees_all(loads: GatedLoads, sources: list[str]) -> None:
    loads.gates["b"] = anyio.Event()
    async with keeping(loads, sources) as keeper:
        model = await keeper.loaded_for("a", "alice")
        waiting = asyncio.create_task(keeper.loaded_for("b", "alice"))
        await loads.began.setdefault("b", anyio.Event()).wait()
    with pytest.raises(ShuttingDown):
        await waiting
    assert not model.engine.is_alive


async def test_a_swap_serves_those_who_come_with_the_new_version_and_frees_the_old_after_its_last(
    tmp_path: Path, three: Keeper
) -> None:
    old = await three.loaded_for("a", "alice")
    await three.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, "better")))
    new = await three.loaded_for("a", "alice")
    assert new is not old
    assert (new.id, three.standing("a").retired, old.engine.is_alive) == ("a", 1, True)
    assert three.accountant.used == 2 * new.backend.slots * new.backend.cells * new.backend.bytes_per_token
    old.uses.give_back()
    with anyio.fail_after(HANGS_S):
        for _ in range(int(HANGS_S * 100)):
            if not old.engine.is_alive:
                break
            await anyio.sleep(0.01)
    assert (three.standing("a").retired, new.engine.is_alive) == (0, True)


async def test_a_swap_that_fails_changes_nothing(tmp_path: Path, three: Keeper) -> None:
    async with using(three, "a") as model:
        pass
    used = three.accountant.used
    with pytest.raises(ModelLoadFailed, match="cannot be read"):
        await three.load("a", "admin", LoadOptions(is_swap=True, source=f"scripted:{tmp_path}/nowhere.json"))
    async with using(three, "a") as after:
        assert after is model
    assert three.accountant.used == used


async def test_a_swap_without_room_for_both_versions_is_refused_at_once_and_keeps_nobody_waiting(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    of_one = await size(tmp_path)
    async with keeping(loads, sources, budget=of_one + of_one // 2, wait_s=HANGS_S) as keeper:
        async with using(keeper, "a"):
            pass
        with pytest.raises(ModelLoadFailed, match=rf"{of_one} .* beside .*{of_one}"):
            await keeper.load("a", "alice", LoadOptions(is_swap=True))
        async with using(keeper, "b"):
            assert state(keeper, "a") == "available"


@asynccontextmanager
async def with_room_for_two(folder: Path, loads: GatedLoads, sources: list[str]) -> AsyncIterator[Keeper]:
    """An owner whose budget the models a and b take up; nobody uses them."""
    async with keeping(loads, sources, budget=2 * await size(folder), wait_s=HANGS_S) as keeper:
        for id in ("a", "b"):
            async with using(keeper, id):
                pass
        yield keeper


async def test_two_models_that_are_replaced_at_once_make_room_for_each_other(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    better = LoadOptions(is_swap=True, source=script(tmp_path, "better"))
    async with with_room_for_two(tmp_path, loads, sources) as keeper:
        swaps = [asyncio.create_task(keeper.load(id, "admin", better)) for id in ("a", "b")]
        with anyio.fail_after(HANGS_S / 2):
            asked = [asyncio.create_task(keeper.loaded_for(id, "alice")) for id in ("a", "b")]
            for one in asked:
                (await one).uses.give_back()
            await asyncio.gather(*swaps)
            assert [keeper.standing(id).version for id in ("a", "b")] == [better.source] * 2
        assert keeper.holdings().most_held <= 2 * await size(tmp_path)


@asynccontextmanager
async def of_which_b_is_broken(
    folder: Path, loads: GatedLoads, keeper: Keeper, first: str, second: str
) -> AsyncIterator[None]:
    """Both are replaced, and one asks for room before the other; the block begins when both are done with it."""
    better = LoadOptions(is_swap=True, source=script(folder, "better"))
    loads.fails.add("b")
    loads.found.clear()
    loads.finding[second] = anyio.Event()
    with anyio.fail_after(HANGS_S / 2):
        swaps = {id: asyncio.create_task(keeper.load(id, "admin", better)) for id in ("a", "b")}
        await loads.found.setdefault(first, anyio.Event()).wait()
        loads.finding[second].set()
        assert (await swaps["a"]).version == better.source
        with pytest.raises(ModelLoadFailed, match="b is broken"):
            await swaps["b"]
    loads.fails.clear()
    yield


async def test_a_version_that_cannot_be_loaded_once_the_one_before_gave_way_leaves_that_to_be_loaded_again(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    async with (
        with_room_for_two(tmp_path, loads, sources) as keeper,
        of_which_b_is_broken(tmp_path, loads, keeper, "a", "b"),
    ):
        assert state(keeper, "b") == "available"
        async with using(keeper, "b"):
            assert keeper.standing("b").version == ""


async def test_a_version_for_which_another_model_gave_way_and_that_cannot_be_loaded_leaves_the_one_before(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    async with with_room_for_two(tmp_path, loads, sources) as keeper:
        async with using(keeper, "b") as before:
            pass
        async with of_which_b_is_broken(tmp_path, loads, keeper, "b", "a"):
            async with using(keeper, "b") as after:
                assert after is before
            assert state(keeper, "a") == "loaded"
            assert loads.loads == ["a", "b", "b", "a"]


async def test_a_version_that_waits_for_its_runs_is_not_taken_for_room_that_will_be_free(three: Keeper) -> None:
    async with using(three, "a") as model:
        model.uses.waits.add("a run that waits")
    await three.load("a", "alice", LoadOptions(is_swap=True))
    for id in ("b", "c", "d"):
        with anyio.fail_after(HANGS_S):
            async with using(three, id):
                pass
    assert three.standing("a").retired == 1
    three.forget_run("a run that waits", "a")


async def test_work_whose_model_goes_before_it_is_used_does_not_wait_for_itself(three: Keeper) -> None:
    models, tries = Models(three), 0

    async def work() -> str:
        nonlocal tries
        model = models.find("a")
        tries += 1
        if tries == 1:
            await three.unload("a", 0)
        with model.uses.held():
            return model.id

    with anyio.fail_after(HANGS_S):
        assert await models.with_loaded(work, "alice") == "a"
    assert tries == 2


async def test_a_model_on_its_way_is_not_unloaded_by_command(three: Keeper, loads: GatedLoads) -> None:
    loads.gates["a"] = anyio.Event()
    waiting = asyncio.create_task(three.loaded_for("a", "alice"))
    await until(three, "a", "loading")
    with pytest.raises(Conflict, match="is being loaded"):
        await three.unload("a", 0)
    loads.gates["a"].set()
    await waiting
    with pytest.raises(NotFound):
        await three.unload("nobody", 0)


async def test_ten_models_at_random_under_a_budget_for_three_are_all_served(tmp_path: Path) -> None:
    """And whatever was loaded is unloaded, or still there."""
    loads, random = GatedLoads(tmp_path), Random(7)
    sources = [script(tmp_path, f"m{number}", cells=48 + 8 * (number % 4)) for number in range(10)]
    budget = 3 * await size(tmp_path)
    async with keeping(loads, sources, budget=budget, wait_s=HANGS_S) as keeper:

        async def client() -> None:
            for _ in range(5):
                async with using(keeper, f"m{random.randrange(10)}") as model:
                    assert keeper.accountant.used <= budget
                    assert model.engine.is_alive
                    await anyio.sleep(0.001 * random.randrange(3))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(client)
        there = sum(one.nbytes for one in keeper.standings() if one.state == "loaded")
        assert keeper.accountant.high_water <= budget
        for one in keeper.standings():
            await keeper.unload(one.id, HANGS_S)
        assert there <= budget
        assert keeper.accountant.used == 0
        counted = keeper.holdings()
        assert sum(counted.loads.values()) == sum(counted.unloads.values()) == len(loads.loads)


async def test_a_request_whose_model_is_taken_away_before_it_has_begun_does_not_hold_it(three: Keeper) -> None:
    """Else the one waits for the other: the model is freed when nobody holds it, and loaded again when it is freed."""
    models, tries = Models(three), 0

    async def work() -> str:
        nonlocal tries
        tries += 1
        if tries == 2:
            await three.unload("a", 0)
        return models.find("a").id

    with anyio.fail_after(HANGS_S):
        assert await models.with_loaded(work, "alice") == "a"
    assert tries == 3


async def test_a_version_that_waits_for_its_runs_gives_way_where_its_room_is_needed(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    """And while it does not, models that nobody uses make the room."""
    one = await size(tmp_path)
    async with keeping(loads, sources, budget=3 * one) as keeper:
        old = await keeper.loaded_for("a", "alice")
        old.uses.waits.add("run")
        await keeper.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, "better")))
        old.uses.give_back()
        async with using(keeper, "a"):
            async with using(keeper, "b"):
                pass
            async with using(keeper, "c"):
                assert (keeper.standing("a").retired, state(keeper, "b")) == (1, "available")
                async with using(keeper, "d"):
                    assert keeper.standing("a").retired == 0
                    assert not old.engine.is_alive


async def test_a_version_is_replaced_while_runs_wait_for_the_one_before_it(tmp_path: Path, three: Keeper) -> None:
    """So a bad version can be taken back at once. Only so many are kept for runs that wait."""
    versions = []
    for number in range(4):
        async with using(three, "a") as model:
            model.uses.waits.add(f"run {number}")
            versions.append(model)
        await three.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, f"v{number}")))
    assert [model.uses.closed for model in versions] == ["a", "a", None, None]


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_what_makes_something_else_does_not_take_a_models_place(
    tmp_path: Path, three: Keeper, is_loaded: bool
) -> None:
    if is_loaded:
        await three.load("a", "admin", LoadOptions())
    vectors = script(tmp_path, "vectors", embeds={"width": 8})
    with pytest.raises(ModelLoadFailed, match="vectors"):
        await three.load("a", "admin", LoadOptions(is_swap=True, source=vectors))
    async with using(three, "a") as model:
        assert model.kind == "text"


async def test_those_who_ask_for_a_model_while_a_broken_version_of_it_is_loaded_get_the_one_before(
    tmp_path: Path, three: Keeper, loads: GatedLoads
) -> None:
    loads.gates["a"] = anyio.Event()
    loads.fails.add("a")
    swap = asyncio.create_task(three.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, "broken"))))
    await loads.began.setdefault("a", anyio.Event()).wait()
    waiting = asyncio.create_task(three.loaded_for("a", "alice"))
    await anyio.lowlevel.checkpoint()
    loads.gates.pop("a").set()
    with pytest.raises(ModelLoadFailed):
        await swap
    loads.fails.clear()
    assert three.standing("a").version == ""
    with anyio.fail_after(HANGS_S):
        (await waiting).uses.give_back()


async def test_a_swap_for_which_there_is_never_room_is_refused_at_once(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    async with keeping(loads, sources, budget=2 * await size(tmp_path) - 1) as keeper:
        async with using(keeper, "a"):
            pass
        with pytest.raises(ModelLoadFailed, match="beside the version before, which holds"):
            await keeper.load("a", "admin", LoadOptions(is_swap=True, source=script(tmp_path, "better")))


async def test_a_load_that_nobody_waits_for_any_more_when_it_is_found_takes_no_room(
    tmp_path: Path, loads: GatedLoads, sources: list[str]
) -> None:
    loads.finding["b"] = anyio.Event()
    async with keeping(loads, sources, budget=await size(tmp_path)) as keeper:
        async with using(keeper, "a"):
            pass
        waiting = asyncio.create_task(keeper.loaded_for("b", "alice"))
        await until(keeper, "b", "loading")
        waiting.cancel()
        await asyncio.wait([waiting])
        loads.finding["b"].set()
        await until(keeper, "b", "available")
        assert (state(keeper, "a"), loads.loads) == ("loaded", ["a"])


async def test_an_error_that_many_are_told_keeps_nothing_of_those_who_have_read_it(
    three: Keeper, loads: GatedLoads
) -> None:
    loads.fails.add("a")
    told = []
    for _ in range(3):
        with pytest.raises(ModelLoadFailed) as failed:
            await three.loaded_for("a", "alice")
        told.append(failed.value)
    assert len({id(one) for one in told}) == 3


class Shop:
    """A catalogue whose models can be changed."""

    def __init__(self, *models: Available) -> None:
        self.models = {one.id: one for one in models}

    def list(self) -> list[Available]:
        """All of them."""
        return [*self.models.values()]

    def find(self, id: str) -> Available | None:
        """One of them."""
        return self.models.get(id)


async def test_a_model_that_a_store_has_no_more_is_not_found_once_it_is_unloaded(
    tmp_path: Path, loads: GatedLoads
) -> None:
    shop = Shop(Available("s", script(tmp_path, "s"), is_named=False, version="1"))
    async with Keeper(loads, [], catalogue=shop) as keeper:
        async with using(keeper, "s"):
            shop.models["s"] = replace(shop.models["s"], version="2")
            assert keeper.standing("s").version == "1"
        await keeper.unload("s", HANGS_S)
        async with using(keeper, "s"):
            assert keeper.standing("s").version == "2"
            shop.models.clear()
            assert [known.id for known in keeper.known()] == ["s"]
        await keeper.unload("s", HANGS_S)
        assert (keeper.find("s"), keeper.known()) == (None, [])
        with pytest.raises(NotFound):
            await keeper.loaded_for("s", "alice")
