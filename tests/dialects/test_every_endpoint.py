"""Every endpoint of OpenAI's and of Anthropic's that is served, by their clients of both kinds, whole and streamed.

On a scripted model and on real ones: so these tests know how an answer is made up, and not what it says.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.dialects.either import entered, got, listed
from tests.dialects.test_responses_e2e import Point
from tests.dialects.turns import WEATHER
from tests.e2e.server import Server, script
from tests.embedded import FORMS
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

SAID: list[Any] = [{"role": "user", "content": "Say hello."}]
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Ulm?"}]
BRIEF = {"model": "default", "temperature": 0}
GREEDY = {"model": "default", "extra_body": {"temperature": 0}}
"""Anthropic's client has no word for it any more."""
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": WEATHER}
FIRST, *OTHERS = FORMS
AT_LENGTH = [pytest.param(*form.values, id=form.id, marks=[*form.marks, pytest.mark.thorough]) for form in OTHERS]
BACKGROUND = {"input": "slow", "background": True, "max_output_tokens": 400}


@pytest.fixture(scope="module", params=["scripted", FIRST, *AT_LENGTH])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model that generates, and one that embeds."""
    if request.param == "scripted":
        yield request.getfixturevalue("server")
        return
    folder = tmp_path_factory.mktemp("every-endpoint")
    embeds = script(folder / "vectors.json", cells=64, embeds={"width": 8})
    running = Server(folder, request.param, ("--model", embeds)).start()
    yield running
    running.close()


@pytest.fixture(params=[openai.OpenAI, openai.AsyncOpenAI])
async def of_openai(request: pytest.FixtureRequest, served: Server) -> AsyncIterator[Any]:
    client = request.param(base_url=f"{served.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S)
    async with entered(client):
        yield client


@pytest.fixture(params=[anthropic.Anthropic, anthropic.AsyncAnthropic])
async def of_anthropic(request: pytest.FixtureRequest, served: Server) -> AsyncIterator[Any]:
    client = request.param(base_url=served.url, api_key="none", max_retries=0, timeout=HANGS_S)
    async with entered(client):
        yield client


# OpenAI's


async def test_chat_completions(of_openai: Any) -> None:
    chat = of_openai.chat.completions
    fields: dict[str, Any] = {**BRIEF, "messages": SAID, "max_tokens": 64}
    whole = await got(chat.create(**fields))
    chunks = await listed(chat.create(**fields, stream=True, stream_options={"include_usage": True}))
    async with entered(chat.stream(**fields)) as stream:
        events = await listed(stream)
        final = await got(stream.get_final_completion())
    text = whole.choices[0].message.content
    assert text
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == text
    assert final.choices[0].message.content == text
    assert [one.snapshot for one in events if one.type == "content.delta"][-1] == text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_a_call_and_a_parsed_answer_in_chat_completions(of_openai: Any) -> None:
    chat = of_openai.chat.completions
    named = {"type": "function", "function": {"name": "weather"}}
    tools = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
    calls: dict[str, Any] = {**BRIEF, "messages": ASKED, "max_tokens": 200, "tools": tools, "tool_choice": named}
    (whole,) = (await got(chat.create(**calls))).choices[0].message.tool_calls
    async with entered(chat.stream(**calls)) as stream:
        events = await listed(stream)
        (made,) = (await got(stream.get_final_completion())).choices[0].message.tool_calls
    pieces = [one for one in events if one.type == "tool_calls.function.arguments.delta"]
    assert json.loads(whole.function.arguments) == json.loads(made.function.arguments) == pieces[-1].parsed_arguments
    assert "".join(one.arguments_delta for one in pieces) == pieces[-1].arguments == made.function.arguments
    pointing = [{"role": "user", "content": '{"a": 7}'}]
    parsed = await got(chat.parse(**BRIEF, messages=pointing, max_tokens=64, response_format=Point))
    assert isinstance(parsed.choices[0].message.parsed, Point)


async def test_completions(of_openai: Any) -> None:
    fields = {**BRIEF, "prompt": "The sun is", "max_tokens": 8}
    whole = await got(of_openai.completions.create(**fields))
    chunks = await listed(of_openai.completions.create(**fields, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert whole.usage.completion_tokens > 0


async def test_embeddings_and_models(of_openai: Any) -> None:
    made = await got(of_openai.embeddings.create(model="vectors", input=["blue", "sky"]))
    assert [len(one.embedding) for one in made.data] == [8, 8]
    first, *others = await listed(of_openai.models.list())
    assert "vectors" in [one.id for one in others]
    assert await got(of_openai.models.retrieve(first.id)) == first


async def test_responses(of_openai: Any) -> None:
    responses = of_openai.responses
    fields: dict[str, Any] = {**BRIEF, "input": SAID, "max_output_tokens": 64}
    whole = await got(responses.create(**fields))
    raw = await listed(responses.create(**fields, stream=True))
    async with entered(responses.stream(**fields)) as stream:
        events = await listed(stream)
        final = await got(stream.get_final_response())
    assert whole.output_text
    assert whole.output_text == raw[-1].response.output_text == final.output_text
    _holds_every_snapshot(events, final)
    assert (await got(responses.input_tokens.count(model="default", input=SAID))).input_tokens == (
        whole.usage.input_tokens
    )


def _holds_every_snapshot(events: list[Any], final: Any) -> None:
    """Each piece of a text comes with all of the text so far, and at the end that is the answer."""
    text = ""
    for event in events:
        if event.type == "response.output_text.delta":
            text += event.delta
            assert event.snapshot == text
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert text == final.output_text


async def test_a_call_and_a_parsed_answer_in_responses(of_openai: Any) -> None:
    responses = of_openai.responses
    tools = [{"type": "function", **FUNCTION, "strict": False}]
    named = {"type": "function", "name": "weather"}
    calls: dict[str, Any] = {**BRIEF, "input": ASKED, "tools": tools, "tool_choice": named, "max_output_tokens": 200}
    async with entered(responses.stream(**calls)) as stream:
        pieces = [one for one in await listed(stream) if one.type == "response.function_call_arguments.delta"]
        (made,) = (await got(stream.get_final_response())).output
    assert "".join(one.delta for one in pieces) == pieces[-1].snapshot == made.arguments
    (whole,) = (await got(responses.create(**calls))).output
    assert json.loads(whole.arguments) == json.loads(made.arguments)
    parsed = await got(responses.parse(**BRIEF, input='{"a": 7}', max_output_tokens=64, text_format=Point))
    assert isinstance(parsed.output_parsed, Point)


async def test_responses_that_are_kept(of_openai: Any) -> None:
    responses = of_openai.responses
    fields: dict[str, Any] = {**BRIEF, "max_output_tokens": 64}
    first = await got(responses.create(**fields, input=SAID))
    second = await got(responses.create(**fields, input="And again.", previous_response_id=first.id))
    assert await got(responses.retrieve(second.id)) == second
    (brought,) = await listed(responses.input_items.list(second.id))
    assert brought.content[0].text == "And again."
    told = await listed(responses.retrieve(second.id, stream=True))
    assert told[3:] == await listed(responses.retrieve(second.id, stream=True, starting_after=2))
    async with entered(responses.stream(response_id=second.id)) as stream:
        _holds_every_snapshot(await listed(stream), await got(stream.get_final_response()))
    begun = await got(responses.create(**BRIEF, **BACKGROUND))
    assert (begun.background, begun.status) == (True, "in_progress")
    assert (await got(responses.cancel(begun.id))).status in ("cancelled", "completed")
    await got(responses.delete(second.id))
    with pytest.raises(openai.NotFoundError):
        await got(responses.retrieve(second.id))


async def test_conversations(of_openai: Any) -> None:
    conversations = of_openai.conversations
    made = await got(conversations.create(items=SAID, metadata={"topic": "hello"}))
    assert await got(conversations.retrieve(made.id)) == made
    assert (await got(conversations.update(made.id, metadata={}))).metadata == {}
    fields: dict[str, Any] = {
        **BRIEF,
        "max_output_tokens": 64,
        "tools": [],
        "conversation": made.id,
        "input": "And again.",
    }
    async with entered(of_openai.responses.stream(**fields)) as stream:
        final = await got(stream.get_final_response())
    items = await listed(conversations.items.list(made.id, order="asc"))
    assert [one.content[0].text for one in items] == [SAID[0]["content"], "And again.", final.output_text]
    added = (await got(conversations.items.create(made.id, items=SAID))).data[0]
    assert await got(conversations.items.retrieve(added.id, conversation_id=made.id)) == added
    await got(conversations.items.delete(added.id, conversation_id=made.id))
    assert (await got(conversations.delete(made.id))).deleted


# Anthropic's


async def test_messages(of_anthropic: Any) -> None:
    fields: dict[str, Any] = {**GREEDY, "messages": SAID, "max_tokens": 64}
    for messages in (of_anthropic.messages, of_anthropic.beta.messages):
        whole = await got(messages.create(**fields))
        raw = await listed(messages.create(**fields, stream=True))
        async with entered(messages.stream(**fields)) as stream:
            events = await listed(stream)
            final = await got(stream.get_final_message())
        (block,) = whole.content
        pieces = [one for one in events if one.type == "text"]
        for number, piece in enumerate(pieces, start=1):
            assert piece.snapshot == "".join(one.text for one in pieces[:number])
        assert block.text
        assert pieces[-1].snapshot == final.content[0].text == block.text
        assert "".join(one.delta.text for one in raw if one.type == "content_block_delta") == block.text
        assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


async def test_a_call_in_messages(of_anthropic: Any) -> None:
    tool = {"name": "weather", "description": "Tells it.", "input_schema": WEATHER}
    named = {"type": "tool", "name": "weather"}
    calls: dict[str, Any] = {**GREEDY, "messages": ASKED, "max_tokens": 200, "tools": [tool], "tool_choice": named}
    async with entered(of_anthropic.messages.stream(**calls)) as stream:
        pieces = [one for one in await listed(stream) if one.type == "input_json"]
        final = await got(stream.get_final_message())
    (made,) = final.content
    assert (final.stop_reason, made.name) == ("tool_use", "weather")
    assert json.loads("".join(one.partial_json for one in pieces)) == pieces[-1].snapshot == made.input
    (whole,) = (await got(of_anthropic.messages.create(**calls))).content
    assert whole.input == made.input


async def test_counts_and_models(of_anthropic: Any) -> None:
    counted = await got(of_anthropic.messages.count_tokens(model="default", messages=SAID, system="Be kind."))
    answer = await got(of_anthropic.messages.create(model="default", messages=SAID, system="Be kind.", max_tokens=4))
    assert counted.input_tokens == answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    first, *_ = await listed(of_anthropic.models.list())
    assert await got(of_anthropic.models.retrieve(first.id)) == first
