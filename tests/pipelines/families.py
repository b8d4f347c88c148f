"""Chat templates in the manner of well-known families, each with the way in which that family looks around itself."""

CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

# Results of one round share a turn; reasoning is left out of all turns before the last request.
QWEN = """\
{%- if tools -%}
{{ '<|im_start|>system\\n' }}{% if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif -%}
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' -%}
{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif -%}
{%- set ns = namespace(searching=true, last_query_index=messages | length - 1) -%}
{%- for message in messages[::-1] -%}
{%- set index = (messages | length - 1) - loop.index0 -%}
{%- if ns.searching and message.role == 'user' and not message.content.startswith('<tool_response>') -%}
{%- set ns.searching = false -%}{%- set ns.last_query_index = index -%}
{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' -%}
{{ '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last_query_index and (loop.last or message.reasoning_content) -%}
{{ '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}
{%- endif -%}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
{{ '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments + '}\\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\\n' }}
{%- elif message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{ '<|im_start|>user' }}{%- endif -%}
{{ '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""  # noqa: E501

# The tools stand in the first user message, after a date; more than one call at once is refused.
LLAMA = """\
{{- bos_token }}
{%- if messages[0].role == 'system' -%}{%- set system = messages[0].content -%}{%- set messages = messages[1:] -%}
{%- else -%}{%- set system = '' -%}{%- endif -%}
{{ '<|system|>Today: ' + strftime_now('%d %b %Y') + '\\n\\n' + system + '<|eot|>' }}
{%- if tools -%}
{%- if messages | length != 0 -%}{%- set first = messages[0].content | trim -%}{%- set messages = messages[1:] -%}
{%- else -%}{{ raise_exception('Cannot put tools in the first user message when there is none') }}{%- endif -%}
{{ '<|user|>\\n\\n' }}{% for tool in tools %}{{ tool | tojson(indent=4) }}{% endfor %}{{ first + '<|eot|>' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.tool_calls -%}
{%- if message.tool_calls | length != 1 -%}{{ raise_exception('only one call at once') }}{%- endif -%}
{%- set call = message.tool_calls[0].function -%}
{{ '<|assistant|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{ '}<|eot|>' }}
{%- elif message.role == 'tool' -%}{{ '<|ipython|>\\n\\n' }}{{ message.content | tojson }}{{ '<|eot|>' }}
{%- else -%}{{ '<|' + message.role + '|>\\n\\n' + message.content | trim + '<|eot|>' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|assistant|>\\n\\n' }}{%- endif -%}"""

# Roles must alternate, the tools stand before the last request, ids have a length.
MISTRAL = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{ '[SYSTEM]' + messages[0].content + '[/SYSTEM]' }}
{%- set messages = messages[1:] -%}{%- endif -%}
{%- set requests = messages | selectattr('role', 'equalto', 'user') | list -%}
{%- set ns = namespace(index=0) -%}
{%- for message in messages -%}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) -%}
{%- if (message.role == 'user') != (ns.index % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
{%- set ns.index = ns.index + 1 -%}
{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
{%- if tools and message == requests[-1] -%}[TOOLS]{{ tools | tojson }}[/TOOLS]{%- endif -%}
{{ '[INST]' + message.content + '[/INST]' }}
{%- elif message.tool_calls -%}
[CALLS]{%- for call in message.tool_calls -%}
{%- if call.id | length != 9 -%}{{ raise_exception('ids must have nine characters') }}{%- endif -%}
{{ call.function | tojson }}{{ call.id }}
{%- endfor -%}{{ eos_token }}
{%- elif message.role == 'assistant' -%}{{ ' ' + message.content + eos_token }}
{%- elif message.role == 'tool' -%}{{ '[RESULTS]' + message.content + ' of ' + message.tool_call_id + '[/RESULTS]' }}
{%- else -%}{{ raise_exception('unknown role') }}
{%- endif -%}
{%- endfor -%}"""

# Instructions go into the first request; roles alternate by their number; there are no tools.
GEMMA = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{%- set prefix = messages[0].content + '\\n\\n' -%}
{%- set messages = messages[1:] -%}{%- else -%}{%- set prefix = '' -%}{%- endif -%}
{%- for message in messages -%}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\\n' + (prefix if loop.first else '') + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}"""

# What opens the calls stands before the first of the whole conversation only.
DEEPSEEK = """\
{%- set ns = namespace(called=false, system='') -%}
{%- for message in messages -%}{%- if message.role == 'system' -%}{%- set ns.system = message.content -%}{%- endif -%}
{%- endfor -%}{{ bos_token }}{{ ns.system }}
{%- for message in messages -%}
{%- if message.role == 'user' -%}{{ '<User>' + message.content }}
{%- elif message.role == 'assistant' -%}
{%- for call in message.tool_calls or [] -%}
{%- if not ns.called -%}{{ '<calls>' }}{%- set ns.called = true -%}{%- endif -%}
{{ '<call>' + call.function.name + call.function.arguments + '</call>' }}
{%- endfor -%}
{{ '<Assistant>' + message.content + eos_token }}
{%- elif message.role == 'tool' -%}{{ '<output>' + message.content + '</output>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<Assistant>' }}{%- endif -%}"""

SHORT_SIGHTED = {"chatml": CHATML, "qwen": QWEN, "llama": LLAMA, "mistral": MISTRAL, "gemma": GEMMA}
"""Those that look no further back than to the last turn."""
