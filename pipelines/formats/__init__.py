"""The tool-call formats, and which of them a model speaks. A new family is a file here and some lines below."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.formats import (
    apertus,
    command_r,
    command_r_plus,
    deepseek,
    firefunction,
    functionary,
    gemma,
    generic,
    gigachat,
    glm,
    granite,
    harmony,
    hermes,
    kimi,
    lfm2,
    llama3,
    llama4,
    minicpm,
    minimax,
    mistral,
    muse,
    nemotron,
    phi4,
    qwen_coder,
    seed_oss,
    solar,
)
from tenuto.pipelines.formats.base import Format, Surroundings
from tenuto.pipelines.formats.call_format import CallFormat, reasoning_of

_DETECTORS: tuple[Callable[[Surroundings], Format | None], ...] = (
    hermes.detect,
    qwen_coder.detect,
    llama3.detect,
    mistral.detect,
    deepseek.detect,
    glm.detect,
    kimi.detect,
    minimax.detect,
    granite.detect,
    phi4.detect,
    nemotron.detect,
    seed_oss.detect,
    apertus.detect,
    minicpm.detect,
    gigachat.detect,
    llama4.detect,
    command_r.detect,
    command_r_plus.detect,
    firefunction.detect,
    functionary.detect,
    harmony.detect,
    gemma.detect,
    lfm2.detect,
    solar.detect,
    muse.detect,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A format, and in words why it was taken."""

    form: Format
    why: str

    @property
    def is_told(self) -> bool:
        """Whether the model is told in words how to call, in place of what its template may write of tools."""
        return self.form.name == generic.NAME


def plain(surroundings: Surroundings) -> CallFormat:
    """The format of a model that calls no tools: a turn is reasoning and text."""
    return CallFormat("plain", surroundings.vocabulary, (), reasoning_of(surroundings))


FORMATS: Mapping[str, Callable[[Surroundings], Format]] = {
    "hermes": hermes.of,
    "qwen3-coder": qwen_coder.of,
    "llama3": llama3.of,
    "mistral": mistral.listed,
    "mistral-named": mistral.named,
    "deepseek": deepseek.fenced,
    "deepseek-v3.1": deepseek.bare,
    "deepseek-v3.2": deepseek.tagged,
    "deepseek-v4": deepseek.tagged_later,
    "glm": glm.of,
    "hunyuan": glm.hunyuan,
    "kimi-k2": kimi.of,
    "kimi-k3": kimi.k3,
    "minimax-m2": minimax.m2,
    "minimax-m1": minimax.m1,
    "minimax-m3": minimax.m3,
    "granite": granite.of,
    "phi4": phi4.of,
    "nemotron": nemotron.of,
    "apriel": nemotron.apriel,
    "seed-oss": seed_oss.of,
    "apertus": apertus.of,
    "minicpm": minicpm.of,
    "gigachat": gigachat.of,
    "gigachat-3.0": gigachat.message,
    "llama4": llama4.of,
    "command-r": command_r.of,
    "command-r-plus": command_r_plus.of,
    "firefunction": firefunction.of,
    "functionary-v3.1": functionary.of,
    "functionary-v3.2": functionary.recipients,
    "muse-glimmer": muse.of,
    "gpt-oss": harmony.of,
    "gemma4": gemma.of,
    "lfm2": lfm2.of,
    "solar-open": solar.of,
    generic.NAME: generic.of,
    "plain": plain,
}
"""By the names that settings use."""


def format_of(surroundings: Surroundings, wanted: str | None = None) -> Chosen:
    """The format that is wanted, or the first that recognises itself; else the generic one, where the template knows no
    tools, and plain text where it knows them in a way that is unknown.

    Raises:
        ModelLoadFailed: no format has the wanted name.
    """
    if wanted is not None:
        if wanted not in FORMATS:
            raise ModelLoadFailed(f"there is no tool-call format {wanted!r}; there are {', '.join(sorted(FORMATS))}")
        return Chosen(FORMATS[wanted](surroundings), "as it was set")
    for detect in _DETECTORS:
        found = detect(surroundings)
        if found is not None:
            return Chosen(found, f"the model's chat template writes a call as {surroundings.call!r}")
    if not surroundings.knows_tools:
        return Chosen(
            generic.of(surroundings), "the model's chat template knows no tools, so it is told how to call them"
        )
    if surroundings.call:
        return Chosen(plain(surroundings), f"no format writes a call as the template does: {surroundings.call!r}")
    return Chosen(plain(surroundings), "the model's chat template knows tools, and writes no call")
