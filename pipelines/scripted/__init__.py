"""A pipeline without a model: it answers from a script. For the tests of Tenuto and of agents that run on it.

Everything but the weights is real: tokens, template, tool-call format, grammars, slots, snapshots. It reads the
conversation from the tokens in its slot alone, so it answers as a model would, whoever put the tokens there.

A script is a TOML file, or a JSON file of the same shape:

    cells = 4096              # optional: tokens a slot holds; also slots = 4, batch_tokens = 512, can_truncate = true,
                              # and can_batch = true, which is told and changes nothing;
                              # drafts = 0: how many drafted tokens a step verifies;
                              # switches_reasoning = true: its chat template reads `enable_thinking` and
                              # `reasoning_effort`, and no rule's reasoning is said where the former is false;
                              # holds_calls = false: no grammar holds the calls that it makes by itself

    [[rules]]                 # the first rule whose conditions all hold answers
    user_matches = 'weather in (?P<city>[A-Z][a-z]+)'
    reasoning = "I should look that up."
    calls = [{ name = "weather", arguments = { city = "${city}" } }]

    [[rules]]
    tool_contains = "rain"
    text = "Take an umbrella: ${tool}"

Conditions: `user`, `tool`, `system` are the exact text of the last user message, of the tool results since the last
answer (joined by line breaks) and of the system message; `..._contains` is a part of it, `..._matches` a regular
expression found in it. `turn` is the number of the answer within the conversation, from 1. A rule without a `tool`
condition does not answer tool results, unless it has no conditions but `turn` and `system`.

Answers: `text`, `reasoning`, `calls` (arguments in the order of the tool's schema, or a grammar may break them), and
`raw`, which follows the text: in it `<tool_call>`, `</tool_call>`, `<think>` and `</think>` are the tokens that mean
this, so that a call can be broken where the script does not hold them.
`delay_ms` is spent on every token; `fail` makes the step at token `fail_at` (default 0) of the answer fail:
"forward" for all rows of the step, "sampler" for this row alone. In all strings `${1}` and `${name}` are the groups
of the rule's expressions, `${user}`, `${tool}` and `${system}` the texts; `$$` is a dollar sign.

Where no rule holds, the last tool results or the last user message are echoed.

With a table `embeds` the script is a model that embeds, and has no rules:

    [embeds]
    width = 16                # optional: numbers of a vector; also ranks = false, texts = 8 (the most of a step)
    delay_ms = 0              # is spent on every step
    fail_contains = "break"   # a step with such a text fails

The vector of a text depends on its bytes alone. With `ranks` a pair's score is the part of the text's words that are in
the question.
"""

from tenuto.pipelines.scripted.backend import ScriptedBackend
from tenuto.pipelines.scripted.codec import LooseCodec
from tenuto.pipelines.scripted.embedder import ScriptedEmbedder, ScriptedTextEncoder
from tenuto.pipelines.scripted.script import Script, read_script
from tenuto.pipelines.scripted.tokenizer import SWITCHED_TEMPLATE, TEMPLATE, ScriptedTokenizer

__all__ = [
    "SWITCHED_TEMPLATE",
    "TEMPLATE",
    "LooseCodec",
    "Script",
    "ScriptedBackend",
    "ScriptedEmbedder",
    "ScriptedTextEncoder",
    "ScriptedTokenizer",
    "read_script",
]
