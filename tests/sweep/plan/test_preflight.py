"""Preflight refuses runs that do not fit their device, and runs of another provenance."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.made_data import SCALE, write_autoencoder
from tread_lab.cli import main
from tread_lab.engine import precision, provenance
from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import CONTEXT, memory
from tread_lab.engine.provenance import DECIDES, code_digest, fingerprint, meaning, measured_with
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import provenance_differences, provenances_of
from tread_lab.specs import RunSpec, UserError, decode, encode, extensions
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec, decode_evaluations
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.plan import preflight as module
from tread_lab.sweep.plan import timing
from tread_lab.sweep.plan.data_digests import DataDigests
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.preflight import (
    check_arithmetic,
    check_measured,
    check_memory,
    check_provenance,
    preflight,
)
from tread_lab.sweep.trial import attempt
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]
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
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr(timing, "trial_batch", lambda *_: 0)  # nothing is timed
    big = int(memory(CPU) / 2 / _image_bytes())
    (in_folder / "big.yaml").write_text(SWEEP % big)
    before = sorted(in_folder.rglob("*"))
    assert main(["sweep", "big.yaml", "--device", "cpu", "--no-mlflow"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "4 runs at once on one cpu device need about" in line and "--concurrent" in line
    assert sorted(in_folder.rglob("*")) == before


def _image_bytes() -> float:
    """What one image of the tiny experiment keeps for the backward pass."""
    from tread_lab.config.load import load_experiment
    from tread_lab.specs.fields import run_of

    return cost(run_of(load_experiment("tiny", []).run)).activation_bytes


def test_a_gpu_given_in_parts(tiny: Callable[..., RunSpec]) -> None:
    task = Task(tiny())
    need = cost(task.spec).memory_bytes
    sizes = (9 * need + 8 * CONTEXT, 2 * need + CONTEXT)  # each process has a context of its own
    large, small = (DeviceFacts("cuda", "x", ("fp32",), size) for size in sizes)
    for runs_per_device in (1, 2):
        check_memory([task], Devices((large, small), runs_per_device=runs_per_device))
    with pytest.raises(UserError, match=r"3 runs at once .* room for 2 runs"):
        check_memory([task], Devices((large, small), runs_per_device=3))


def test_the_largest_run_decides_how_many_share_a_device(tiny: Tiny) -> None:
    small, large = Task(tiny()), Task(tiny(train={"batch": 256}))
    need = cost(large.spec).memory_bytes
    assert 3 * cost(small.spec).memory_bytes < 2 * need
    shared = Devices((DeviceFacts("cuda", "x", ("fp32",), 2 * need + CONTEXT),), runs_per_device=3)
    for tasks in ([small, large], [large, small]):
        with pytest.raises(UserError, match=r"3 runs at once .* room for 2 runs"):
            check_memory(tasks, shared)


def test_the_precision_of_a_sampler_is_checked_like_that_of_training(tiny: Tiny) -> None:
    exact = Devices((DeviceFacts("cpu", "x", ("fp32", "tf32"), 2**40),))
    samples = decode(SamplesSpec, {"count": 8, "sampler": {"precision": "bf16"}})
    check_arithmetic([Task(tiny()), Task(tiny(precision="tf32"))], exact)
    with pytest.raises(UserError, match=r"cpu \(x\) has no bf16; choose one of fp32, tf32"):
        check_arithmetic([Task(tiny()), Task(tiny(), (samples,))], exact)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What preflight asks of data that hold out 100 samples, with its checks replaced.

    Data of size 32 hold out 50. Those of size 64 are sorted by class, ten samples each.
    """
    calls: list[Any] = []

    class Opened:
        def __init__(self, data: Any, split: str) -> None:
            self.size, self.split = data.size, split
            self.preview = data.size == 32 and split == "heldout"

        def __len__(self) -> int:
            return (50 if self.size == 32 else 100) if self.split == "heldout" else 5000

        def take(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return ids, ids // 10 if self.size == 64 else ids % 10

    def requirements(spec: Any, source: str, *, preview: bool, shape: Any) -> None:
        calls.append((spec.metrics, spec.reference, source, preview, shape))

    monkeypatch.setattr(module, "open_data", Opened)
    monkeypatch.setattr(module, "image_shape", lambda samples: (samples.size, samples.split))
    monkeypatch.setattr(
        module,
        "check_deviation",
        lambda spec, s: calls.append((spec.process.kind, s.size, s.split)),
    )

    def files(spec: Any, samples: Any) -> None:
        calls.append((spec.encoder, samples.size, samples.split))

    monkeypatch.setattr("tread_lab.systems.repa.encoder.check_encoder", files)
    monkeypatch.setattr("tread_lab.systems.text_to_image.captions.check_captions", files)
    monkeypatch.setattr(module, "check_start", lambda spec: calls.append(("start", spec.seed)))
    monkeypatch.setattr(module, "check_requirements", requirements)
    return calls


ROOMY = Devices((DeviceFacts("cpu", "x", ("fp32",), 2**40),))


def test_each_requirement_of_a_sweep_is_asked_once(tiny: Tiny, asked: list[Any]) -> None:
    fd = decode(SamplesSpec, {"metrics": ["fd"], "count": 100})
    more = decode(SamplesSpec, {"metrics": ["fd"], "count": 200})
    preflight([Task(tiny(seed=seed), (fd, more)) for seed in (3, 4)], ROOMY)
    assert asked == [
        ("edm", 16, "train"),
        ("start", 4),
        (("fd",), None, "fashion16", False, (16, "heldout")),
    ]


def test_other_data_processes_encoders_and_starts_are_asked_apart(
    tiny: Tiny, asked: list[Any]
) -> None:
    kid = decode(SamplesSpec, {"metrics": ["kid"], "count": 100})
    large = {"data": {"size": 32}, "model": {"depth": 2, "width": 16, "heads": 2}}
    tasks = [
        Task(tiny()),
        Task(tiny(seed=1)),
        Task(tiny(repa={"encoder": "dinov2-small", "block": 1}, seed=2)),
        Task(tiny(repa={"encoder": "dinov2-small", "block": 1}, seed=3)),
        Task(tiny(seed=5, **large), (kid,)),
    ]
    preflight(tasks, ROOMY)
    assert asked == [
        ("edm", 16, "train"),
        ("edm", 32, "train"),
        ("dinov2-small", 16, "train"),
        ("start", 3),
        ("start", 5),
        (("kid",), None, "fashion16", True, (32, "heldout")),
    ]


def sized(tiny: Tiny, size: int, **more: Any) -> RunSpec:
    return tiny(data={"size": size}, model={"depth": 2, "width": 16, "heads": 2}, **more)


def test_captions_of_both_splits_are_asked_once_for_an_encoder(
    tiny: Tiny, asked: list[Any]
) -> None:
    data = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
    specs = [tiny(data=data, captions=name) for name in ("clip-base", "clip-large")]
    again = tiny(data=data, captions="clip-base", seed=1)
    preflight([Task(spec) for spec in (*specs, again, tiny())], ROOMY)
    assert [call for call in asked if "clip" in str(call[0])] == [
        ("clip-base", 8, "train"),
        ("clip-base", 8, "heldout"),
        ("clip-large", 8, "train"),
        ("clip-large", 8, "heldout"),
    ]


def test_a_run_that_starts_from_another_is_asked_for_its_start(
    tiny: Tiny, asked: list[Any]
) -> None:
    child = tiny(seed=1, init_from={"run": encode(tiny())})
    preflight([Task(child), Task(tiny(seed=2))], ROOMY)
    assert asked[1:] == [("start", 1), ("start", 2)]


def test_each_metric_reference_and_data_set_has_requirements(tiny: Tiny, asked: list[Any]) -> None:
    fd, kid = (decode(SamplesSpec, {"metrics": [name], "count": 100}) for name in ("fd", "kid"))
    by_file = replace(fd, reference=decode(SamplesSpec, {"reference": "r.npz"}).reference)
    assert by_file.reference is not None
    preflight([Task(tiny(), (fd, kid, by_file)), Task(sized(tiny, 32), (fd,))], ROOMY)
    small, large = (16, "heldout"), (32, "heldout")
    assert asked[-4:] == [
        (("fd",), None, "fashion16", False, small),
        (("kid",), None, "fashion16", False, small),
        (("fd",), by_file.reference, "fashion16", False, small),
        (("fd",), None, "fashion16", True, large),
    ]


@pytest.mark.usefixtures("asked")
def test_each_data_set_is_asked_for_its_own_held_out_samples(tiny: Tiny) -> None:
    few, many = HeldoutSpec(images=50), HeldoutSpec(images=100)
    preflight([Task(tiny(), (many,)), Task(sized(tiny, 32), (few,))], ROOMY)
    with pytest.raises(UserError, match="of 100 images, and the data hold out 50"):
        preflight([Task(tiny(), (many,)), Task(sized(tiny, 32), (many,))], ROOMY)


@pytest.mark.usefixtures("asked")
def test_less_than_half_of_the_classes_are_few(tiny: Tiny) -> None:
    """The first 40 of 100 samples are of 4 classes, the first 50 of 5; both spread over 10."""
    by_class, mixed = sized(tiny, 64), Task(tiny(), (HeldoutSpec(images=40),))
    told = {
        images: preflight([Task(by_class, (HeldoutSpec(images=images),)), mixed], ROOMY)
        for images in (40, 50)
    }
    assert told[50] == []
    (line,) = told[40]
    assert "the first 40 held-out samples are of 4 classes only" in line
    assert line.endswith("takes them from 10")


def test_a_run_alone_on_the_device_of_a_worker_is_left_to_it(tiny: Tiny) -> None:
    small = DeviceFacts("cuda", "x", ("fp32",), 1)
    check_memory([Task(tiny())], Devices((small,), runs_per_device=1))
    check_memory([], Devices((small,), runs_per_device=1))
    check_memory([], Devices((replace(small, memory=2 * CONTEXT),), runs_per_device=2))
    need = cost(tiny().dense()).memory_bytes
    shared = Devices((replace(small, memory=2 * need + CONTEXT),), runs_per_device=3)
    with pytest.raises(UserError, match=r"room for 2 runs; give each"):
        check_memory([Task(tiny())], shared)


def test_what_decides_a_provenance_is_asked_for_apart(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    monkeypatch.setattr(module, "fingerprint", lambda spec, kind: made.append(spec.seed) or {})  # type: ignore[func-returns-value]
    latents = {"source": "latents", "path": "x", "channels": 4, "size": 8, "classes": 1}
    changes: list[dict[str, Any]] = [
        {},
        {"data": latents},
        {"data": latents, "captions": "clip-base"},
        {"repa": {"block": 1}},
        {"model": {"backbone": "rwkv", "depth": 4, "width": 16, "heads": 2}},
        {"execution": {"compile": "blocks"}},
        {"precision": "bf16"},
        {"train": {"batch": 16}},  # like the first
    ]
    tasks = [Task(tiny(seed=seed, **change)) for seed, change in enumerate(changes)]
    check_provenance(lab, tasks, tasks, "cpu")
    assert made == [7, 1, 2, 3, 4, 5, 6]


def test_where_nothing_is_added_a_mixture_is_no_error(lab: Lab, tiny: Tiny) -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1)]
    for task in tasks:
        attempts = lab.run(task.run).attempts
        attempts.close(attempts.open(made_with={"code": f"{task.spec.seed}"}), "completed")
    check_provenance(lab, tasks, [], "cpu")
    with pytest.raises(UserError, match=r"^code differs"):
        check_provenance(lab, tasks, tasks[:1], "cpu")


