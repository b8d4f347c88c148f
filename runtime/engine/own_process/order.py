"""What an engine's process is told to load, and what it tells of what it has loaded."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from tenuto.pipelines.backend import BackendInfo
from tenuto.pipelines.fit import Plan
from tenuto.pipelines.load_settings import LoadSettings
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.runtime.engine.engine import EngineSettings

__all__ = ["OPENED", "EngineSettings", "Opened", "Order"]


@dataclass(frozen=True, slots=True)
class Order:
    """A model as `--model` names it, and how it is loaded within how many seconds. `log_level` is of the log that both
    processes write to."""

    model: str
    settings: LoadSettings
    seconds: float
    log_level: str = "warning"


@dataclass(frozen=True, slots=True)
class Opened:
    """What a model's process has loaded."""

    backend: BackendInfo
    defaults: SamplingDefaults
    layout: Plan | None
    trial: str
    stamp: str
    """Another one once a file of the model has changed."""


OPENED = TypeAdapter(Opened)
