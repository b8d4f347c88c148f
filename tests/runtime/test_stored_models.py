"""Stored models as the owner of models asks for them."""

from pathlib import Path

import pytest

from tenuto.errors import ModelLoadFailed
from tenuto.pipelines.finding import model_store
from tenuto.pipelines.loader import LoadSettings, find
from tenuto.pipelines.model_store import pull
from tenuto.pipelines.model_store.local import LocalModel
from tenuto.runtime.stored_models import StoredModels


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of two versions of the model `tiny` of the user's store; the second is current."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made, file = [], tmp_path / "tiny.gguf"
    for content in (b"GGUF one", b"GGUF two"):
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        made.append(pull(model_store(), LocalModel(file)).version.id)
    return made


@pytest.mark.parametrize("which", [0, 1])
def test_a_version_has_one_id_by_however_many_of_its_digits_it_is_named(versions: list[str], which: int) -> None:
    models, version = StoredModels(), versions[which]
    found = [models.find(f"tiny@{version[:digits]}") for digits in range(4, len(version) + 1)]
    found += [models.find(f"tiny@{version.upper()}")]
    assert {None if one is None else (one.id, one.source, one.version) for one in found} == {
        (f"tiny@{version}", f"tiny@{version}", version)
    }


def test_a_damaged_version_is_told_from_one_that_is_not_there(versions: list[str]) -> None:
    id = f"tiny@{versions[0]}"
    model_store().expect(id).path.unlink()
    found = StoredModels().find(id)
    assert found is not None
    with pytest.raises(ModelLoadFailed, match=r"damaged: tiny\.gguf is gone"):
        find(found.source, LoadSettings())


def test_the_name_alone_means_the_current_version(versions: list[str]) -> None:
    (listed,) = StoredModels().list()
    assert listed == StoredModels().find("tiny")
    assert (listed.id, listed.version) == ("tiny", versions[1])


@pytest.mark.usefixtures("versions")
@pytest.mark.parametrize(
    "name", ["tiny@", "tiny@zz", "tiny@abc", "tiny@ffffffff", "other", "other@ffff", "../x", "tiny@../x"]
)
def test_what_names_no_version_is_not_there(name: str) -> None:
    assert StoredModels().find(name) is None
