"""A whole task as a sweep runs it, and whether a run is repeated and resumed bit for bit."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from gpu_phases.sampling import SD
from gpu_phases.shared import INNER, ROUTE, TINY, Bench
from tests.stand_ins import write_stand_ins
from tread_lab.config import RunSpec, decode
from tread_lab.config.data import SD_SCALE
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import HeldoutSpec, SamplerSpec, SamplesSpec, SimilaritySpec
from tread_lab.data.autoencoder import VARIABLE
from tread_lab.data.content import sha256
from tread_lab.evaluate import fidelity
from tread_lab.evaluate.fidelity import inception_weights
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.sweep.run_task import run_task
from tread_lab.sweep.task import Task
from tread_lab.train.trainer import Trainer


def whole_task(bench: Bench) -> None:
    """A trial as a sweep runs it, with an image metric, and what it holds of memory afterwards;
    then S/2 as the shipped experiment has it, with its FID@10K."""
    data = {"source": "fashion16", "channels": 1, "size": 16, "classes": 10}
    train, count = {"batch": 16, "steps": 12}, 256 if bench.small else 1000
    metrics = ("fid",) if _inception_is_here() else ("fd",)
    for name, routes in (("dense", []), ("routed", list(INNER))):
        with bench.guarded("whole", run=name):
            tree = {"model": TINY, "data": data, "routes": routes, "train": train}
            spec = decode(RunSpec, tree | {"precision": bench.half})
            sampler = SamplerSpec(steps=3, precision=bench.half)
            evaluations = (
                HeldoutSpec(images=8, levels=2),
                SimilaritySpec(images=4, levels=2),
                SamplesSpec(metrics=metrics, count=count, sampler=sampler),
            )
            started, task = time.perf_counter(), Task(spec, evaluations)
            with tempfile.TemporaryDirectory() as folder:
                lab = Lab(Path(folder))
                *_, report = run_task(lab, task, bench.device)
                images = _image_metrics(lab.run(task.run))
            seconds = time.perf_counter() - started
            held = torch.cuda.memory_allocated() / 1e6 if bench.cuda else 0.0
            said = {"run": name, "ended": report.phase, "s": seconds, **images}
            bench.say("whole", **said, MB_held_afterwards=held)
    with bench.guarded("whole", run="S/2 by default"), tempfile.TemporaryDirectory() as folder:
        _by_default(bench, Path(folder))


def _by_default(bench: Bench, folder: Path) -> None:
    """Some steps of S/2 and its FID of 10,000 images, with stand-ins for what its user brings."""
    made = write_stand_ins(folder / "made")
    fidelity.SHA256 = sha256(made[fidelity.VARIABLE])
    torch.manual_seed(0)
    if not bench.small:
        _write_autoencoder(made[VARIABLE])
    os.environ.update({name: str(path) for name, path in made.items()})
    spec = bench.spec(TINY if bench.small else "DiT-S/2", INNER if bench.small else ROUTE)
    train = replace(spec.train, steps=2 if bench.small else 100)
    spec = replace(spec, data=replace(spec.data, decoder_scale=SD_SCALE), train=train)
    tree = {"metrics": ["fid"], "count": 100 if bench.small else 10_000}
    tree |= {"sampler": {"steps": 2 if bench.small else 40, "precision": bench.half}}
    task = Task(spec, (decode(SamplesSpec, tree | {"reference": "imagenet256"}),))
    lab = Lab(folder / "lab")
    for report in run_task(lab, task, bench.device):
        if report.phase == "train" and report.step == train.steps:
            started = time.perf_counter()
    said = {"run": "S/2 by default", "ended": report.phase, "s": time.perf_counter() - started}
    bench.say("whole", **said, **_image_metrics(lab.run(task.run)))


def _write_autoencoder(folder: Path) -> None:
    """Put one of SD's size where the small one is."""
    from diffusers import AutoencoderKL

    AutoencoderKL(**SD, scaling_factor=SD_SCALE, sample_size=256).save_pretrained(folder)


def _inception_is_here() -> bool:
    with contextlib.suppress(UserError):
        return inception_weights().exists()
    return False


def _image_metrics(run: RunFolder) -> dict[str, float]:
    """Return what the record of a run holds of its images; a task without it has not worked."""
    records = [place.read() or {} for place in run.evaluations()]
    metrics = {k: v for record in records for k, v in record.get("metrics", {}).items()}
    images = {k: v for k, v in metrics.items() if "@" in k}
    assert images, f"the record holds no metric of images: {sorted(metrics)}"
    return images


def repeats(bench: Bench) -> None:
    """Is a run repeatable, and does it resume, to the last bit?"""
    model = TINY if bench.small else {"depth": 4, "width": 256, "heads": 4, "patch": 2}
    ways = [("fp32", "none", True), ("fp32", "none", False)]
    if bench.cuda:
        ways += [("fp32", "blocks", True), ("bf16", "none", False), ("bf16", "blocks", False)]
    for precision, compiler, deterministic in ways:
        for name, routes in (("dense", ()), ("routed", INNER)):
            said = {"run": name, "precision": precision, "compile": compiler}
            said["deterministic"] = str(deterministic)
            with bench.guarded("repeats", **said):
                execution = {"compile": compiler, "deterministic": deterministic}
                spec = bench.spec(model, routes, 32, precision=precision, execution=execution)
                first, second, resumed = (_weights(bench, spec, cut) for cut in (8, 8, 4))
                bench.say(
                    "repeats",
                    **said,
                    repeated=_same(first, second),
                    resumed=_same(first, resumed),
                )


def _weights(bench: Bench, spec: RunSpec, cut: int) -> list[torch.Tensor]:
    """Return the weights after eight steps, interrupted after `cut` of them."""
    with tempfile.TemporaryDirectory() as folder:
        run = bench.live(spec, Path(folder))
        for step in range(cut):
            run.train_step(run.batches.at(step), lr=1e-3)
        if cut < 8:
            run.save()
            run = Trainer(spec, run.folder, bench.device)
            run.resume()
        for step in range(cut, 8):
            run.train_step(run.batches.at(step), lr=1e-3)
        return [parameter.detach().clone() for parameter in run.network.parameters()]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b))
