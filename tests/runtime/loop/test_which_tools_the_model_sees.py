"""The paragraph `Which tools the model sees`: the server's, the client's, and what a request says of them."""

import json
from typing import Any

import pytest

from tenuto.errors import InvalidRequest
from tenuto.pipelines.base import Rendered, ToolChoice
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.scripted import TEMPLATE, ScriptedTokenizer
from tenuto.runtime.loop.ledgers import prompt
from tenuto.runtime.loop.requests import ToolSelection
from tenuto.runtime.loop.turn_options import Defaults
from tenuto.sessions.items import AssistantItem, Item, ToolResultItem, UserItem
from tenuto.sessions.ledger import Ledger
from tenuto.sessions.records import RunStatus
from tests.runtime.loop.conftest import Open
from tests.runtime.loop.house import WEATHER, Process, Rule, asks, call, client_tools, history, says
from tests.runtime.loop.test_one_open_run import TWO, results
from tests.runtime.loop.tools import Tools, spec

COUNT = asks("count", call("count__add", by=1))
ALL = [
    *("calculator__evaluate", "notes__put", "notes__get", "notes__list", "count__add", "count__peek"),
    *("slow__wait", "broken__refuse", "broken__crash", "broken__deny"),
    *("broken__half", "big__read"),
]


async def seen(process: Process, id: str = "s") -> list[str]:
    """The tools that the model was shown, read from the tokens that it was given last."""
    *_, ledger = (await process.session(id)).ledgers.values()
    text = process.models.default.codec.detokenize(ledger.tokens)
    block, end, _ = text.partition("<|end|>")
    lines = block.splitlines() if block.startswith("<|tools|>") and end else []
    return [json.loads(line)["function"]["name"] for line in lines if line.startswith('{"type"')]


@pytest.mark.parametrize(
    ("default", "expected"),
    [("all", ALL), ("none", []), (("count__peek", "calculator__evaluate"), ["calculator__evaluate", "count__peek"])],
)
async def test_without_tools_in_the_request_it_is_the_servers_default_set(
    open_process: Open, default: object, expected: list[str]
) -> None:
    process = await open_process(defaults=Defaults(default_tools=default))  # type: ignore[arg-type]
    await process.ask("hi")
    assert await seen(process) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ToolSelection(given=True), []),
        (client_tools(), ["weather"]),
        (client_tools(servers={"notes": None}), ["notes__put", "notes__get", "notes__list", "weather"]),
        (client_tools(servers={"count": ("peek",)}), ["count__peek", "weather"]),
        (ToolSelection(given=True, servers={"count": ("count__peek",)}), ["count__peek"]),
    ],
)
async def test_with_tools_in_the_request_it_is_exactly_those(
    open_process: Open, given: ToolSelection, expected: list[str]
) -> None:
    process = await open_process()
    await process.ask("hi", tools=given)
    assert await seen(process) == expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (client_tools(spec("count__add")), "count__add"),
        (client_tools(WEATHER, WEATHER), "weather"),
        (client_tools(servers={"nobody": None}), "nobody"),
        (client_tools(servers={"count": ("divide",)}), "divide"),
        (client_tools(choice=ToolChoice.REQUIRED, only="climate"), "climate"),
    ],
)
async def test_what_cannot_be_chosen_is_refused_by_name(open_process: Open, given: ToolSelection, named: str) -> None:
    process = await open_process()
    await process.ask("hi")
    with pytest.raises(InvalidRequest, match=named):
        await process.ask("again", tools=given)
    assert len(await process.items()) == 2


async def test_a_call_is_required_only_where_there_are_tools(open_process: Open) -> None:
    process = await open_process(servers=[])
    with pytest.raises(InvalidRequest) as raised:
        await process.ask("hi", choice="required")
    assert raised.value.param == "tool_choice"


async def test_choice_none_keeps_the_prefix_and_no_call_is_made(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT, says("hi", "ho"))
    first = await process.ask("hi")
    none = await process.ask("count", choice="none", max_tokens=20)
    assert tools.count.value == 0
    assert none.server_calls == []
    assert none.usage.rounds[0].computed == none.usage.rounds[0].new < first.usage.computed
    assert len((await process.session()).ledgers) == 1
    tail = (await process.tokens()).rpartition("<|assistant|>")[2]
    assert "<tool_call>" not in tail
    assert await seen(process) == ALL


async def test_a_required_call_is_made_in_the_first_round_and_not_again(open_process: Open) -> None:
    process = await open_process(says("hi", "I would rather talk."), {"tool": "0", "text": "Now I talk."})
    answer = await process.ask(
        "hi", tools=ToolSelection(given=True, servers={"count": ("peek",)}, choice=ToolChoice.REQUIRED)
    )
    assert {one.name for one in answer.server_calls} == {"count__peek"}
    assert (answer.text, answer.status) == ("Now I talk.", RunStatus.COMPLETED)


