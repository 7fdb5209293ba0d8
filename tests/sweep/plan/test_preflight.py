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
from tread_lab.engine import precision, provenance
from tread_lab.engine.cost.memory import cost_on
from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import CONTEXT, memory
from tread_lab.engine.provenance import code_digest, fingerprint, measured_with
from tread_lab.prepare.stand_ins import SCALE, write_autoencoder
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import provenance_differences, provenances_of
from tread_lab.specs import RunSpec, UserError, decode, encode
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.fields import run_of
from tread_lab.sweep.plan import preflight as module
from tread_lab.sweep.plan import timing
from tread_lab.sweep.plan.data_digests import DataDigests
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.preflight import (
    check_arithmetic,
    check_measured,
    check_memory,
    check_provenance,
    check_sampled,
    preflight,
)
from tread_lab.sweep.trial.task import Task

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
    monkeypatch.setattr(timing, "trial_batch", lambda *_: 0)  # nothing is timed
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


def test_what_decides_a_provenance_is_asked_for_apart(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(module, "fingerprint", lambda spec, kind: made.append(spec.seed) or {})  # type: ignore[func-returns-value]
    changes: list[dict[str, Any]] = [
        {},
        {"data": LATENTS},
        {"data": LATENTS, "captions": "clip-base"},
        {"repa": {"block": 1}},
        {"model": {"backbone": "rwkv", "depth": 4, "width": 16, "heads": 2}},
        {"execution": {"compile": "blocks"}},
        {"precision": "bf16"},
        {"train": {"batch": 16}},  # like the first
    ]
    tasks = [Task(tiny(seed=seed, **change)) for seed, change in enumerate(changes)]
    check_provenance(lab, tasks, tasks, "cpu")
    assert made == [7, 1, 2, 3, 4, 5, 6]


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


def encoder(content: bytes, folder: Path) -> None:
    for size, weights in (("small", content), ("base", b"1")):
        (folder / size).mkdir(exist_ok=True)
        (folder / size / "model.safetensors").write_bytes(weights)


def aligned(size: str) -> dict[str, Any]:
    return {"repa": {"encoder": f"dinov2-{size}", "block": 1, "path": size}}


# What differs -> the run that was made, another that is to be made beside its like, what is
# different for the second session, the device, and what the line says.
DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], Any, str, str]] = {
    "code": (
        {}, {"precision": "tf32"},
        lambda new, patch: patch.setattr(provenance, "code_digest", lambda: f"code {new}"),
        "cpu", "^code differs: code False in 1 run, code True in what is to be run now;",
    ),
    "compiled": (
        {}, {"precision": "tf32"}, lambda new, patch: None,
        "cuda", r"^blocks of dit differs: eager in 1 run, inductor [0-9.]+\S* in what is to be run",
    ),
    "bf16": (  # a CPU with bf16 instructions uses them; one without rounds for its fp32 kernels
        {"precision": "bf16"}, {"precision": "fp32"},
        lambda new, patch: patch.setattr(precision, "multiplies_bf16", lambda: not new),
        "cpu", "^products in bf16 differs: bf16 kernels, .* in 1 run, rounded operands, fp32 kern",
    ),
    "weights": (
        aligned("small"), aligned("base"),
        lambda new, patch: encoder(b"2" if new else b"1", Path()),
        "cpu", "^weights repa dinov2-small differs: ",
    ),
}  # fmt: skip


