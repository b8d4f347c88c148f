"""A shortened training: it learns, it can be stopped and goes on, and both exported forms hold the same numbers."""

import json
import multiprocessing
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
pytest.importorskip("torch", reason="needs tenuto[train]: make model-test")
pytest.importorskip("faker")
import gguf
import torch
from safetensors.numpy import load_file
from train_embedded_model.export import export
from train_embedded_model.train import Plan, Trainer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BOUND = 4.0
"""Of the loss, in nats a token, after the shortened run. Guessing among the tokens would be at 6.6."""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return Plan(
        out=tmp_path_factory.mktemp("model"),
        tokens=600_000,
        vocabulary=768,
        width=64,
        layers=2,
        heads=2,
        kv_heads=1,
        hidden=128,
        batch_tokens=2048,
        warm_steps=10,
        matrix_rate=0.02,
        other_rate=0.01,
        compile=False,
        tokenizer_talks=300,
        evaluation_talks=4,
    )


@pytest.fixture(scope="module")
def trained(plan: Plan) -> Path:
    # Stopped once on the way, as people stop it.
    Trainer(replace(plan, tokens=300_000)).run()
    Trainer(plan).run()
    return plan.out


def test_the_loss_falls_below_its_bound_also_over_a_stop(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if "loss" in line][-1] < BOUND
    assert lines[-1]["tokens"] >= 0.6


def test_a_run_that_was_stopped_goes_on_where_it_was(trained: Path, plan: Plan) -> None:
    again = Trainer(plan)
    assert again.tokens >= plan.tokens
    assert again.step > 0


def test_a_run_that_was_stopped_learns_what_one_that_was_not_would_have_learnt(plan: Plan, tmp_path: Path) -> None:
    short = replace(plan, tokens=20_000, out=tmp_path / "whole")
    whole = Trainer(short)
    whole.run()
    shutil.copytree(short.out, tmp_path / "stopped", ignore=shutil.ignore_patterns("checkpoint.pt", "log.jsonl"))
    stopped = Trainer(replace(short, out=tmp_path / "stopped"))
    stopped.stop()
    stopped.run()
    assert stopped.step == 1
    resumed = Trainer(replace(short, out=tmp_path / "stopped"))
    resumed.run()
    assert (resumed.step, resumed.tokens, resumed.pool) == (whole.step, whole.tokens, whole.pool)
    for ours, theirs in zip(resumed.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_run_that_others_make_batches_for_learns_what_it_would_have_learnt_by_itself(
    plan: Plan, tmp_path: Path
) -> None:
    short = replace(plan, tokens=20_000)
    alone, helped = replace(short, out=tmp_path / "alone"), replace(short, out=tmp_path / "helped", workers=1)
    trainers = [Trainer(alone), Trainer(helped)]
    for trainer in trainers:
        trainer.run()
    ours, theirs = (trainer.network.state_dict() for trainer in trainers)
    assert trainers[0].step == trainers[1].step > 1
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not multiprocessing.active_children()


def test_both_exported_forms_hold_the_same_numbers(trained: Path) -> None:
    export(trained / "checkpoint.pt", trained / "out")
    ours = {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(trained / "out" / "tenuto-embedded.gguf").tensors
    }
    theirs = load_file(trained / "out" / "mlx" / "model.safetensors")
    assert np.array_equal(ours["token_embd.weight"], unpacked(theirs, "model.embed_tokens"))
    assert np.array_equal(ours["blk.1.ffn_down.weight"], unpacked(theirs, "model.layers.1.mlp.down_proj"))
    assert np.array_equal(ours["blk.0.attn_norm.weight"], theirs["model.layers.0.input_layernorm.weight"])


def unpacked(tensors: dict[str, NDArray[np.float32]], name: str) -> NDArray[np.float32]:
    """MLX's 8-bit groups as numbers: scale times byte plus bias."""
    packed = tensors[f"{name}.weight"]
    values = packed.view(np.uint8).reshape(packed.shape[0], -1, 32).astype(np.float32)
    found: NDArray[np.float32] = values * tensors[f"{name}.scales"][..., None] + tensors[f"{name}.biases"][..., None]
    return found.reshape(packed.shape[0], -1)