def test_each_process_expects_a_deviation_of_the_same_data(tiny: Tiny, asked: list[Any]) -> None:
    preflight([Task(tiny(process=kind)) for kind in ("edm", "flow", "edm")], ROOMY)
    assert asked[:2] == [("edm", 16, "train"), ("flow", 16, "train")]
    assert [call[0] for call in asked[2:]] == ["start", "start"]


@pytest.mark.usefixtures("asked")
def test_no_more_samples_are_measured_than_are_held_out(tiny: Tiny) -> None:
    samples = decode(SamplesSpec, {"metrics": ["fd"], "count": 5000})
    preflight([Task(tiny(), (HeldoutSpec(images=100), samples))], ROOMY)
    with pytest.raises(UserError) as refusal:
        preflight([Task(tiny()), Task(tiny(seed=1), (HeldoutSpec(images=101),))], ROOMY)
    assert str(refusal.value) == (
        "evaluate: heldout_loss of 101 images, and the data hold out 100; write"
        " {heldout_loss: {images: 100}}"
    )


@pytest.mark.usefixtures("asked")
def test_preflight_refuses_what_the_devices_lack(tiny: Tiny) -> None:
    with pytest.raises(UserError, match=r"cpu \(x\) has no bf16"):
        preflight([Task(tiny(precision="bf16"))], ROOMY)
    runs_per_device = Devices((DeviceFacts("cpu", "x", ("fp32",), 1),), runs_per_device=2)
    with pytest.raises(UserError, match=r"2 runs at once on one cpu device .* room for 1 run;"):
        preflight([Task(tiny())], runs_per_device)


