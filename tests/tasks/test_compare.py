"""Equal cost, a dense finetune and published weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.backbones.published_dit import published_shapes, sit_state
from tests.tasks.conftest import DONE, FIXED, PROBE, Answer, Command, trials
from tread_lab.backbones.parts import sincos_positions
from tread_lab.dashboards.repetition import winner
from tread_lab.records.lab import Lab

Sweep = Callable[..., Answer]


@pytest.mark.task(25)
def test_matched_trials_spend_what_dense_spends(
    run_sweep: Sweep, run_command: Command, lab: Lab
) -> None:
    run_sweep(f"match: train_flops{FIXED}axes: {{route: [0->1, 1->2]}}\n{PROBE}")
    frame = trials(lab).set_index("route")
    flops = frame["cost/train_flops"]
    assert (frame["state"] == "completed").all()
    step = flops["0->1"] / frame["train.steps"]["0->1"]
    assert frame["train.steps"]["0->1"] > frame["train.steps"]["dense"]
    assert flops["0->1"] == flops["1->2"] == pytest.approx(flops["dense"], abs=step)
    plan, runs = lab.sweep(lab.sweeps()[0]).plan().with_baseline_cells, {*frame["run"]}
    for run in runs:
        train = winner(plan, run).splitlines()[0]
        assert run_command(train.removeprefix("tread-lab ")).code == DONE
    assert {folder.name for folder in lab.runs()} == runs, "the printed command names the run"


@pytest.mark.task(26)
def test_spend_multiplies_what_both_spend(run_sweep: Sweep, lab: Lab) -> None:
    axes = "axes: {route: [0->1], spend: [1, 2]}\n"
    run_sweep(f"match: train_flops{FIXED}{axes}{PROBE}")
    frame = trials(lab)
    steps = frame.groupby(["route", "spend"])["train.steps"].first().unstack()
    assert steps.loc["dense"].tolist() == [4, 8]
    assert steps.loc["0->1"].tolist() == [6, 11]
    assert frame[frame["role"] == "trial"]["gap/heldout"].notna().all()


@pytest.mark.task(27)
def test_a_dense_finetune_starts_from_one_routed_run(run_sweep: Sweep, lab: Lab) -> None:
    then = "then: {routes: [], train: {steps: 2, lr: 1e-3}}"
    variants = f"variants: {{finetune: {{none: {{}}, short: {{{then}}}}}}}\n"
    run_sweep(f"{FIXED}  routes: [0->1]\n{variants}{PROBE}")
    frame = trials(lab)
    assert (frame["state"] == "completed").all() and len(frame) == 4
    own = frame[frame["role"] == "trial"].set_index("finetune")
    start, end = lab.run(own["run"]["none"]), lab.run(own["run"]["short"])
    spec = end.spec()
    assert spec.parent is not None and lab.run_of(spec.parent).name == start.name
    assert not spec.routes and start.spec().routes
    whole, short = own["cost/family_flops"]["short"], own["cost/train_flops"]
    assert whole == pytest.approx(short["none"] + short["short"])
    assert len([*lab.runs()]) == 4


SHAPE = "model=DiT-2x16x2/4 precision=fp32 train.steps=0 --device cpu"


def drawn(lab: Lab) -> np.ndarray:
    """The only images on record."""
    (path,) = lab.root.glob("runs/*/evaluations/*/samples.npz")
    with np.load(path) as arrays:
        return arrays["arr_0"]


@pytest.mark.filterwarnings("ignore:init_from.file")
@pytest.mark.task(28)
def test_a_published_dit_is_sampled_under_guidance(run_command: Command, lab: Lab) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = published_shapes(2, 16, 4, 16, 1, 10)
    state = {n: 0.1 * torch.randn(shape, generator=generator) for n, shape in shapes.items()}
    torch.save({"ema": {**state, "pos_embed": sincos_positions(4, 16)[None]}}, "DiT.pt")
    guided = "sampler={solver: ddpm, steps: 4, guidance: {weight: 1.5}}"
    asked = "evaluate=[{samples: {metrics: [fd], count: 100}}]"
    words = f"train tiny {SHAPE} process=ddpm init_from.file=DiT.pt"
    done = run_command(words, guided, asked)
    assert done.code == DONE, done.err
    (run,) = lab.runs()
    assert run.state() == "completed" and run.spec().train.steps == 0
    assert drawn(lab).shape == (100, 16, 16, 1)
    assert any("w=1.5" in line and line.startswith("fd") for line in done.out.splitlines())


@pytest.mark.filterwarnings("ignore:init_from.file")
@pytest.mark.task(29)
def test_a_published_sit_is_sampled_as_a_flow(run_command: Command, lab: Lab) -> None:
    torch.save({"ema": sit_state(2, 16, 4, 4, 1, 10)}, "SiT.pt")
    words = f"train tiny {SHAPE} process=flow init_from.file=SiT.pt"
    asked = "sampler={solver: euler, steps: 3}", "evaluate=[{samples: {count: 4}}]"
    assert "init_from.published_as=sit" in run_command(words, *asked).mistake
    done = run_command(f"{words} init_from.published_as=sit", *asked)
    assert done.code == DONE, done.err
    assert drawn(lab).shape == (4, 16, 16, 1)
