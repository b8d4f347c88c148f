"""What is made of the chat templates of real models, which llama-cpp-python's source distribution carries."""

import pytest

from tests.pipelines.formats.capabilities import BEGIN, END, PAGE, Capability, capability, table
from tests.pipelines.formats.real_templates import templates

ONE_OF_EACH = [
    "Qwen-Qwen3-0.6B", "Qwen3-Coder", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small-3.2-24B-Instruct-2506", "deepseek-ai-DeepSeek-V3.1", "openai-gpt-oss-120b",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "meetkai-functionary-medium-v3.1", "moonshotai-Kimi-K2",
    "google-gemma-4-31B-it-interleaved", "deepseek-ai-DeepSeek-V3.2",
]  # fmt: skip


def documented() -> dict[str, list[str]]:
    """The rows of the page by their templates."""
    rows = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]
    return {row[0]: row for row in cells}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_call_that_a_template_writes_is_read_and_held(name: str) -> None:
    found = capability(name, templates()[name], tried=False)
    assert isinstance(found, Capability)
    assert (found.call, found.result, found.held) == ("yes", "yes", "yes")
    assert documented()[name][:7] == [cell.strip() for cell in found.row.strip("| ").split(" | ")][:7]


@pytest.mark.thorough
def test_the_table_of_the_page_is_true() -> None:
    """`python -m tests.pipelines.formats.capabilities` writes it."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == table()
