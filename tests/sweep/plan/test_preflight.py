"""Preflight refuses runs that do not fit their device, and runs of another provenance."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tread_lab
from tests.made_data import normal, write_arrays
from tests.sweep.plan.test_data_digests import write_set
from tests.sweep.plans import carry_out, tiny
from tread_lab.cli import main
from tread_lab.config.load import load_experiment
from tread_lab.engine import provenance
from tread_lab.engine.cost.memory import cost_on
from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import CONTEXT, memory
from tread_lab.engine.provenance import code_digest
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import mixtures
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.specs.evaluation_defaults import EvaluationDefaults
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.fields import run_of
from tread_lab.specs.metrics import ReferenceSpec
from tread_lab.sweep.plan import preflight as module
from tread_lab.sweep.plan.data_digests import DataDigests
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.preflight import (
    check_arithmetic,
    check_memory,
    check_planned,
    check_sampled,
    preflight,
)
from tread_lab.sweep.task import Task

ROOT = Path(provenance.__file__).parents[1]
CPU = torch.device("cpu")
SWEEP = """
experiment: tiny
fixed: {train: {batch: %d}}
axes: {route: {start: 0, end: 2}}
"""


@pytest.mark.fault(
    22,
    survived="refused in one line with exit code 2 and how many would fit; nothing is written",
)
def test_runs_that_do_not_fit_one_device_together_are_refused(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.engine.device.usable_cpus", lambda: 4.0)
    image_bytes = cost(run_of(load_experiment("tiny", []).run)).activation_bytes
    big = int(memory(CPU) / 2 / image_bytes)
    (in_folder / "big.yaml").write_text(SWEEP % big)
    before = sorted(in_folder.rglob("*"))
    assert main(["sweep", "big.yaml", "--device", "cpu", "--no-mlflow"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "4 runs at once on one cpu device need about" in line and "--concurrent" in line
    assert sorted(in_folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("kind", "memory", "packed", "room"),
    [
        ("cuda", (2, 1), 1, None),  # of the device: so many of the largest run, so many contexts
        ("cuda", (2, 1), 2, None),
        ("cuda", (2, 1), 3, 2),  # each process has a context of its own
        ("cpu", (2, 0), 2, None),
        ("cpu", (2, 0), 3, 2),
    ],
)
def test_the_largest_run_decides_how_many_share_the_smallest_device(
    kind: str, memory: tuple[int, int], packed: int, room: int | None
) -> None:
    small, large = Task(tiny()), Task(tiny(train={"batch": 256}))
    need = cost_on(large.spec, kind).memory_bytes
    sizes = (memory[0] * need + memory[1] * CONTEXT, 9 * need + 8 * CONTEXT)
    kinds = tuple(DeviceFacts(kind, "x", ("fp32",), size) for size in sizes)
    devices = Devices(kinds, runs_per_device=packed)
    check_memory([], replace(devices, kinds=(replace(kinds[0], memory=2 * CONTEXT),)))
    for tasks in ([small, large], [large, small]):
        if room is None:
            check_memory(tasks, devices)
        else:
            said = rf"{packed} runs at once on one {kind} .* room for {room} runs?; give each"
            with pytest.raises(UserError, match=said):
                check_memory(tasks, devices)


def test_precisions_of_training_and_samplers_are_those_of_every_device() -> None:
    kinds = [DeviceFacts("cpu", "x", ("fp32", "tf32"), 2**40)]
    kinds += [DeviceFacts("cpu", "y", ("fp32", "tf32", "bf16"), 2**40)]
    samples = decode(SamplesSpec, {"count": 8, "sampler": {"precision": "bf16"}})
    for lacking in (Task(tiny(), (samples,)), Task(tiny(precision="bf16"))):
        check_arithmetic([lacking], Devices((kinds[1],)))
        for check in (check_arithmetic, preflight):
            with pytest.raises(UserError, match=r"cpu \(x\) has no bf16; choose one of fp32, tf32"):
                check([Task(tiny(precision="tf32")), lacking], Devices(tuple(reversed(kinds))))


FD = decode(SamplesSpec, {"metrics": ["fd"], "count": 100})
BY_FILE = replace(FD, reference=decode(SamplesSpec, {"reference": "r.npz"}).reference)
LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}


ROOMY = Devices((DeviceFacts("cpu", "x", ("fp32",), 2**40),))
SET = {**LATENTS, "path": "set", "classes": 3}
WEAK = {**SET, "scale": 0.2, "decoder_scale": 1.0}  # near enough to EDM's deviation of 0.5
TWENTY, MORE = (HeldoutSpec(images=images) for images in (20, 21))  # as many are held out
SAYS_HOW_MANY = (
    "evaluate: heldout_loss of 21 images, and the data hold out 20; write {heldout_loss: {images:"
    " 20}}"
)


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (({"data": SET}, ()), ({"data": {**SET, "path": "x"}}, ()), "data.path: "),
        (({"data": SET}, ()), ({"data": {**SET, "scale": 100.0}}, ()), "data"),
        (({"data": WEAK}, ()), ({"data": WEAK, "process": "flow"}, ()), "data"),
        (({}, ()), ({"init_from": {"file": "w.pt"}}, ()), "init_from: write "),
        (({}, ()), ({"repa": {"encoder": "dinov2-small", "block": 1}}, ()), "repa"),
        (({"data": SET}, ()), ({"data": SET, "captions": "clip-base"}, ()), "captions: the data "),
        (({}, (FD,)), ({}, (replace(FD, metrics=("fid",)),)), "metrics: "),
        (({}, (FD,)), ({}, (BY_FILE,)), "reference"),
        (({"data": SET}, (TWENTY,)), ({"data": SET}, (MORE,)), SAYS_HOW_MANY),
        (({}, (MORE,)), ({"data": SET}, (MORE,)), SAYS_HOW_MANY),
    ],
    ids=[
        *("data", "their scale", "a scale for a process", "a start", "an encoder", "captions"),
        *("weights of a metric", "a reference", "held-out samples", "held-out samples of a set"),
    ],
)
def test_what_one_run_of_a_sweep_lacks_is_refused_whichever_it_is(
    good: Any, bad: Any, said: str, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_fidelity")
    monkeypatch.delenv("TREAD_LAB_INCEPTION", raising=False)
    write_set(in_folder / "set")
    whole, lacking = (Task(tiny(**changes), asked) for changes, asked in (good, bad))
    alike = replace(whole, spec=replace(whole.spec, seed=1))
    assert preflight([whole, alike], ROOMY) == []
    for tasks in ([whole, lacking, alike], [lacking, whole]):
        with pytest.raises(UserError) as refusal:
            preflight(tasks, ROOMY)
        assert str(refusal.value).startswith(said)


def test_a_run_is_held_against_every_kind_of_device() -> None:
    tasks = [Task(tiny(train={"batch": batch})) for batch in (2**12, 8)]
    preflight(tasks, ROOMY)
    small = replace(ROOMY.kinds[0], name="y", memory=2**30)
    with pytest.raises(UserError, match=r"cpu \(y\)"):
        preflight(tasks, replace(ROOMY, kinds=(*ROOMY.kinds, small)))


def test_blocks_that_are_to_be_compiled_are_refused_where_nothing_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auto, blocks = ([Task(tiny(execution={"compile": how}))] for how in ("auto", "blocks"))
    gpu = Devices((DeviceFacts("cuda", "x", ("fp32",), 2**40),))
    for why, lines in ((None, 0), ("there is no gcc", 1)):
        monkeypatch.setattr(module, "no_compiler", lambda why=why: why)
        assert preflight(auto, ROOMY) == [] and len(preflight(auto, gpu)) == lines
        with nullcontext() if why is None else pytest.raises(UserError, match=f"^exec.*: {why}; "):
            assert preflight(blocks, ROOMY) == []


def test_the_digest_covers_what_the_interpreter_sees_of_what_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_digest() == code_digest() and len(code_digest()) == 16
    monkeypatch.setattr(tread_lab, "__file__", str(tmp_path / "__init__.py"))
    nested, digests = tmp_path / "engine" / "cost" / "blocks.py", list[str]()
    nested.parent.mkdir(parents=True)
    for text in (
        'def f(x):\n    """Old."""\n    return x + 1  # why\n',
        '"""A module."""\n\ndef f(\n    x,\n):\n    return x+1\n',
        "def f(x):\n    return x + 2\n",
    ):
        nested.write_text(text)
        digests.append(code_digest.__wrapped__())
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.fault(
    17,
    survived="no attempt is made at its runs, and other data are another run",
)
def test_changed_data_are_noticed_and_other_data_are_no_mixture(lab: Lab, tmp_path: Path) -> None:
    def latents(name: str, factor: float) -> RunSpec:
        values = normal() * np.float32(factor)
        folder = write_arrays(tmp_path / name, values, heldout=values[:20], classes=10)
        data = {"source": "latents", "path": str(folder), "channels": 4, "size": 8, "classes": 10}
        return decode(RunSpec, {**encode(tiny(steps=2)), "data": data})

    one, other = (DataDigests(lab).named(latents(*s)) for s in (("one", 1.5), ("other", 1.2)))
    carry_out(lab, Task(one))
    carry_out(lab, Task(other))
    assert mixtures(lab, [lab.run_of(one).name, lab.run_of(other).name]) == []
    shutil.move(tmp_path / "one", tmp_path / "there")
    there = replace(one, data=replace(one.data, path=str(tmp_path / "there")))
    evaluations = decode_evaluations([{"heldout_loss": {"images": 4}}])
    carry_out(lab, Task(there, evaluations))  # equal content elsewhere is the same run
    assert lab.run_of(one).evaluation(evaluations[0]).done
    shutil.move(tmp_path / "there", tmp_path / "one")
    latents("one", 3.0)
    attempts = lab.run_of(one).attempts()
    with pytest.raises(UserError, match=rf"^data: {tmp_path / 'one'} holds other content"):
        carry_out(lab, Task(one, decode_evaluations(["heldout_loss"])))
    assert lab.run_of(one).attempts() == attempts
    assert lab.run_of(DataDigests(lab).named(latents("one", 3.0))) != lab.run_of(one)


def test_guidance_that_guides_nothing_is_refused() -> None:
    for guidance in {"weak": {"step": 2}}, {"interval": [90, 99]}:
        sampler = {"guidance": {"weight": 2, **guidance}}
        evaluations = decode_evaluations([{"samples": {"count": 4, "sampler": sampler}}])
        with pytest.raises(UserError, match=r"nothing is guided|interval: must hold a level"):
            check_sampled([Task(tiny(steps=2), evaluations)])


def test_plan_lists_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("INCEPTION", "REFERENCES", "AUTOENCODER", "ENCODER")
    variables = [f"TREAD_LAB_{name}" for name in names]
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    latents = {"source": "latents", "channels": 4, "size": 8, "classes": 2}
    data = {**latents, "path": str(tmp_path / "gone")}
    defaults = EvaluationDefaults(reference=ReferenceSpec(name="imagenet256"))
    evaluations = decode_evaluations(["fid@100"], defaults)
    run = tiny(data=data, repa={"encoder": "dinov2-base"})
    lines = check_planned([Task(run, tuple(evaluations))])
    for what in (str(tmp_path / "gone"), *variables):
        assert any(line.startswith("missing: ") and what in line for line in lines), what