@pytest.mark.usefixtures("asked")
def test_each_run_is_checked_against_the_device_of_this_process(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    monkeypatch.setattr(module.memory, "check_memory", lambda *what: checked.append(what))
    preflight([Task(tiny()), Task(tiny())], ROOMY)
    assert checked == []
    preflight([Task(tiny()), Task(tiny())], replace(ROOMY, local=CPU))
    assert checked == [(tiny(), CPU)]


def run(lab: Lab, *tasks: Task) -> None:
    InlineExecutor(device="cpu").run(lab, tasks, lambda report: None)


def test_first_images_of_few_classes_are_told_before_anything_runs(
    tiny: Tiny, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "latents.npy", rng.normal(0, 0.5, (400, 4, 8, 8)).astype(np.float16))
    np.save(tmp_path / "labels.npy", np.repeat(np.arange(5), 80))  # 4 of each are held out
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8}
    spec = tiny(data=data)

    def told(*evaluations: object) -> list[str]:
        return preflight([Task(spec, decode_evaluations(evaluations))], Devices.here("cpu"))

    (line,) = told({"heldout_loss": {"images": 5, "at": "50%, end"}})
    assert line == (
        "heldout_loss: the first 5 held-out samples are of 2 classes only;"
        " {heldout_loss: {images: 5, pick: even}} takes them from 5"
    )
    assert told({"heldout_loss": {"images": 5, "pick": "even"}}) == []
    assert told({"layer_similarity": {"images": 20}}) == []
    fashion = Task(tiny(), decode_evaluations(["heldout_loss", "layer_similarity"]))
    assert preflight([fashion], Devices.here("cpu")) == []


