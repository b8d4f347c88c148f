"""What Ollama's API tells of a stored model that is not loaded, by its files alone."""

from tenuto.pipelines.model_facts import ModelFacts
from tenuto.pipelines.model_store import StoredModel
from tenuto.runtime.dialects.ollama.answer import timestamp
from tenuto.runtime.dialects.ollama.shapes import DetailsAnswer, ShowAnswer, TagAnswer
from tenuto.runtime.loop.model import Kind
from tenuto.runtime.stored_facts import StoredCard

_THINKS = ("enable_thinking", "reasoning_content", "<think>", "<|channel|>")
"""A template that has one of these reasons; what the model itself does is known when it is loaded."""


def tag_of_stored(id: str, card: StoredCard) -> TagAnswer:
    """A model in the list."""
    version = card.stored.version
    return TagAnswer(
        name=id,
        model=id,
        modified_at=timestamp(version.created),
        size=version.bytes,
        digest=version.digest,
        details=_details(card.stored, card.facts),
    )


def shown_unloaded(stored: StoredModel, facts: ModelFacts, kind: Kind) -> ShowAnswer:
    """All that is known of a model before it is loaded."""
    told: dict[str, str | int | None] = {
        "general.architecture": facts.architecture,
        "general.basename": stored.name,
        "general.parameter_count": facts.parameters,
        f"{facts.architecture}.context_length": facts.context,
        f"{facts.architecture}.embedding_length": facts.width,
    }
    return ShowAnswer(
        modelfile=f"FROM {stored.name}\n",
        parameters="",
        template=facts.chat_template or "",
        details=_details(stored, facts),
        model_info={name: fact for name, fact in told.items() if fact},
        capabilities=_capabilities(stored, facts, kind),
        modified_at=timestamp(stored.version.created),
    )


def _details(stored: StoredModel, facts: ModelFacts | None) -> DetailsAnswer:
    family = facts.architecture if facts else ""
    return DetailsAnswer(
        parent_model="",
        format=stored.kind,
        family=family,
        families=[family] if family else [],
        parameter_size=in_words(facts.parameters) if facts else "",
        quantization_level=facts.quantisation if facts else "",
    )


def _capabilities(stored: StoredModel, facts: ModelFacts, kind: Kind) -> list[str]:
    if kind != "text":
        return ["embedding"] if kind == "vectors" else []
    template = facts.chat_template or ""
    has = {
        "completion": True,
        "tools": True,  # one whose template knows none is told of them in words
        "vision": stored.projector is not None,
        "thinking": any(word in template for word in _THINKS),
    }
    return [name for name, there in has.items() if there]


def in_words(parameters: int) -> str:
    """A count as Ollama writes it: 1.7B; empty where it is not known."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.1f}{unit}"
    return str(parameters) if parameters else ""
