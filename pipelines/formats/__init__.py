"""The tool-call formats, and which of them a model speaks. A new family is a file here and a line below."""

from tenuto.pipelines.formats import hermes
from tenuto.pipelines.formats.base import Format, Surroundings
from tenuto.pipelines.formats.plain import Plain

_DETECTORS = (hermes.detect,)


def format_of(surroundings: Surroundings) -> Format:
    """The first format that recognises itself; a model that none recognises writes plain text."""
    for detect in _DETECTORS:
        found = detect(surroundings)
        if found is not None:
            return found
    return Plain(surroundings)
