"""A server made with fastmcp: tools that ask a person, tell how far they are, and write messages."""

from fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent

server = FastMCP("fastmcp", instructions="Add with the add tool.")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def greet(context: Context) -> str:
    """Greet somebody by the name that they give."""
    answer = await context.elicit("What is your name?", response_type=str)
    return f"Hello, {answer.data}." if answer.action == "accept" else "Hello, stranger."


@server.tool
async def ask_model(question: str, context: Context) -> str:
    """Let the client's model answer."""
    if hasattr(context, "sample"):
        answer = await context.sample(question, max_tokens=20)
        return f"The model says {answer.text}."
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=question))  # fastmcp 4 has no more
    told = await context.session.create_message([asked], max_tokens=20)
    return f"The model says {told.content.text}."


@server.tool
async def count(to: int, context: Context) -> str:
    """Count, and tell of each number."""
    for number in range(to):
        await context.report_progress(number + 1, to)
        await context.info(f"counted {number + 1}")
    return f"counted to {to}"


if __name__ == "__main__":
    server.run(show_banner=False)