def test_what_says_nothing_to_the_interpreter_is_not_in_the_digest() -> None:
    source = 'def f(x):\n    """Old."""\n    return x + 1  # why\n'
    same = '"""A module."""\n\ndef f(\n    x,\n):\n    return x+1\n'
    assert meaning(source) == meaning(same)
    assert meaning(source) != meaning(source.replace("+ 1", "+ 2"))


def test_the_digest_covers_what_decides_and_not_what_shows() -> None:
    assert all((ROOT / name).exists() for name in DECIDES)
    assert {*DECIDES} == {
        *("specs", "draws.py", "routing", "diffusion", "backbones", "data", "sampling"),
        *("metrics", "engine", "systems"),
    }
    assert code_digest() == code_digest() and len(code_digest()) == 16


def test_every_attempt_says_what_it_was_made_with(lab: Lab, tiny: Tiny) -> None:
    run(lab, Task(tiny(steps=4)))
    (tried,) = lab.run_of(tiny(steps=4)).attempts.read()
    assert tried.made_with == fingerprint(tiny(steps=4), "cpu")
    data = ["data fashion16", "held-out data fashion16"]
    names = ["code", *data, "blocks of dit", "attention backend"]
    assert list(tried.made_with) == names


@pytest.mark.fault(
    17,
    survived="refused in one line that says what differs; where it is forced, tables tell of it",
)
def test_changed_code_is_refused_between_runs_and_told_when_forced(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [Task(tiny(steps=4, seed=seed)) for seed in (0, 1)]
    run(lab, tasks[0])
    check_provenance(lab, tasks, tasks[1:], "cpu")
    monkeypatch.setattr(provenance, "code_digest", lambda: "another")
    check_provenance(lab, tasks, [], "cpu")
    with pytest.raises(UserError, match=r"code differs: .* in 1 run, another in what is to be run"):
        check_provenance(lab, tasks, tasks[1:], "cpu")
    run(lab, tasks[1])
    (found,) = provenance_differences(provenances_of(lab, (task.run for task in tasks)))
    assert found.what == "code" and found.within == []


def test_compiled_runs_are_not_added_to_eager_ones(lab: Lab, tiny: Tiny) -> None:
    tasks = [Task(tiny(steps=4, seed=seed)) for seed in (0, 1)]
    run(lab, tasks[0])
    expected = (
        r"blocks of dit differs: eager in 1 run, inductor [0-9.]+\S* in what is to be run now"
    )
    with pytest.raises(UserError, match=expected):
        check_provenance(lab, tasks, tasks[1:], "cuda")


def test_bf16_of_one_cpu_is_not_added_to_that_of_another_whichever_run_is_last(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU with bf16 instructions uses them; one without rounds for its fp32 kernels."""
    half, plain = (Task(tiny(steps=4, precision=kind)) for kind in ("bf16", "fp32"))
    attempts = lab.run_of(half.spec).attempts
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: True)
    attempts.close(attempts.open(made_with=fingerprint(half.spec, "cpu")), "completed")
    todo = [Task(replace(half.spec, seed=1)), plain]
    check_provenance(lab, [half, *todo], todo, "cpu")
    monkeypatch.setattr(precision, "multiplies_bf16", lambda: False)
    said = (
        "^products in bf16 differs: bf16 kernels, .* in 1 run, rounded operands, fp32 kernels in "
    )
    with pytest.raises(UserError, match=said):
        check_provenance(lab, [half, *todo], todo, "cpu")


def test_another_version_of_a_package_is_refused_whatever_run_is_last(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(version: str) -> None:
        wave = extensions.Extension("tread_lab.schedules", "wave", "ours", version, "math:cos")
        monkeypatch.setattr(extensions, "installed", lambda g: (wave,) if g == wave.group else ())

    install("1.0")
    plain = tiny(steps=4)
    waved = replace(plain, train=replace(plain.train, schedule="wave"))
    run(lab, Task(waved))
    install("1.1")
    todo = [Task(replace(waved, seed=1)), Task(plain)]
    with pytest.raises(
        UserError, match=r"package ours differs: 1.0 in 1 run, 1.1 in what is to be"
    ):
        check_provenance(lab, [Task(waved), *todo], todo, "cpu")


def test_changed_weights_are_noticed_whichever_encoder_is_last(
    lab: Lab, tiny: Tiny, tmp_path: Path
) -> None:
    def aligned(size: str, content: bytes, seed: int = 0) -> RunSpec:
        folder = tmp_path / size
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(content)
        return tiny(repa={"encoder": f"dinov2-{size}", "block": 1, "path": str(folder)}, seed=seed)

    small, base = aligned("small", b"1"), aligned("base", b"1")
    attempts = lab.run_of(small).attempts
    attempts.close(attempts.open(made_with=fingerprint(small, "cpu")), "completed")
    todo = [Task(aligned("small", b"1", seed=1)), Task(base)]
    check_provenance(lab, [Task(small), *todo], todo, "cpu")
    aligned("small", b"2")
    with pytest.raises(UserError, match=r"^weights dinov2-small differs: "):
        check_provenance(lab, [Task(small), *todo], todo, "cpu")


def test_changed_code_between_the_attempts_of_a_run_is_told(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tiny(steps=4))
    monkeypatch.setattr(attempt, "fingerprint", lambda *_: {"code": "a"})
    reports = attempt.attempt(lab.run(task.run), task.spec, CPU, attempt.WorkerInfo())
    with pytest.raises(KeyboardInterrupt), reports:
        raise KeyboardInterrupt
    monkeypatch.setattr(attempt, "fingerprint", lambda *_: {"code": "b"})
    run(lab, task)
    name = task.run
    (found,) = provenance_differences(provenances_of(lab, [name]))
    assert found.within == [name] and "it changed within 1 of them" in str(found)


@pytest.mark.fault(
    17,
    survived="no attempt is made at its runs, and other data are another run",
)
def test_changed_data_are_noticed_and_other_data_are_no_mixture(
    lab: Lab, tiny: Tiny, tmp_path: Path
) -> None:
    def latents(name: str, factor: float) -> RunSpec:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        values = np.random.default_rng(0).normal(size=(40, 4, 8, 8)) * factor
        np.save(folder / "latents.npy", values.astype(np.float32))
        np.save(folder / "labels.npy", np.arange(40) % 10)
        np.save(folder / "heldout_latents.npy", values[:20].astype(np.float32))
        np.save(folder / "heldout_labels.npy", np.arange(20) % 10)
        data = {"source": "latents", "path": str(folder), "channels": 4, "size": 8, "classes": 10}
        return decode(RunSpec, {**encode(tiny(steps=2)), "data": data})

    old = latents("old", 1.0)  # planned before data had digests
    run(lab, Task(old))
    shutil.move(tmp_path / "old", tmp_path / "one")
    unsigned = latents("one", 1.0)
    check_provenance(lab, [Task(old)], [Task(unsigned)], "cpu")
    heldout = tmp_path / "one" / "heldout_latents.npy"
    np.save(heldout, np.load(heldout) * 2)
    with pytest.raises(UserError, match=r"^held-out data latents differs"):
        check_provenance(lab, [Task(old)], [Task(unsigned)], "cpu")

    one, other = (DataDigests(lab).alone(latents(*s)) for s in (("one", 1.5), ("other", 2.0)))
    run(lab, Task(one))
    check_provenance(lab, [Task(one), Task(other)], [Task(other)], "cpu")
    shutil.move(tmp_path / "one", tmp_path / "there")
    there = replace(one, data=replace(one.data, path=str(tmp_path / "there")))
    evaluations = decode_evaluations([{"heldout_loss": {"images": 4}}])
    run(lab, Task(there, evaluations))  # equal content elsewhere is the same run
    assert lab.run_of(one).evaluation(evaluations[0]).done
    assert lab.run_of(one).damaged() == []
    shutil.move(tmp_path / "there", tmp_path / "one")
    latents("one", 3.0)
    attempts = lab.run_of(one).attempts.read()
    with pytest.raises(UserError, match=rf"^data: {tmp_path / 'one'} holds other content"):
        run(lab, Task(one, decode_evaluations(["heldout_loss"])))
    assert lab.run_of(one).attempts.read() == attempts
    assert lab.run_of(DataDigests(lab).alone(latents("one", 3.0))) != lab.run_of(one)


@pytest.mark.parametrize("sweep", [True, False])
def test_another_autoencoder_is_refused_where_earlier_evaluations_had_one(
    lab: Lab,
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sweep: bool,
) -> None:
    pytest.importorskip("diffusers")
    monkeypatch.setattr(provenance, "extractor_digests", lambda spec, source: {"inception": "i"})
    np.save(tmp_path / "latents.npy", np.zeros((40, 4, 8, 8), "f4"))
    np.save(tmp_path / "labels.npy", np.arange(40) % 10)
    data = {"source": "latents", "path": str(tmp_path), "channels": 4, "size": 8, "scale": SCALE}
    one, other = (tiny(data=data, seed=seed) for seed in (0, 1))
    (images,) = decode_evaluations(["fid@1k"])
    for seed, name in enumerate(("ema", "mse", "ema-again")):
        write_autoencoder(tmp_path / name, seed=seed % 2)

    def asked(name: str) -> None:
        monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(tmp_path / name))
        if sweep:
            todo = [Task(other, (images,))]
            check_provenance(lab, [Task(one), *todo], todo, "cpu")
        else:
            check_measured([lab.run_of(one)], [(other, images)])

    asked("mse")
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(tmp_path / "ema"))
    made = measured_with(one, images)
    assert list(made) == [f"{what}latents x 1.7" for what in ("held-out data ", "decoder of ")] + [
        "weights inception"
    ]
    lab.run_of(one).evaluation(images).write(images, {"fid": 1.0}, made_with=made)
    asked("ema-again")
    with pytest.raises(
        UserError, match=r"^decoder of latents x 1.7 differs: \w+ in 1 run, .* --allow-"
    ):
        asked("mse")


def test_records_without_digests_say_nothing(lab: Lab, tiny: Tiny) -> None:
    folder = lab.run_of(tiny())
    folder.attempts.close(folder.attempts.open(), "completed")
    check_provenance(lab, [Task(tiny())], [Task(tiny(seed=1))], "cpu")
