"""Preflight refuses what would fail, and a plan lists what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tread_lab
from tests.made_data import normal, write_arrays
from tests.sweep.plans import tiny
from tread_lab.config import UserError, decode
from tread_lab.config.evaluation import (
    HeldoutSpec,
    SamplesSpec,
)
from tread_lab.hardware import DeviceFacts, Devices
from tread_lab.sweep.preflight import preflight
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
    "evaluate: heldout_loss requires 21 held-out images, got 20. Try {heldout_loss: {images: 20}}"
)


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        (({"data": SET}, ()), ({"data": {**SET, "path": "x"}}, ()), "data.path: "),
        (({"data": SET}, ()), ({"data": {**SET, "scale": 100.0}}, ()), "data"),
        (({"data": WEAK}, ()), ({"data": WEAK, "process": "flow"}, ()), "data"),
        (({}, ()), ({"init_from": {"file": "w.pt"}}, ()), "init_from: must"),
        (({}, ()), ({"repa": {"encoder": "dinov2-small", "block": 1}}, ()), "repa"),
        (({"data": SET}, ()), ({"data": SET, "captions": "clip-base"}, ()), "captions: requires "),
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
    write_arrays(in_folder / "set", normal(), heldout=normal(20, 1), classes=3)
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
