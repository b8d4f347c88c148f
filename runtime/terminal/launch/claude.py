"""Claude Code: all of it by its environment. It speaks /v1/messages."""

import json

from tenuto.runtime.terminal.launch.agent import Agent, Installed, Setup, Target

_MODELS = ("OPUS", "SONNET", "HAIKU")


def _environment(target: Target) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": target.url,
        "ANTHROPIC_AUTH_TOKEN": target.key_or_any,
        "ANTHROPIC_MODEL": target.model,
        # What it asks of another model than the main one, titles for instance, is asked of the same.
        **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": target.model for kind in _MODELS},
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(target.context),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(target.output),
        # Its first line would differ in each conversation, and nothing after it could be shared.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _setup(target: Target) -> Setup:
    arguments: tuple[str, ...] = ()
    if target.mcp:
        server = {"type": "http", "url": f"{target.url}/mcp", "headers": target.bearer}
        arguments = (f"--mcp-config={json.dumps({'mcpServers': {'tenuto': server}})}",)
    # A key of the user's own would be sent to this server, and makes the client ask which one is meant.
    return Setup({"ANTHROPIC_API_KEY": None, **_environment(target)}, arguments)


def _installed(target: Target) -> Installed:
    # Its MCP servers stand in a file that it rewrites itself while it runs.
    use = f"claude mcp add --transport http tenuto {target.url}/mcp, once; then claude" if target.mcp else "claude"
    return Installed(".claude/settings.json", use, merged={"env": _environment(target)})


CLAUDE = Agent("claude", "Claude Code", "claude", "@anthropic-ai/claude-code", 25_000, _setup, _installed)
