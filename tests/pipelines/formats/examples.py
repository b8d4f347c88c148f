"""Calls as each family writes them: f(a="b"), and then g(n=1) beside it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """`broken`: what begins as a call and is none. `first`: calls count at the beginning of the turn alone."""

    one: str
    two: str
    broken: str
    first: bool = False
    single: bool = False
    """A turn that is held has one call."""
    loose: str = ""
    """What of a call is text while no token of the vocabulary shows it, where that is not all of it."""


def _dsml(section: str) -> Example:
    f = '<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">b</｜DSML｜parameter>\n</｜DSML｜invoke>'
    g = '<｜DSML｜invoke name="g">\n<｜DSML｜parameter name="n" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>'
    broken = '<｜DSML｜invoke name="f">\nwhat</｜DSML｜invoke>'
    one, two, neither = (f"<｜DSML｜{section}>\n{calls}\n</｜DSML｜{section}>" for calls in (f, f"{f}\n{g}", broken))
    return Example(one, two, neither)


def _k3(*calls: str) -> str:
    return f"<|open|>tools<|sep|>{''.join(calls)}<|close|>tools<|sep|>"


def _k3_call(name: str, number: int, *arguments: str) -> str:
    return f'<|open|>call tool="{name}" index="{number}"<|sep|>{"".join(arguments)}<|close|>call<|sep|>'


_K3_A = '<|open|>argument key="a" type="string"<|sep|>b<|close|>argument<|sep|>'
_K3_N = '<|open|>argument key="n" type="number"<|sep|>1<|close|>argument<|sep|>'


def _m3(*calls: str) -> str:
    ns = "]<]minimax[>["
    return "".join((f"{ns}<tool_call>\n", *calls, f"{ns}</tool_call>")).replace("@", ns)


def _muse(name: str, inside: str) -> str:
    return (
        f'to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n{inside}'
        "</atem:invoke>\n</atem:function_calls>"
    )


_MUSE_F = _muse("f", '<atem:parameter name="a">b</atem:parameter>\n')
_MUSE_G = _muse("g", '<atem:parameter name="n">1</atem:parameter>\n')

EXAMPLES = {
    "hermes": Example(
        '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"n": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a" "b"}}\n</tool_call>',
    ),
    "generic": Example(
        '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {"n": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a" "b"}}\n</tool_call>',
    ),
    "firefunction": Example(
        'functools[{"name": "f", "arguments": {"a": "b"}}]',
        'functools[{"name": "f", "arguments": {"a": "b"}}, {"name": "g", "arguments": {"n": 1}}]',
        'functools[{"name": "f", "arguments": {"a" "b"}}]',
        loose="import functools",
    ),
    "command-r-plus": Example(
        'Action:\n```json\n[\n    {\n        "tool_name": "f",\n        "parameters": {"a": "b"}\n    }\n]```',
        'Action:\n```json\n[\n    {\n        "tool_name": "f",\n        "parameters": {"a": "b"}\n    },\n'
        '    {\n        "tool_name": "g",\n        "parameters": {"n": 1}\n    }\n]```',
        'Action:\n```json\n[\n    {\n        "tool_name": "f",\n        "parameters": {"a" "b"}\n    }\n]```',
        loose="Action:\n```",
    ),
    "qwen3-coder": Example(
        "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n"
        "<function=g>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\nwhat</function>\n</tool_call>",
        loose="<tool_call>\n<func</tool_call>",
    ),
    "llama3": Example(
        '{"name": "f", "parameters": {"a": "b"}}',
        '{"name": "f", "parameters": {"a": "b"}}<|python_tag|>{"name": "g", "parameters": {"n": 1}}',
        '{"name": "f", "parameters": {"a" "b"}}',
        first=True,
        single=True,
    ),
    "mistral": Example(
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "b"}, "id": "abcdefghi"}]',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "b"}, "id": "abcdefghi"}, '
        '{"name": "g", "arguments": {"n": 1}, "id": "abcdefghj"}]',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a" "b"}, "id": "abcdefghi"}]',
    ),
    "mistral-named": Example(
        '[TOOL_CALLS]f[ARGS]{"a": "b"}',
        '[TOOL_CALLS]f[ARGS]{"a": "b"}[TOOL_CALLS]g[ARGS]{"n": 1}',
        '[TOOL_CALLS]f[ARGS]{"a" "b"}',
    ),
    "deepseek": Example(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a": "b"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a": "b"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n'
        '{"n": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"a" "b"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek-v3.1": Example(
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "b"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "b"}<｜tool▁call▁end｜>'
        '<｜tool▁call▁begin｜>g<｜tool▁sep｜>{"n": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a" "b"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "glm": Example(
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>\n"
        "<tool_call>g\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\nwhat</tool_call>",
    ),
    "hunyuan": Example(
        "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a"
        "</arg_key:opensource>\n<arg_value:opensource>b</arg_value:opensource>\n</tool_call:opensource>\n"
        "</tool_calls:opensource>",
        "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a"
        "</arg_key:opensource>\n<arg_value:opensource>b</arg_value:opensource>\n</tool_call:opensource>\n"
        "<tool_call:opensource>g<tool_sep:opensource>\n<arg_key:opensource>n"
        "</arg_key:opensource>\n<arg_value:opensource>1</arg_value:opensource>\n</tool_call:opensource>\n"
        "</tool_calls:opensource>",
        "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\nwhat</tool_call:opensource>\n"
        "</tool_calls:opensource>",
    ),
    "kimi-k2": Example(
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "b"}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": "b"}'
        '<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{"n": 1}'
        "<|tool_call_end|><|tool_calls_section_end|>",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a" "b"}'
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "kimi-k3": Example(
        _k3(_k3_call("f", 1, _K3_A)),
        _k3(_k3_call("f", 1, _K3_A), _k3_call("g", 2, _K3_N)),
        _k3(_k3_call("f", 1, "what")),
    ),
    "minimax-m2": Example(
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">b</parameter>\n</invoke>\n</minimax:tool_call>',
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">b</parameter>\n</invoke>\n'
        '<invoke name="g">\n<parameter name="n">1</parameter>\n</invoke>\n</minimax:tool_call>',
        '<minimax:tool_call>\n<invoke name="f">\nwhat</invoke>\n</minimax:tool_call>',
    ),
    "minimax-m1": Example(
        '<tool_calls>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_calls>',
        '<tool_calls>\n{"name": "f", "arguments": {"a": "b"}}\n{"name": "g", "arguments": {"n": 1}}\n</tool_calls>',
        '<tool_calls>\n{"name": "f", "arguments": {"a" "b"}}\n</tool_calls>',
    ),
    "minimax-m3": Example(
        _m3('@<invoke name="f">@<a>b@</a>@</invoke>\n'),
        _m3('@<invoke name="f">@<a>b@</a>@</invoke>\n', '@<invoke name="g">@<n>1@</n>@</invoke>\n'),
        _m3('@<invoke name="f">@<a>b@<c>d@</c>@</a>@</invoke>\n'),
        loose="]<]minimax[>",
    ),
    "granite": Example(
        '<|tool_call|>[{"name": "f", "arguments": {"a": "b"}}]',
        '<|tool_call|>[{"name": "f", "arguments": {"a": "b"}}, {"name": "g", "arguments": {"n": 1}}]',
        '<|tool_call|>[{"name": "f", "arguments": {"a" "b"}}]',
    ),
    "phi4": Example(
        '<|tool_call|>[{"name": "f", "arguments": {"a": "b"}}]<|/tool_call|>',
        '<|tool_call|>[{"name": "f", "arguments": {"a": "b"}}, {"name": "g", "arguments": {"n": 1}}]<|/tool_call|>',
        '<|tool_call|>[{"name": "f", "arguments": {"a" "b"}}]<|/tool_call|>',
    ),
    "nemotron": Example(
        '<TOOLCALL>[{"name": "f", "arguments": {"a": "b"}}]</TOOLCALL>',
        '<TOOLCALL>[{"name": "f", "arguments": {"a": "b"}}, {"name": "g", "arguments": {"n": 1}}]</TOOLCALL>',
        '<TOOLCALL>[{"name": "f", "arguments": {"a" "b"}}]</TOOLCALL>',
    ),
    "apriel": Example(
        '<tool_calls>[{"name": "f", "arguments": {"a": "b"}}]</tool_calls>',
        '<tool_calls>[{"name": "f", "arguments": {"a": "b"}}, {"name": "g", "arguments": {"n": 1}}]</tool_calls>',
        '<tool_calls>[{"name": "f", "arguments": {"a" "b"}}]</tool_calls>',
    ),
    "seed-oss": Example(
        "<seed:tool_call>\n<function=f>\n<parameter=a>b</parameter>\n</function>\n</seed:tool_call>",
        "<seed:tool_call>\n<function=f>\n<parameter=a>b</parameter>\n</function>\n"
        "<function=g>\n<parameter=n>1</parameter>\n</function>\n</seed:tool_call>",
        "<seed:tool_call>\n<function=f>\nwhat</function>\n</seed:tool_call>",
    ),
    "apertus": Example(
        '<|tools_prefix|>[{"f": {"a": "b"}}]<|tools_suffix|>',
        '<|tools_prefix|>[{"f": {"a": "b"}}, {"g": {"n": 1}}]<|tools_suffix|>',
        '<|tools_prefix|>[{"f": {"a" "b"}}]<|tools_suffix|>',
    ),
    "minicpm": Example(
        '<function name="f"><param name="a">b</param></function>',
        '<function name="f"><param name="a">b</param></function>\n'
        '<function name="g"><param name="n">1</param></function>',
        '<function name="f">what</function>',
        loose="<function</param></function>",
    ),
    "gigachat": Example(
        '<|function_call|>{"name": "f", "arguments": {"a": "b"}}',
        '<|function_call|>{"name": "f", "arguments": {"a": "b"}}<|function_call|>{"name": "g", "arguments": {"n": 1}}',
        '<|function_call|>{"name": "f", "arguments": {"a" "b"}}',
    ),
    "gigachat-3.0": Example(
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {"a": "b"}}',
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {"a": "b"}}'
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "g", "arguments": {"n": 1}}',
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {"a" "b"}}',
    ),
    "llama4": Example(
        '[f(a="b")]',
        '[f(a="b"), g(n=1)]',
        '[f(a "b")]',
        first=True,
    ),
    "command-r": Example(
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "b"}}\n]<|END_ACTION|>',
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "b"}},\n    '
        '{"tool_call_id": "1", "tool_name": "g", "parameters": {"n": 1}}\n]<|END_ACTION|>',
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a" "b"}}\n]<|END_ACTION|>',
    ),
    "functionary-v3.1": Example(
        '<function=f>{"a": "b"}</function>',
        '<function=f>{"a": "b"}</function><function=g>{"n": 1}</function>',
        '<function=f>{"a" "b"}</function>',
        loose="<func</function>",
    ),
    "gpt-oss": Example(
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "b"}',
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "b"}<|call|>'
        '<|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{"n": 1}',
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a" "b"}',
        single=True,
    ),
    "gemma4": Example(
        '<|tool_call>call:f{a:<|"|>b<|"|>}<tool_call|>',
        '<|tool_call>call:f{a:<|"|>b<|"|>}<tool_call|><|tool_call>call:g{n:1}<tool_call|>',
        '<|tool_call>call:f{a <|"|>b<|"|>}<tool_call|>',
    ),
    "deepseek-v3.2": _dsml("function_calls"),
    "deepseek-v4": _dsml("tool_calls"),
    "functionary-v3.2": Example(
        'f\n{"a": "b"}',
        'f\n{"a": "b"}>>>g\n{"n": 1}',
        'f\n{"a" "b"}',
        first=True,
        loose=">>> f()",
    ),
    "muse-glimmer": Example(
        _MUSE_F,
        f"{_MUSE_F}<|eom|><|start|>assistant {_MUSE_G}",
        _muse("f", "what"),
    ),
    "lfm2": Example(
        '<|tool_call_start|>[f(a="b")]<|tool_call_end|>',
        '<|tool_call_start|>[f(a="b"), g(n=1)]<|tool_call_end|>',
        '<|tool_call_start|>[f(a "b")]<|tool_call_end|>',
    ),
    "solar-open": Example(
        '<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>f<|tool_call:args|>{"a": "b"}<|tool_call:end|><|calls|>',
        '<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>f<|tool_call:args|>{"a": "b"}<|tool_call:end|>'
        '<|tool_call:begin|>x2<|tool_call:name|>g<|tool_call:args|>{"n": 1}<|tool_call:end|><|calls|>',
        '<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>f<|tool_call:args|>{"a" "b"}<|tool_call:end|><|calls|>',
    ),
}
