"""How much a GGUF model may take, and how its threads share the processors. No cache and no steps here."""

from dataclasses import dataclass

from tenuto.pipelines.cache_types import CacheType
from tenuto.pipelines.llama_cpp.native import Model
from tenuto.pipelines.llama_cpp.openmp import wait_policy


@dataclass(frozen=True, slots=True)
class LlamaSettings:
    """How much a model may take: `slots` sequences of `cells` tokens, `batch_tokens` a step over all rows."""

    slots: int = 4
    cells: int = 4096
    threads: int = 1
    batch_tokens: int = 512
    drafts: int = 0
    """How many drafted tokens a step may verify."""
    is_plain: bool = False
    """Whether scores of attention are written out; see pipelines/fit."""
    cache_type: CacheType = "f16"


def how_it_shares(model: Model, threads: int) -> tuple[tuple[str, str], ...]:
    """Facts for a person about its threads."""
    shrinks = threads > 1 and not model.is_offloaded
    given = f"{threads}, fewer while other processes keep them waiting" if shrinks else f"{threads}"
    return ("threads", given), ("threads wait", wait_policy())
