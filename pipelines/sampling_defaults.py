"""How tokens are chosen where a request does not say: what a model's own files advise. Plain values, no files here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tenuto.pipelines.backend import Sampling

TEMPERATURE = 0.7
"""Where neither a request nor the model's files name one."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What suits a model."""

    temperature: float = TEMPERATURE
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @staticmethod
    def advised(values: Mapping[str, Any]) -> "SamplingDefaults":
        """What these values say, by the names of the fields; what is no number in its range says nothing."""
        numbers = {name: values[name] for name in _RANGES if _is_in_range(name, values.get(name))}
        if "top_k" in numbers:
            numbers["top_k"] = int(numbers["top_k"])
        return SamplingDefaults(**numbers)


USUAL = SamplingDefaults()
GREEDY = SamplingDefaults(temperature=0.0)


@dataclass(frozen=True, slots=True)
class AskedSampling:
    """How tokens are chosen as far as a request says it. None: as suits the model."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    def over(self, defaults: SamplingDefaults) -> Sampling:
        """How they are chosen by a model that has these defaults."""
        chosen = {name: getattr(self, name) for name in _RANGES}
        named = {name: value for name, value in chosen.items() if value is not None}
        whole = replace(defaults, **named)
        return Sampling(
            temperature=whole.temperature,
            top_k=whole.top_k,
            top_p=whole.top_p,
            min_p=whole.min_p,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=whole.repetition_penalty,
            logit_bias=self.logit_bias,
            logprobs=self.logprobs,
        )


_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 2**31 - 1),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 10.0),
}


def _is_in_range(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return False
    least, most = _RANGES[name]
    return least <= value <= most
