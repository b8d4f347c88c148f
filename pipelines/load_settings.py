"""How much a model may take when it is loaded, and what it is loaded with. Importing this loads no backend."""

from dataclasses import dataclass
from pathlib import Path

from tenuto.pipelines.adapters import Adapter
from tenuto.pipelines.cache_types import CacheType
from tenuto.pipelines.fit import Plan, Wishes


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What a model may take. None: fitted to the model and the machine.

    `cache_bytes` bounds the cache on the device where `slots` or `cells` are left open; `most_slots` and `most_cells`,
    the tokens that one sequence may hold, bound what is chosen. `gpu_layers` below 0: all. `budget` bounds all bytes
    of a GGUF model, `host_cache_bytes` for paused sequences among them, and `among` so many models the memory is
    divided.
    """

    slots: int | None = None
    cells: int | None = None
    cache_bytes: int | None = None
    host_cache_bytes: int = 0
    budget: int | None = None
    among: int = 1
    most_cells: int = 8192
    most_slots: int = 16
    threads: int | None = None
    batch_tokens: int = 512
    gpu_layers: int | None = None
    cache_type: CacheType | None = None
    drafts: int = 64
    """How many drafted tokens a step of a GGUF model may verify."""
    tool_formats: tuple[tuple[str, str], ...] = ()
    """Which models, by their ids or globs, speak which tool-call format; of others it is found out."""
    downloads: Path | None = None
    """Where fetched models are kept; by default the user's cache folder."""
    verdicts: Path | None = None
    """Where it is kept which models have passed a trial; by default beside these."""
    projector: Path | None = None
    """The part of a GGUF model that reads images; by default one that lies beside it."""
    adapter: Adapter | None = None
    """What is applied to a GGUF model. Its weights are in memory once, whether it is loaded without or with others."""
    layout: Plan | None = None
    """How a GGUF model was planned; None: it is planned when it is loaded."""

    def wishes(self, projector: Path | None) -> Wishes:
        """What a plan for a GGUF model has to keep to."""
        return Wishes(
            slots=self.slots,
            context=self.cells,
            cache_type=self.cache_type,
            gpu_layers=self.gpu_layers,
            drafts=self.drafts,
            cache_bytes=self.cache_bytes,
            host_cache_bytes=self.host_cache_bytes,
            most_context=self.most_cells,
            most_slots=self.most_slots,
            batch_tokens=self.batch_tokens,
            among=self.among,
            further=projector.stat().st_size if projector is not None and projector.is_file() else 0,
        )
