"""What the chat API serves, driven as its users drive it: by the official client, sync and async, and by LangChain."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.e2e.server import Server
from tests.patience import HANGS_S

pytestmark = pytest.mark.slow

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
PROMPT = [258, *b"abc", 261, 259]
"""A conversation of the scripted model, as tokens: the user says abc, and the assistant begins."""


class Point(BaseModel):
    a: int


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=HANGS_S
    ) as client:
        yield client


def langchain(server: Server, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(  # type: ignore[call-arg]  # mypy's plugin knows the aliases of its fields alone
        model="default",
        base_url=f"{server.url}/v1",
        api_key=SecretStr("none"),
        max_retries=0,
        timeout=HANGS_S,
        **({"temperature": 0} | options),
    )


# The official client


def test_several_choices_whole_and_streamed(openai_client: openai.OpenAI) -> None:
    create = openai_client.chat.completions.create
    whole = create(model="default", messages=said("abc"), n=3, seed=1)
    assert [(one.index, one.message.content, one.finish_reason) for one in whole.choices] == [
        (index, "abc", "stop") for index in range(3)
    ]
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 3 * 4
    texts = ["", "", ""]
    stream = create(model="default", messages=said("abc"), n=3, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["abc"] * 3
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3 * 4
    assert len({chunk.id for chunk in chunks}) == 1


def test_logprobs_spell_the_text(openai_client: openai.OpenAI) -> None:
    choice = openai_client.chat.completions.create(
        model="default", messages=said("Grüße"), logprobs=True, top_logprobs=2, temperature=0
    ).choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert b"".join(bytes(one.bytes or []) for one in choice.logprobs.content).decode() == "Grüße"
    for one in choice.logprobs.content:
        assert len(one.top_logprobs) == 2
        assert one.top_logprobs[0].logprob == one.logprob == 0.0


async def test_logprobs_are_streamed_with_their_text(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(
        model="default", messages=said("abc"), logprobs=True, stream=True
    )
    tokens = []
    async for chunk in stream:
        for choice in chunk.choices:
            if choice.logprobs is not None:
                tokens += [one.token for one in choice.logprobs.content or []]
    assert tokens == ["a", "b", "c"]


async def test_a_bias_forbids_a_token(async_client: openai.AsyncOpenAI) -> None:
    answer = await async_client.chat.completions.create(
        model="default",
        messages=said("abc"),
        logit_bias={"98": -100},
        presence_penalty=0.5,
        frequency_penalty=0.5,
        temperature=0,
    )
    assert "b" not in (answer.choices[0].message.content or "b")


def test_a_parsed_answer_is_the_model_that_was_asked_for(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.parse(model="default", messages=said('{"a": 7}'), response_format=Point)
    assert answer.choices[0].message.parsed == Point(a=7)


async def test_an_answer_may_be_any_json_object(async_client: openai.AsyncOpenAI) -> None:
    answer = await async_client.chat.completions.create(
        model="default", messages=said('{"b": [1, 2]}'), response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content or "") == {"b": [1, 2]}


def test_calls_are_narrowed_to_the_allowed_tools(openai_client: openai.OpenAI) -> None:
    other: Any = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    allowed: Any = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
    message = (
        openai_client.chat.completions.create(
            model="default",
            messages=said("the weather in Ulm"),
            tools=[other, WEATHER],
            tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        )
        .choices[0]
        .message
    )
    assert message.tool_calls is not None
    assert [call.function.name for call in message.tool_calls if call.type == "function"] == ["weather"]


def test_reasoning_goes_both_ways(openai_client: openai.OpenAI) -> None:
    first = openai_client.chat.completions.create(model="default", messages=said("think")).choices[0].message
    assert first.model_extra is not None
    assert first.model_extra["reasoning_content"] == "let me see"
    echo: Any = {"role": "assistant", "content": first.content, "reasoning_content": "let me see"}
    second = openai_client.chat.completions.create(model="default", messages=[*said("think"), echo, *said("again")])
    assert second.choices[0].message.content == "again"
    assert second.model_extra is not None
    assert second.model_extra["tenuto"]["status"] == "completed"


@pytest.mark.parametrize(
    ("part", "note"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "image: image/*"),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, "audio: audio/wav"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk="}}, "file: application/pdf"),
    ],
)
def test_what_the_model_cannot_see_reads_as_a_note(
    openai_client: openai.OpenAI, part: dict[str, Any], note: str
) -> None:
    content: Any = [{"type": "text", "text": "What is this?"}, part]
    answer = openai_client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}])
    assert answer.choices[0].message.content == f"What is this?\n[{note}, not shown: the model reads text only]"
    assert answer.model_extra is not None
    (told,) = answer.model_extra["tenuto"]["diagnostics"]
    assert (told["kind"], told["what"]) == ("left_out", note.partition(":")[0])


def test_text_completions(openai_client: openai.OpenAI) -> None:
    create = openai_client.completions.create
    whole = create(model="default", prompt=PROMPT, n=2, logprobs=1, temperature=0)
    assert [choice.text for choice in whole.choices] == ["abc", "abc"]
    assert whole.choices[1].logprobs is not None
    assert whole.choices[1].logprobs.tokens == ["a", "b", "c"]
    assert whole.choices[1].logprobs.text_offset == [0, 1, 2]
    echoed = create(model="default", prompt=["one", "two"], echo=True)
    assert [choice.text for choice in echoed.choices] == ["one", "two"]
    with pytest.raises(openai.BadRequestError) as refused:
        create(model="default", prompt="a", suffix="b")
    assert refused.value.param == "suffix"


async def test_text_completions_streamed(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.completions.create(
        model="default", prompt=[PROMPT, PROMPT], stream=True, stream_options={"include_usage": True}
    )
    texts, last = ["", ""], None
    async for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        last = chunk
    assert texts == ["abc", "abc"]
    assert last is not None
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (2 * len(PROMPT), 2 * 4)


# LangChain


def test_langchain_asks_and_streams(server: Server) -> None:
    model = langchain(server)
    answer = model.invoke("Hello.")
    assert (answer.content, answer.response_metadata["finish_reason"]) == ("Hello.", "stop")
    assert isinstance(answer, AIMessage)
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 7
    chunks = list(langchain(server, stream_usage=True).stream("Hello."))
    assert "".join(str(chunk.content) for chunk in chunks) == "Hello."
    assert sum((chunk.usage_metadata or {"output_tokens": 0})["output_tokens"] for chunk in chunks) == 7


async def test_langchain_asks_asynchronously(server: Server) -> None:
    assert (await langchain(server).ainvoke("Hello.")).content == "Hello."


def test_langchain_has_several_choices_logprobs_and_stops(server: Server) -> None:
    generated = langchain(server, n=2, logprobs=True, top_logprobs=1).generate([[HumanMessage("abcdef")]], stop=["ef"])
    assert [one.text for one in generated.generations[0]] == ["abcd", "abcd"]
    info = generated.generations[0][0].generation_info or {}
    assert [one["token"] for one in info["logprobs"]["content"]] == ["a", "b", "c", "d"]


def test_langchains_tools_make_a_round_trip(server: Server) -> None:
    model = langchain(server).bind_tools([WEATHER], strict=True)
    question = HumanMessage("the weather in Ulm")
    asked = model.invoke([question])
    assert isinstance(asked, AIMessage)
    [call] = asked.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Ulm"})
    answer = model.invoke([question, asked, ToolMessage("sun", tool_call_id=call["id"])])
    assert answer.content == "Take a hat: sun"


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_gets_structured_answers(server: Server, method: Any) -> None:
    assert langchain(server).with_structured_output(Point, method=method).invoke('{"a": 7}') == Point(a=7)


def test_langchain_sees_our_errors(server: Server) -> None:
    image = {"type": "image_url", "image_url": {"url": "ftp://example.org/a.png"}}
    with pytest.raises(openai.BadRequestError) as refused:
        langchain(server).invoke([HumanMessage([{"type": "text", "text": "?"}, image])])
    assert refused.value.param == "messages[0].content[1].image_url.url"


# Embeddings


def test_embeddings_whole_and_in_the_clients_own_base64(openai_client: openai.OpenAI) -> None:
    """The client asks for base64 where its user names no format, and decodes it."""
    texts = ["blue", "sky", "blue"]
    as_base64 = openai_client.embeddings.create(model="vectors", input=texts)
    as_floats = openai_client.embeddings.create(model="vectors", input=texts, encoding_format="float")
    assert [one.embedding for one in as_base64.data] == [one.embedding for one in as_floats.data]
    assert [one.index for one in as_base64.data] == [0, 1, 2]
    assert as_base64.data[0].embedding == as_base64.data[2].embedding != as_base64.data[1].embedding
    assert as_base64.usage.prompt_tokens == as_base64.usage.total_tokens == 5 + 4 + 5
    shortened = openai_client.embeddings.create(model="any-name", input="blue", dimensions=3).data[0].embedding
    assert sum(number**2 for number in shortened) == pytest.approx(1)


async def test_so_they_are_asynchronously_and_by_tokens(async_client: openai.AsyncOpenAI) -> None:
    by_text = await async_client.embeddings.create(model="vectors", input="blue")
    by_tokens = await async_client.embeddings.create(model="vectors", input=[*b"blue", 261])
    assert by_text.data[0].embedding == by_tokens.data[0].embedding
    with pytest.raises(openai.BadRequestError, match=r"Shorten input\[1\]") as refused:
        await async_client.embeddings.create(model="vectors", input=["a", "x" * 100])
    assert refused.value.param == "input[1]"
    with pytest.raises(openai.BadRequestError, match="generates none"):
        await async_client.chat.completions.create(model="vectors", messages=said("hi"))
