"""What requests for conversations may hold: fields, and types of items. docs/openai-conversations.md shows these."""

SERVED: dict[str, str] = {
    "items": "items as in the input of a response, up to 20",
    "metadata": "up to 16 pairs, names of up to 64 and texts of up to 512 characters; null: none",
}

KEPT: dict[str, str] = {
    "message": "the user's, a system message (also `developer`), or what the assistant said; also without `type`",
    "reasoning": "the reasoning of what follows it, where it has `content`",
    "function_call": "a call of a client's tool",
    "function_call_output": "its output: a text, or a list with `input_text`, `input_image`, `input_file`",
    "custom_tool_call": "a call of a client's custom tool",
    "custom_tool_call_output": "its output",
    "mcp_call": "a call of a server's tool, with its output",
}
"""The items that a conversation can be given."""
