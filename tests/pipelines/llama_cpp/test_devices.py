"""The accelerators that plans are made for."""

import pytest

pytest.importorskip("llama_cpp")

from tenuto.pipelines.llama_cpp import devices
from tenuto.pipelines.llama_cpp.native import can_offload
from tenuto.pipelines.loader import LoadSettings, load


@pytest.mark.skipif(can_offload(), reason="this build of llama.cpp knows accelerators")
def test_a_build_for_processors_alone_has_no_devices() -> None:
    assert devices() == devices(are_empty=True) == ()


@pytest.mark.gpu
@pytest.mark.skipif(not can_offload(), reason="this build of llama.cpp knows no accelerators")
def test_a_small_model_lies_on_a_device_as_planned() -> None:
    before = devices()
    pipeline = load("embedded:gguf", LoadSettings(slots=2))
    layout, after = pipeline.layout, devices()
    pipeline.backend.close()
    assert layout is not None
    assert layout.gpu_layers == layout.of_layers + 1
    assert pipeline.backend.info.weights.are_on_device
    assert sum(layout.on_devices) <= sum(device.free for device in before)
    assert all(empty.free >= device.free for empty, device in zip(devices(are_empty=True), after, strict=True))
