"""GET /props and /slots, as llama-server has them: what a model is, what it has room for, and which slots work."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from pydantic import Field, RootModel
from starlette.requests import Request
from starlette.responses import Response

from tenuto import __version__
from tenuto.pipelines.sampling_defaults import SamplingDefaults
from tenuto.runtime.http.answers import answered
from tenuto.runtime.http.auth import principal_of
from tenuto.runtime.http.shape import Shape
from tenuto.runtime.loop.models import Model, Models

_WORKING = ("prefilling", "decoding")


class DefaultParameters(Shape):
    """How tokens are chosen where a request says nothing."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float


class DefaultSettings(Shape):
    """What holds where a request says nothing."""

    params: DefaultParameters
    n_ctx: int = Field(description="Most tokens a conversation can have.")


class Modalities(Shape):
    """What the model reads besides text."""

    vision: bool
    audio: bool


class PropsAnswer(Shape):
    """What a model is, and what it has room for."""

    default_generation_settings: DefaultSettings
    total_slots: int
    model_alias: str
    model_path: str = Field(description="The model's id: where its file lies is nobody's affair.")
    modalities: Modalities
    chat_template: str
    bos_token: str
    eos_token: str
    build_info: str
    endpoint_slots: bool
    endpoint_props: bool = Field(description="Whether POST /props changes them: never.")
    endpoint_metrics: bool


class SlotAnswer(Shape):
    """A slot. Which one a conversation is in changes, so those that work stand first."""

    id: int
    n_ctx: int
    speculative: bool
    is_processing: bool


class SlotsAnswer(RootModel[list[SlotAnswer]]):
    """All slots of a model."""


@dataclass(frozen=True, slots=True)
class PropertiesApi:
    """The endpoints. The query's `model` names a model; without one it is the first."""

    models: Models

    async def props(self, request: Request) -> Response:
        """What a model is."""
        async with self._asked(request) as model:
            return answered(_props(model))

    async def slots(self, request: Request) -> Response:
        """Its slots. Nothing of what is said in them is told."""
        async with self._asked(request) as model:
            return Response(_slots(model).model_dump_json(), media_type="application/json")

    def _asked(self, request: Request) -> AbstractAsyncContextManager[Model]:
        return self.models.using(request.query_params.get("model") or None, principal_of(request).id)


def _slots(model: Model) -> SlotsAnswer:
    sequences = model.engine.status.sequences
    working = sum(count for state, count in sequences.items() if state in _WORKING)
    return SlotsAnswer(
        [
            SlotAnswer(id=id, n_ctx=model.context, speculative=False, is_processing=id < working)
            for id in range(model.backend.slots)
        ]
    )


def _parameters(defaults: SamplingDefaults) -> DefaultParameters:
    return DefaultParameters(
        temperature=defaults.temperature,
        top_k=defaults.top_k,
        top_p=defaults.top_p,
        min_p=defaults.min_p,
        repeat_penalty=defaults.repetition_penalty,
    )


def _props(model: Model) -> PropsAnswer:
    codec = model.codec
    stops = sorted(codec.info.stop_tokens)
    return PropsAnswer(
        default_generation_settings=DefaultSettings(params=_parameters(model.defaults), n_ctx=model.context),
        total_slots=model.backend.slots,
        model_alias=model.id,
        model_path=model.id,
        modalities=Modalities(vision="image" in model.capabilities, audio="audio" in model.capabilities),
        chat_template=codec.info.template,
        bos_token="" if codec.info.bos is None else codec.detokenize([codec.info.bos]),
        eos_token=codec.detokenize(stops[:1]),
        build_info=f"tenuto {__version__}",
        endpoint_slots=True,
        endpoint_props=False,
        endpoint_metrics=True,
    )
