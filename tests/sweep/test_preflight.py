"""Preflight refuses what would fail, and a plan lists what is missing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tread_lab
from tests.made_data import normal, write_arrays
from tests.sweep.plans import carry_out, tiny
from tests.sweep.test_planned_sweep import write_set
from tread_lab.config import RunSpec, UserError, decode, encode
from tread_lab.config.evaluation import (
    EvaluationDefaults,
    HeldoutSpec,
    SamplesSpec,
    decode_evaluations,
)
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.hardware import DeviceFacts, Devices
from tread_lab.records.caveats import mixtures
from tread_lab.records.lab import Lab
from tread_lab.sweep.planned_sweep import DataDigests
from tread_lab.sweep.preflight import missing_files, preflight
from tread_lab.sweep.task import Task
from tread_lab.train.provenance import code_digest

FD = decode(SamplesSpec, {"metrics": ["fd"], "count": 100})
BY_FILE = replace(FD, reference=decode(SamplesSpec, {"reference": "r.npz"}).reference)
LATENTS = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}


ROOMY = Devices((DeviceFacts("cpu", "x", ("fp32",)),))
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
def test_preflight_refuses_what_a_run_lacks(
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


def test_code_digest_ignores_comments_and_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code_digest() == code_digest() and len(code_digest()) == 16
    monkeypatch.setattr(tread_lab, "__file__", str(tmp_path / "__init__.py"))
    nested, digests = tmp_path / "train" / "deep" / "blocks.py", list[str]()
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
def test_changed_data_are_noticed(lab: Lab, tmp_path: Path) -> None:
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
        with pytest.raises(UserError, match=r"branches that differ|interval: must hold a level"):
            preflight([Task(tiny(steps=2), evaluations)], Devices.here("cpu"))


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
    lines = missing_files([Task(run, tuple(evaluations))])
    for what in (str(tmp_path / "gone"), *variables):
        assert any(line.startswith("missing: ") and what in line for line in lines), what
