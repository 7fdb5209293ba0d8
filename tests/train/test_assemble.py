"""A run's network: a trained one bit for bit, and one that starts from a published file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.backbones.published_dit import published_shapes, sit_forward, sit_state
from tests.train.runs import (
    CPU,
    evaluate,
    lab_with_a_run,
    last_checkpoint,
    small_run,
    train_until,
)
from tread_lab import draws
from tread_lab.backbones.parts import sincos_positions
from tread_lab.config import RunSpec, UserError, decode, encode, signature
from tread_lab.config.evaluation import decode_evaluations
from tread_lab.data.source import open_data
from tread_lab.records.lab import Lab, with_parents
from tread_lab.train.assemble import (
    build_network,
    check_start,
    starting_weights,
    trained,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:init_from.file. the first batch"
)  # of random weights
DIT = {"depth": 3, "width": 16, "heads": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {**DIT, "norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True}},
        {"model": {"backbone": "rwkv", "depth": 3, "width": 16}, "routes": []},
        {"model": {"backbone": "mamba", "depth": 3, "width": 16}, "routes": []},
        {
            "model": DIT,
            "routes": ["0->2"],
            "bypass": {"kind": "mask", "depth": 2, "width": 32, "heads": 2},
        },
    ],
)
def test_trained_network_equals_its_checkpoint(tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = small_run(**changes)
    folder = lab_with_a_run(tmp_path, spec).run_of(spec)
    found = last_checkpoint(folder)
    expected = build_network(spec)
    expected.load_state_dict({**found.part("model"), **found.part("ema")})
    random_state = torch.random.get_rng_state()
    network = trained(folder, CPU).network
    assert torch.equal(torch.random.get_rng_state(), random_state), "opening draws no numbers"
    states = dict(expected.named_parameters()) | dict(expected.named_buffers())
    mine = dict(network.named_parameters()) | dict(network.named_buffers())
    assert mine.keys() == states.keys()
    assert all(torch.equal(mine[name], states[name]) for name in states)


MODEL = "DiT-2x16x2/4"


@pytest.fixture
def state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = published_shapes(2, 16, 4, 16, 1, 10)
    drawn = {n: 0.1 * torch.randn(shape, generator=generator) for n, shape in shapes.items()}
    return {**drawn, "pos_embed": sincos_positions(4, 16)[None]}


@pytest.fixture
def file(state: dict[str, Tensor], tmp_path: Path) -> Path:
    raw = {name: tensor + 1 for name, tensor in state.items()}
    torch.save({"model": raw, "ema": state}, tmp_path / "DiT.pt")
    return tmp_path / "DiT.pt"


def starting_from(file: Path, lab: Lab, **changes: Any) -> RunSpec:
    tree = {
        "model": MODEL,
        "process": "ddpm",
        "train": {"steps": 0},
        "precision": "fp32",
        "init_from": {"file": str(file)},
    }
    return decode(RunSpec, with_parents({**tree, **changes}, lab))


def test_published_sit_samples_by_its_rule(lab: Lab, tmp_path: Path) -> None:
    state = sit_state(2, 16, 4, 4, 1, 10)
    torch.save({"ema": state}, tmp_path / "SiT.pt")
    start = {"file": str(tmp_path / "SiT.pt"), "published_as": "sit"}
    spec = starting_from(tmp_path / "SiT.pt", lab, process="flow", init_from=start)
    folder = lab_with_a_run(lab.root, spec).run_of(spec)
    sampler = {"solver": "euler", "steps": 3, "guidance": 1.5}
    (asked,) = decode_evaluations([{"samples": {"count": 3, "sampler": sampler}}])
    evaluate(folder, asked, CPU)
    found = np.load(folder.evaluation(asked).path / "samples.npz")
    labels_B = torch.from_numpy(found["arr_1"])
    # Euler from noise at t = 0 to data at t = 1 along SiT's velocity, guided on all channels
    x_BCHW = torch.stack([draws.normal((1, 16, 16), "image", 100_000 + k) for k in range(3)])
    for k in range(3):
        t_B = torch.full((3,), k / 3)
        own, none = (
            sit_forward(state, 2, x_BCHW, t_B, y) for y in (labels_B, torch.full((3,), 10))
        )
        x_BCHW = x_BCHW + (none + 1.5 * (own - none)) / 3
    pixels = open_data(spec.data, "heldout").pixels(x_BCHW).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(found["arr_0"].astype(int), pixels.astype(int), atol=1)


@pytest.mark.parametrize(
    ("weights", "routes"), [("ema", ["1->1"]), ("model", ["1->1"]), ("ema", [])]
)
def test_run_starts_from_named_parent_weights(weights: str, routes: list[str], lab: Lab) -> None:
    """Also of a dense parent, so that a route is on in finetuning alone."""
    parent = small_run(routes=routes)
    last = last_checkpoint(lab_with_a_run(lab.root, parent).run_of(parent))
    child = small_run(init_from={"run": encode(parent), "weights": weights})
    found = starting_weights(child, lab.run_of(child))
    assert found is not None
    one, other = (last.part(part)["final_layer.linear.weight"] for part in ("ema", "model"))
    assert not torch.equal(one, other)
    for name, tensor in last.part(weights).items():
        assert torch.equal(found[name], tensor)
    (progress,) = train_until(child, lab.run_of(child).path, 1)
    assert progress.step == 1 and child.phases[0][1] == child.routes


def test_bytes_of_a_start_name_the_run(
    file: Path, state: dict[str, Tensor], lab: Lab, tmp_path: Path
) -> None:
    spec = starting_from(file, lab)
    moved = file.rename(tmp_path / "moved.pt")
    assert signature(starting_from(moved, lab)) == signature(spec)
    raw = starting_from(moved, lab, init_from={"file": str(moved), "weights": "model"})
    torch.save(state, moved)
    other = starting_from(moved, lab)
    assert len({signature(run) for run in (spec, raw, other)}) == 3
    with pytest.raises(UserError, match="must be unchanged since planning"):
        check_start(raw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"process": "edm"}, "must be 16 as in the network, got 32; a DiT predicts a variance"),
        ({"model": "DiT-3x16x2/4"}, r"DiT-3x16/4: blocks.2.adaLN_modulation.1.bias is missing"),
        ({"model": "DiT-1x16x2/4"}, "the network has no tensor blocks.1.adaLN_modulation.1.bias"),
        (
            {"model": "DiT-2x24x2/4"},
            "modulation.1.bias must be 144 as in the network, got 96",
        ),
        ({"init_from": None}, "train.steps: must be positive without init_from"),
        (
            {"init_from": {"file": "/nowhere/DiT.pt"}},
            "init_from.file: cannot read /nowhere/DiT.pt: No such file",
        ),
    ],
)
def test_wrong_start_is_one_line(
    changes: dict[str, Any], message: str, file: Path, lab: Lab
) -> None:
    with pytest.raises(UserError, match=message):
        check_start(starting_from(file, lab, **changes))


def test_weights_worse_than_zero_are_noticed(lab: Lab) -> None:
    spec = small_run(train={"steps": 40, "batch": 16, "lr": 5e-3, "ema": 0.5})
    (checkpoint,) = lab_with_a_run(lab.root, spec).run_of(spec).checkpoints.iterdir()
    for process, noticed in (("edm", False), ("flow", True)):
        tree = {"init_from": {"file": str(checkpoint)}, "process": process, "seed": int(noticed)}
        child = small_run(**with_parents(tree, lab))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            lab_with_a_run(lab.root, child)
        assert any("if the network predicts zero" in str(w.message) for w in found) is noticed
