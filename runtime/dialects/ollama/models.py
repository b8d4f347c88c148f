"""GET /api/version, /api/tags and /api/ps, POST /api/show and /api/pull: what is served, as Ollama tells it."""

import hashlib
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tenuto import __version__
from tenuto.errors import InvalidRequest
from tenuto.runtime.dialects.ollama.answer import timestamp
from tenuto.runtime.dialects.ollama.shapes import (
    DetailsAnswer,
    LoadedAnswer,
    LoadedModelsAnswer,
    PullAnswer,
    ShowAnswer,
    TagAnswer,
    TagsAnswer,
    VersionAnswer,
)
from tenuto.runtime.dialects.ollama.wire import ModelBody, PullBody
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.body import read_wire, received
from tenuto.runtime.http.ndjson import MEDIA_TYPE
from tenuto.runtime.loop.models import AnyModel, EmbeddingModel, Model, Models

VERSION = "0.13.5"
"""Of Ollama, whose API this is; clients refuse versions that are older than what they ask for."""
_STAYS_S = 100 * 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ModelsApi:
    """The endpoints."""

    models: Models

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
        return answered(TagsAnswer(models=[_tag(model) for model in self.models.served()]))

    async def loaded(self, request: Request) -> Response:
        """The same, as they are in memory."""
        del request
        return answered(LoadedModelsAnswer(models=[_loaded(model) for model in self.models.served()]))

    async def show(self, request: Request) -> Response:
        """One model."""
        wire = await received(request, partial(read_wire, ModelBody))
        return answered(_shown(self.models.any(_name(wire))))

    async def pull(self, request: Request) -> Response:
        """Say that a model is there; one that is not is not fetched."""
        wire = await received(request, partial(read_wire, PullBody))
        self.models.any(_name(wire))
        done = PullAnswer(status="success")
        return answered(done) if wire.stream is False else Response(done.encode() + b"\n", media_type=MEDIA_TYPE)


def _name(wire: ModelBody) -> str:
    name = wire.model or wire.name
    if not name:
        raise InvalidRequest("model: field required", "model")
    return name


def _tag(model: AnyModel) -> TagAnswer:
    return TagAnswer(
        name=model.id,
        model=model.id,
        modified_at=timestamp(model.created),
        size=model.backend.weights.nbytes,
        digest=_digest(model),
        details=_details(model),
    )


def _loaded(model: AnyModel) -> LoadedAnswer:
    backend = model.backend
    size = backend.weights.nbytes + backend.slots * backend.cells * backend.bytes_per_token
    return LoadedAnswer(
        name=model.id,
        model=model.id,
        size=size,
        digest=_digest(model),
        details=_details(model),
        expires_at=timestamp(model.created + _STAYS_S),
        size_vram=size if backend.weights.are_on_device else 0,
        context_length=model.context,
    )


def _shown(model: AnyModel) -> ShowAnswer:
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
        parameters, template = f"{'temperature':30} {model.temperature:g}", model.codec.info.template
    return ShowAnswer(
        modelfile=f"FROM {model.id}\n",
        parameters=parameters,
        template=template,
        details=_details(model),
        model_info={name: fact for name, fact in facts.items() if fact},
        capabilities=_capabilities(model),
        modified_at=timestamp(model.created),
    )


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
    }
    return [name for name, there in has.items() if there]


def _details(model: AnyModel) -> DetailsAnswer:
    weights = model.backend.weights
    return DetailsAnswer(
        parent_model="",
        format=weights.form,
        family=weights.architecture,
        families=[weights.architecture] if weights.architecture else [],
        parameter_size=_in_words(weights.parameters),
        quantization_level=weights.quantisation,
    )


def _digest(model: AnyModel) -> str:
    weights = model.backend.weights
    reads = model.codec.fingerprint(()) if isinstance(model, Model) else "embeds"
    identity = f"{model.id}\n{reads}\n{weights.nbytes}\n{weights.parameters}"
    return hashlib.sha256(identity.encode()).hexdigest()


def _in_words(parameters: int) -> str:
    """A count as Ollama writes it: 1.7B; empty where it is not known."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if parameters >= size:
            return f"{parameters / size:.1f}{unit}"
    return str(parameters) if parameters else ""