@pytest.mark.fault(
    17,
    survived="refused in one line that says what differs; where it is forced, tables tell of it",
)
@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_differs_from_earlier_runs_is_refused_whichever_run_is_last_and_told_when_forced(
    name: str, lab: Lab, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, others, differ, device, said = DIFFERENCES[name]
    differ(False, monkeypatch)
    made = Task(tiny(**changes))
    todo = [Task(replace(made.spec, seed=1)), Task(tiny(**others))]
    attempts = lab.run(made.run).attempts
    check_provenance(lab, [made, *todo], todo, "cpu")  # no run says anything yet
    attempts.close(attempts.open(), "completed")
    check_provenance(lab, [made, *todo], todo, "cpu")  # this one is older than digests
    attempts.close(attempts.open(fingerprint=fingerprint(made.spec, "cpu")), "completed")
    check_provenance(lab, [made, *todo], todo, "cpu")
    differ(True, monkeypatch)
    check_provenance(lab, [made, *todo], [], device)  # nothing is added
    with pytest.raises(UserError, match=said):
        check_provenance(lab, [made, *todo], todo, device)
    forced = lab.run(todo[0].run).attempts
    forced.close(forced.open(fingerprint=fingerprint(todo[0].spec, device)), "completed")
    (found, *_) = provenance_differences(provenances_of(lab, [made.run, todo[0].run]))
    assert said.startswith(f"^{found.what} differs") and found.within == []


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

    old = latents("old", 1.0)  # planned before data had digests
    carry_out(lab, Task(old))
    shutil.move(tmp_path / "old", tmp_path / "one")
    unsigned = latents("one", 1.0)
    check_provenance(lab, [Task(old)], [Task(unsigned)], "cpu")
    heldout = tmp_path / "one" / "heldout_latents.npy"
    np.save(heldout, np.load(heldout) * 2)
    with pytest.raises(UserError, match=r"^held-out data latents differs"):
        check_provenance(lab, [Task(old)], [Task(unsigned)], "cpu")

    one, other = (DataDigests(lab).named(latents(*s)) for s in (("one", 1.5), ("other", 2.0)))
    carry_out(lab, Task(one))
    check_provenance(lab, [Task(one), Task(other)], [Task(other)], "cpu")
    scaled = replace(one, data=replace(one.data, scale=0.5))  # as an axis of a sweep
    check_provenance(lab, [Task(one), Task(scaled)], [Task(scaled)], "cpu")
    shutil.move(tmp_path / "one", tmp_path / "there")
    there = replace(one, data=replace(one.data, path=str(tmp_path / "there")))
    evaluations = decode_evaluations([{"heldout_loss": {"images": 4}}])
    carry_out(lab, Task(there, evaluations))  # equal content elsewhere is the same run
    assert lab.run_of(one).evaluation(evaluations[0]).done
    assert lab.run_of(one).damaged() == []
    shutil.move(tmp_path / "there", tmp_path / "one")
    latents("one", 3.0)
    attempts = lab.run_of(one).attempts.read()
    with pytest.raises(UserError, match=rf"^data: {tmp_path / 'one'} holds other content"):
        carry_out(lab, Task(one, decode_evaluations(["heldout_loss"])))
    assert lab.run_of(one).attempts.read() == attempts
    assert lab.run_of(DataDigests(lab).named(latents("one", 3.0))) != lab.run_of(one)


def test_guidance_that_guides_nothing_is_refused() -> None:
    for guidance in {"weak": {"step": 2}}, {"interval": [90, 99]}:
        sampler = {"guidance": {"weight": 2, **guidance}}
        evaluations = decode_evaluations([{"samples": {"count": 4, "sampler": sampler}}])
        with pytest.raises(UserError, match=r"nothing is guided|interval: must hold a level"):
            check_sampled([Task(tiny(steps=2), evaluations)])


def test_another_autoencoder_is_refused_where_earlier_evaluations_had_one(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("diffusers")
    monkeypatch.setattr(provenance, "extractor_digests", lambda spec, source: {"inception": "i"})
    write_arrays(tmp_path, np.zeros((40, 4, 8, 8), "f4"), classes=10)
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8, "scale": SCALE}
    (images,) = decode_evaluations(["fid@1k"])
    one, other = tiny(data=data), Task(tiny(data=data, seed=1), (images,))
    said = r"^decoder of latents x 1.7 differs: \w+ in 1 run, .* --allow-"
    for seed, name in enumerate(("ema", "mse")):
        write_autoencoder(tmp_path / name, seed=seed)
    shutil.copytree(tmp_path / "ema", tmp_path / "ema-again")
    for name, refused in (("mse", False), ("ema", False), ("ema-again", False), ("mse", True)):
        monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(tmp_path / name))
        with pytest.raises(UserError, match=said) if refused else nullcontext():
            check_provenance(lab, [Task(one), other], [other], "cpu")
        with pytest.raises(UserError, match=said) if refused else nullcontext():
            check_measured([lab.run_of(one)], [(other.spec, images)])
        if name == "ema":
            made = measured_with(one, images)
            lab.run_of(one).evaluation(images).write(images, {"fid": 1.0}, made_with=made)
    whats = ["held-out data latents x 1.7", "decoder of latents x 1.7", "weights inception"]
    assert list(made) == whats
    mixed = lab.run_of(other.spec)
    mixed.evaluation(images).write(images, {"fid": 1.0}, made_with=made | {whats[1]: "another"})
    check_measured([lab.run_of(one), mixed], [(one, HeldoutSpec())])  # which decodes nothing