async def test_a_named_call_is_the_one_that_is_made(open_process: Open) -> None:
    process = await open_process(says("hi", "I would rather talk."))
    tools = client_tools(spec("climate"), spec("a_tool"), choice=ToolChoice.REQUIRED, only="climate")
    assert {one.name for one in (await process.ask("hi", tools=tools)).calls} == {"climate"}


async def test_a_required_call_is_not_forced_again_by_the_results(open_process: Open) -> None:
    process = await open_process(asks("weather?", call("weather", city="Oslo")))
    forced = client_tools(choice=ToolChoice.REQUIRED)
    paused = await process.ask("weather?", tools=forced)
    done = await process.ask(results(paused, "rain"), tools=client_tools())
    assert (done.text, done.status) == ("rain", RunStatus.COMPLETED)


async def test_a_request_that_says_nothing_of_tools_answers_for_those_of_its_run(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"))
    assert done.usage.computed == done.usage.rounds[0].new
    assert await seen(process) == ["weather"]


async def test_without_tool_rounds_the_servers_calls_are_not_made_but_told(open_process: Open, tools: Tools) -> None:
    process = await open_process(COUNT)
    answer = await process.ask("count", max_tool_rounds=0)
    (told,) = answer.server_calls
    assert (told.name, told.arguments, told.status) == ("count__add", '{"by": 1}', "not_run")
    assert (answer.status, answer.stop_reason, answer.calls) == (RunStatus.COMPLETED, "max_tool_rounds", [])
    assert tools.count.value == 0
    assert (await process.items())[-1].text == "not executed: max_tool_rounds is 0"
    assert (await process.ask("hi")).text == "hi"


async def test_the_servers_tools_freeze_at_the_first_turn(open_process: Open) -> None:
    first = await open_process(servers=["calculator", "count"])
    await first.ask("hi")
    later = await open_process(COUNT, servers=["notes", "count", "big"], left=first.url)
    again = await later.ask("again")
    assert await seen(later) == ["calculator__evaluate", "count__add", "count__peek"]
    assert again.usage.rounds[0].miss_reason == "not_resident", "the tokens are the same, only the process is another"
    await later.ask("hi", "new")
    assert await seen(later, "new") == [
        "notes__put",
        "notes__get",
        "notes__list",
        "count__add",
        "count__peek",
        *ALL[-1:],
    ]


async def test_a_tool_that_is_there_no_more_answers_with_an_error(open_process: Open) -> None:
    first = await open_process(servers=["count"])
    await first.ask("hi")
    later = await open_process(COUNT, servers=["notes"], left=first.url)
    answer = await later.ask("count")
    assert answer.server_calls[0].status == "failed"
    assert "there is no tool 'count__add'" in answer.text


CHANGED = (client_tools(), client_tools(spec("other", x="string")), ToolSelection(given=True))


async def test_a_client_that_changes_its_tools_keeps_what_the_model_sampled(open_process: Open) -> None:
    process = await open_process(
        says("think", "So.", reasoning="Let me think."), asks("count", call("count__add", by=1), text="Now:")
    )
    for text in ("think", "count", "hi"):
        await process.ask(text)
    (before,) = (await process.session()).ledgers.values()
    answer = await process.ask("again", tools=client_tools(servers={"count": None}))
    assert answer.usage.rounds[0].miss_reason == "tools_changed"
    session = await process.session()
    (after,) = [one for one in session.ledgers.values() if one.fingerprint != before.fingerprint]
    assert after.items == len(session.items)
    assert before.items == len(session.items) - 2
    assert after.span(0) != before.span(0), "the tool block"
    for index in range(1, before.items):
        assert after.span(index) == before.span(index)


async def test_tools_may_change_back_and_forth_without_a_token_of_the_model_changing(open_process: Open) -> None:
    rules: list[Rule] = [says(f"say {n}", f"<{n}>", reasoning="Hm." * n) for n in range(8)]
    process = await open_process(*rules)
    for number in range(8):
        tools = CHANGED[number % 3]
        answer = await process.ask(f"say {number}", tools=tools)
        expected = "tools_changed" if number else None
        assert answer.usage.rounds[0].miss_reason == expected
    session = await process.session()
    assert {one.items for one in session.ledgers.values()} >= {len(session.items)}
    texts = [process.models.default.codec.detokenize(one.tokens) for one in session.ledgers.values()]
    last = max(texts, key=len)
    for number in range(8):
        expected = (
            f"<|assistant|><think>{'Hm.' * number}</think><{number}><|end|>" if number else "<|assistant|><0><|end|>"
        )
        assert expected in last


async def test_the_tokens_after_a_change_of_tools_are_what_a_new_session_would_have(open_process: Open) -> None:
    process = await open_process()
    for text in ("one", "two"):
        await process.ask(text)
    await process.ask("three", tools=client_tools())
    told = [*(await process.items())[:4], UserItem("three")]
    await process.ask(told, "fresh", tools=client_tools())
    fresh = next(iter((await process.session("fresh")).ledgers.values()))
    changed = (await process.session()).ledgers[fresh.fingerprint]
    assert changed.tokens == fresh.tokens


def test_what_was_opened_in_another_way_is_rendered_anew() -> None:
    template = TEMPLATE.replace("<|assistant|>{%- endif", "<|assistant|>{%- if tools -%}!{%- endif -%}{%- endif")
    assert template != TEMPLATE
    codec = TemplateCodec("careful", ScriptedTokenizer(), template)
    items: list[Item] = [UserItem("hi"), AssistantItem("said"), UserItem("and?")]
    opened = prompt(codec, (), {}, 0, items[:1])
    ledger = Ledger(opened.fingerprint)
    ledger.append(opened.spans[0])
    ledger.append([*opened.opening, *codec.tokenize("sampled")])
    old = {ledger.fingerprint: ledger}
    with_tools = prompt(codec, (WEATHER,), old, 2, items)
    without = prompt(codec, (), old, 2, items)
    assert with_tools.changed == "tools"
    assert "said" in codec.detokenize(with_tools.all_tokens(old)), "tokens of another opening do not follow this one"
    assert "sampled" not in codec.detokenize(with_tools.all_tokens(old))
    assert "sampled" in codec.detokenize(without.all_tokens(old))


async def test_another_model_has_a_ledger_of_its_own(open_process: Open) -> None:
    process = await open_process(says("think", "So.", reasoning="Hm."))
    await process.ask("think")
    other = await process.ask("again", model="other")
    assert other.model == "other"
    assert other.usage.rounds[0].miss_reason is None
    session = await process.session()
    assert [ledger.items for ledger in session.ledgers.values()] == [2, 4]
    back = await process.ask("and back")
    assert back.usage.rounds[0].computed == back.usage.rounds[0].new
    assert [ledger.items for ledger in (await process.session()).ledgers.values()] == [6, 4]


async def test_old_ledgers_go_so_that_a_session_keeps_a_few(open_process: Open) -> None:
    process = await open_process()
    for number in range(7):
        await process.ask(f"say {number}", tools=client_tools(spec(f"tool_{number}")))
    assert len((await process.session()).ledgers) == 4
    assert (await process.ask([*history(await process.items()), UserItem("x")])).text == "x"


async def test_a_client_that_changes_its_tools_may_do_so_with_its_results(open_process: Open) -> None:
    process = await open_process(TWO)
    paused = await process.ask("weather?", tools=client_tools())
    done = await process.ask(results(paused, "rain", "sun"), tools=client_tools(WEATHER, spec("other")))
    assert done.run_id == paused.run_id
    assert await seen(process) == ["weather", "other"]
    assert [one.model_text for one in await process.items() if isinstance(one, ToolResultItem)] == ["rain", "sun"]


class CountingCodec(TemplateCodec):
    """Counts how often a conversation is rendered."""

    rendered = 0

    def suffix(self, *arguments: Any, **options: Any) -> Rendered:
        self.rendered += 1
        return super().suffix(*arguments, **options)


def test_a_change_of_tools_renders_a_long_conversation_once() -> None:
    """It took one rendering of the whole for each of the model's turns, and the server stood still meanwhile."""
    codec = CountingCodec("counting", ScriptedTokenizer(), TEMPLATE)
    items: list[Item] = [item for n in range(50) for item in (UserItem(f"ask {n}"), AssistantItem(f"say {n}"))]
    opened = prompt(codec, (), {}, 0, items)
    ledger = Ledger(opened.fingerprint)
    for item, span in zip(items, opened.spans, strict=True):
        ledger.append(span)
        if isinstance(item, AssistantItem):  # as the model said it, end and all
            ledger.cut(ledger.items - 1)
            ledger.append([*opened.opening, *codec.tokenize(f"<{item.text}>"), *codec.info.stop_tokens])
    codec.rendered = 0
    changed = prompt(codec, (WEATHER,), {ledger.fingerprint: ledger}, len(items), items)
    assert codec.rendered == 1
    assert all(f"<say {n}><|end|>" in codec.detokenize(changed.spans[2 * n + 1]) for n in range(50))
