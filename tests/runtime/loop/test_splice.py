"""The paragraph `Splice`: where a whole history leaves its session, and what of the session stays."""

import pytest

from tenuto.runtime.loop.events import Answer
from tenuto.sessions.items import AssistantItem, Item, ToolCall, ToolResultItem, UserItem
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import Process, asks, call, client_tools, history, says
from tests.runtime.loop.tools import spec

COUNTED = asks("count", call("count__add", by=2), text="Let me count.")


async def said(process: Process, *texts: str) -> Answer:
    for text in texts:
        answer = await process.ask(text)
    return answer


@pytest.mark.parametrize(
    "arguments", ['{"city":"Oslo","day":1}', '{ "day": 1.0, "city": "Oslo" }', '{"city": "\\u004fslo", "day": 1}']
)
async def test_arguments_are_compared_as_json(open_process: Open, arguments: str) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo", day=1)))
    tools = client_tools(spec("weather", city="string", day="integer"))
    first = await process.ask("weather?", tools=tools)
    told = [
        UserItem("weather?"),
        AssistantItem(calls=(ToolCall(first.calls[0].id, "weather", arguments),)),
        ToolResultItem(first.calls[0].id, "weather", "rain"),
    ]
    answer = await process.ask(told, tools=tools)
    assert answer.run_id == first.run_id
    (item,) = [one for one in await process.items() if isinstance(one, AssistantItem) and one.calls]
    assert item.calls[0].arguments == '{"city": "Oslo", "day": 1}'


async def test_reasoning_that_the_client_leaves_out_is_kept(open_process: Open) -> None:
    process = await open_process(says("why?", "So.", reasoning="Let me think."))
    await process.ask("why?")
    answer = await process.ask([UserItem("why?"), AssistantItem("So."), UserItem("ah")])
    assert (await process.items())[1] == AssistantItem("So.", "Let me think.")
    assert answer.usage.rounds[0].miss_reason is None


async def test_a_text_that_differs_in_a_blank_cuts_the_session_there(open_process: Open) -> None:
    process = await open_process()
    await said(process, "one", "two", "three")
    before = (await process.session()).ledgers
    kept = {name: ledger.copy(3) for name, ledger in before.items()}
    edited = [*(await process.items())[:2], UserItem("two"), AssistantItem("two "), UserItem("four")]
    answer = await process.ask(edited)
    assert await process.items() == [*edited, AssistantItem("four")]
    assert answer.usage.rounds[0].miss_reason == "item 3 (assistant) differs: text"
    after = (await process.session()).ledgers
    assert {name: ledger.copy(3) for name, ledger in after.items()} == kept


async def test_a_history_that_is_shorter_cuts_and_answers_again(open_process: Open) -> None:
    process = await open_process()
    await said(process, "one", "two")
    answer = await process.ask((await process.items())[:3])
    assert await process.items() == [
        *(UserItem("one"), AssistantItem("one")),
        *(UserItem("two"), AssistantItem("two")),
    ]
    assert answer.usage.rounds[0].miss_reason == "item 3 (assistant) is not in the request"
    assert answer.usage.computed <= len("<|assistant|>") + 1


async def test_tool_records_that_the_client_never_saw_are_kept(open_process: Open) -> None:
    process = await open_process(COUNTED)
    first = await said(process, "count")
    items = await process.items()
    assert history(items) != items
    shown: list[Item] = [UserItem("count"), AssistantItem(first.text), UserItem("thanks")]
    answer = await process.ask(shown)
    assert (await process.items())[: len(items)] == items
    assert answer.usage.rounds[0].miss_reason is None
    assert answer.usage.rounds[0].computed == answer.usage.rounds[0].new


async def test_tool_records_are_kept_up_to_where_the_history_differs(open_process: Open) -> None:
    process = await open_process(COUNTED)
    first = await said(process, "count", "two")
    items = await process.items()
    shown = [UserItem("count"), AssistantItem("Let me count.2"), UserItem("another")]
    await process.ask(shown)
    assert (await process.items())[:4] == items[:4]
    assert (await process.items())[4:] == [UserItem("another"), AssistantItem("another")]
    await process.ask([UserItem("count"), AssistantItem("Something else"), UserItem("x")])
    assert await process.items() == [
        *(UserItem("count"), AssistantItem("Something else")),
        *(UserItem("x"), AssistantItem("x")),
    ]
    assert first.text == "two"


async def test_an_unfinished_turn_is_closed_as_the_template_closes_one(open_process: Open) -> None:
    process = await open_process(says("tell", "A long story."))
    answer = await process.ask("tell", max_tokens=6)
    assert answer.text == "A long"
    await process.ask("go on")
    assert (await process.items())[1] == AssistantItem("A long", incomplete=True)
    assert "<|assistant|>A long<|end|><|user|>go on<|end|>" in await process.tokens()


async def test_a_turn_that_a_stop_string_ended_is_closed_too(open_process: Open) -> None:
    process = await open_process(says("tell", "A long story."))
    answer = await process.ask("tell", stop=("story",))
    assert (answer.text, answer.stop_reason) == ("A long ", "stop_string")
    await process.ask("go on")
    assert "<|assistant|>A long story<|end|><|user|>go on" in await process.tokens(), "the model did say it"


async def test_what_the_model_sampled_stays_though_a_template_would_write_it_otherwise(open_process: Open) -> None:
    process = await open_process(asks("add", {"name": "count__add", "arguments": {"by": 1}}))
    await process.ask("add")
    before = await process.tokens()
    await process.ask([*history(await process.items()), UserItem("and?")])
    assert (await process.tokens()).startswith(before)
