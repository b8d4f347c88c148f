"""GET /api/version, /api/tags and /api/ps, and POST /api/show: what is served, as Ollama tells it."""

import hashlib
import time
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tenuto import __version__
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.runtime.dialects.ollama.answer import timestamp
from tenuto.runtime.dialects.ollama.shapes import (
    DetailsAnswer,
    LoadedAnswer,
    LoadedModelsAnswer,
    ShowAnswer,
    TagAnswer,
    TagsAnswer,
    VersionAnswer,
)
from tenuto.runtime.dialects.ollama.unloaded import in_words, shown_unloaded, tag_of_stored
from tenuto.runtime.dialects.ollama.wire import ModelBody, name_of
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.body import read_wire, received
from tenuto.runtime.loop.models import AnyModel, EmbeddingModel, Model, Models
from tenuto.runtime.loop.shelf import Standing
from tenuto.runtime.stored_facts import StoredCard, StoredFacts

VERSION = "0.13.5"
"""Of Ollama, whose API this is; clients refuse versions that are older than what they ask for."""
_STAYS_S = 100 * 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models
    stored: StoredFacts

    async def root(self, request: Request) -> Response:
        """Whether anybody is there: clients look here first."""
        del request
        return PlainTextResponse("Tenuto is running")

    async def version(self, request: Request) -> Response:
        """The version of the API."""
        del request
        return answered(VersionAnswer(version=VERSION, tenuto=__version__))

    async def tags(self, request: Request) -> Response:
        """List models, the default first."""
        del request
        ids = [known.id for known in self.models.shelf.known() if not known.is_named]
        cards = await anyio.to_thread.run_sync(self.stored.cards, ids)
        return answered(
            TagsAnswer(models=[_tag(standing, cards.get(standing.id)) for standing in self.models.standings()])
        )

    async def loaded(self, request: Request) -> Response:
        """Those that are in memory."""
        del request
        return answered(
            LoadedModelsAnswer(
                models=[
                    _loaded(standing, standing.model)
                    for standing in self.models.standings()
                    if standing.model is not None
                ]
            )
        )

    async def show(self, request: Request) -> Response:
        """One model."""
        wire = await received(request, partial(read_wire, ModelBody))
        known = self.models.meant(name_of(wire))
        if not known.is_named and self.models.shelf.loaded(known.id) is None:
            card = await anyio.to_thread.run_sync(self.stored.card, known.id)
            if card is not None and card.facts is not None:
                return answered(shown_unloaded(card.stored, card.facts, known.kind))
        shown = partial(self._shown, name_of(wire))
        return answered(await self.models.with_loaded(shown, principal_of(request).id))

    async def _shown(self, name: str) -> ShowAnswer:
        model = self.models.any(name)
        return _shown(model, self.models.shelf.standing(model.id).base)


def _tag(standing: Standing, card: StoredCard | None) -> TagAnswer:
    model = standing.model
    if model is None and card is not None:
        return tag_of_stored(standing.id, card)
    if model is None:  # what its file holds is known when it is loaded
        nothing = DetailsAnswer(
            parent_model=standing.base, format="", family="", families=[], parameter_size="", quantization_level=""
        )
        digest = hashlib.sha256(standing.id.encode()).hexdigest()
        return TagAnswer(
            name=standing.id, model=standing.id, modified_at=timestamp(0), size=0, digest=digest, details=nothing
        )
    return TagAnswer(
        name=model.id,
        model=model.id,
        modified_at=timestamp(model.created),
        size=model.backend.weights.nbytes,
        digest=_digest(model),
        details=_details(model, standing.base),
    )


def _loaded(standing: Standing, model: AnyModel) -> LoadedAnswer:
    backend = model.backend
    leaves_s = _STAYS_S if standing.keep_s is None else standing.keep_s - (standing.idle_s or 0.0)
    leaves = model.created + _STAYS_S if standing.keep_s is None else time.time() + min(max(0.0, leaves_s), _STAYS_S)
    size = backend.weights.nbytes + backend.slots * backend.cells * backend.bytes_per_token
    return LoadedAnswer(
        name=model.id,
        model=model.id,
        size=size,
        digest=_digest(model),
        details=_details(model, standing.base),
        expires_at=timestamp(leaves),
        size_vram=size if backend.weights.are_on_device else 0,
        context_length=model.context,
    )


def _shown(model: AnyModel, base: str) -> ShowAnswer:
    weights = model.backend.weights
    facts: dict[str, str | int] = {
        "general.architecture": weights.architecture,
        "general.basename": model.id,
        "general.parameter_count": weights.parameters,
        f"{weights.architecture}.context_length": model.context,
        f"{weights.architecture}.embedding_length": weights.width or _width(model),
    }
    parameters, template = "", ""
    if isinstance(model, Model):
        parameters, template = _parameters(model.defaults), model.codec.info.template
    return ShowAnswer(
        modelfile=f"FROM {base}\nADAPTER {model.id.removeprefix(base)[1:]}\n" if base else f"FROM {model.id}\n",
        parameters=parameters,
        template=template,
        details=_details(model, base),
        model_info={name: fact for name, fact in facts.items() if fact},
        capabilities=_capabilities(model),
        modified_at=timestamp(model.created),
    )


def _parameters(defaults: SamplingDefaults) -> str:
    """Those of a model file that are not as they mostly are; the temperature in any case."""
    named = {
        "temperature": (defaults.temperature, None),
        "top_k": (defaults.top_k, 0),
        "top_p": (defaults.top_p, 1.0),
        "min_p": (defaults.min_p, 0.0),
        "repeat_penalty": (defaults.repetition_penalty, 1.0),
    }
    return "\n".join(f"{name:30} {value:g}" for name, (value, usual) in named.items() if value != usual)


def _width(model: AnyModel) -> int:
    return model.info.width if isinstance(model, EmbeddingModel) else 0


def _capabilities(model: AnyModel) -> list[str]:
    if isinstance(model, EmbeddingModel):
        return [] if model.info.ranks else ["embedding"]
    has = {
        "completion": True,
        "tools": "tools" in model.capabilities,
        "vision": "image" in model.capabilities,
        "thinking": model.codec.info.reasons,
        "insert": model.codec.info.infill is not None,
    }
    return [name for name, there in has.items() if there]


def _details(model: AnyModel, base: str) -> DetailsAnswer:
    weights = model.backend.weights
    return DetailsAnswer(
        parent_model=base,
        format=weights.form,
        family=weights.architecture,
        families=[weights.architecture] if weights.architecture else [],
        parameter_size=in_words(weights.parameters),
        quantization_level=weights.quantisation,
    )


def _digest(model: AnyModel) -> str:
    weights = model.backend.weights
    reads = model.codec.fingerprint(()) if isinstance(model, Model) else "embeds"
    identity = f"{model.id}\n{reads}\n{weights.nbytes}\n{weights.parameters}{weights.adapter}"
    return hashlib.sha256(identity.encode()).hexdigest()
