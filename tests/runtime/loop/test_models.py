"""The paragraph `Model names`: which model a request means."""

from typing import Any

import pytest

from tenuto.errors import ConfigurationError, NotFound
from tenuto.pipelines.sampling_defaults import GREEDY
from tenuto.pipelines.scripted import Script, ScriptedBackend
from tenuto.runtime.loop.models import Model, Models, Names
from tenuto.runtime.loop.shelf import Fixed
from tests.runtime.loop.house import codec


def served(*ids: str, aliases: dict[str, str] | None = None, strict: bool = False) -> Models:
    engine: Any = None  # nobody is asked to say anything
    backend = ScriptedBackend(Script()).info
    models = [Model(id, codec(), engine, backend, 0.0, GREEDY) for id in ids]
    return Models(Fixed(models), Names(tuple((aliases or {}).items()), strict))


def meant(models: Models, name: str | None) -> str:
    return models.find(name).id


@pytest.mark.parametrize("name", ["gpt-4o-mini", "claude-opus-4-8", "small:latest", "openai/small", "a/b:latest"])
def test_a_model_that_is_served_alone_answers_to_any_name(name: str) -> None:
    assert meant(served("small"), name) == "small"


@pytest.mark.parametrize("name", [None, "default"])
def test_no_name_means_the_first(name: str | None) -> None:
    assert meant(served("small", "large"), name) == "small"
    assert meant(served("small", strict=True), name) == "small"


@pytest.mark.parametrize(
    "name", ["large", "large:latest", "openai/large", "openrouter/openai/large", "openai/large:latest"]
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_tag_and_a_provider_are_no_part_of_a_models_name(name: str, strict: bool) -> None:
    assert meant(served("small", "large", strict=strict), name) == "large"


def test_an_id_may_look_like_a_tag_or_a_provider() -> None:
    models = served("b", "a/b", "b:latest")
    assert [meant(models, name) for name in ("a/b", "b:latest", "b")] == ["a/b", "b:latest", "b"]


def test_aliases_stand_for_models_and_may_be_globs() -> None:
    models = served("small", "large", aliases={"gpt-*": "small", "gpt-5": "large", "claude-*": "large"})
    names = ("gpt-4o", "gpt-5", "openai/gpt-5", "claude-opus-4-8", "gpt-4o:latest", "small")
    assert [meant(models, name) for name in names] == ["small", "large", "large", "large", "small", "small"]


def test_of_several_models_none_answers_to_a_name_that_is_nobodys() -> None:
    with pytest.raises(NotFound, match="small, large"):
        served("small", "large").find("gpt-4o")


def test_strict_names_refuse_what_is_nobodys_of_a_single_model_too() -> None:
    models = served("small", aliases={"gpt-*": "small"}, strict=True)
    assert meant(models, "gpt-4o") == "small"
    with pytest.raises(NotFound, match="small"):
        models.find("claude")


def test_what_goes_on_with_a_model_takes_no_other_for_it() -> None:
    """A stored run names its model; another that happens to be served now is not it."""
    with pytest.raises(NotFound):
        served("small").expect("large")


def test_an_alias_for_no_model_is_told_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="'gpt' stands for 'huge'"):
        served("small", aliases={"gpt": "huge"})


@pytest.mark.parametrize("called", ["small", "default", "gpt-4o", "openai/small", "fast"])
def test_an_adapter_is_that_of_what_stands_before_the_plus(called: str) -> None:
    models = served("small", "small+terse", "large", aliases={"fast": "small", "gpt-*": "small"})
    assert meant(models, f"{called}+terse") == meant(models, f"{called}+terse:latest") == "small+terse"


@pytest.mark.parametrize("name", ["small+rude", "small+", "+terse", "gpt-4o+rude", "c++", "small+terse+terse", "a/b+c"])
def test_a_name_with_a_plus_is_never_that_of_a_model_without(name: str) -> None:
    with pytest.raises(NotFound, match="small"):
        served("small", aliases={"gpt-*": "small"}).find(name)


def test_a_name_of_many_pluses_and_slashes_is_looked_for_in_a_moment() -> None:
    with pytest.raises(NotFound):
        served("small", "small+terse").find("/+" * 200)
