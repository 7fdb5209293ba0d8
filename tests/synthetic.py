"""A sweep written through the records API whose gaps, curves and matrices are known exactly."""

# M images, L noise levels, B blocks

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tread_lab.config import (
    EvaluationSpec,
    GuidanceSpec,
    HeldoutSpec,
    ModelSpec,
    RouteSpec,
    RunSpec,
    SamplerSpec,
    SamplesSpec,
    SimilaritySpec,
    TrainSpec,
    decode,
    encode,
    signature,
)
from tread_lab.config.evaluation import decode_evaluations
from tread_lab.records import metric_names
from tread_lab.records.durable import LogWriter, write_json
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState

Array = NDArray[np.float64]
Route = tuple[int, int]

PAPER_PLACEMENTS: tuple[Route, ...] = (
    *((0, end) for end in range(2, 11)),
    *((start, 8) for start in range(7, 0, -1)),
)
FD = "fd[fashion16-v1]@1k"


def heldout_gap(route: Route) -> float:
    """The true `gap/heldout` of a route: least at 2->8, as a placement sweep might find."""
    start, end = route
    return 0.002 + 0.0012 * abs(start - 2) + 0.0015 * abs(end - 8) - 0.0035 * (route == (2, 8))


def train_gap(route: Route) -> float:
    """The true `gap/train` of a route: longer routes are a harder task."""
    return 0.004 * (route[1] - route[0] + 1)


def fd_gap(route: Route) -> float:
    """The true difference in Frechet distance to the baseline of the same seed."""
    return 200 * heldout_gap(route)


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """What a synthetic sweep holds.

    Attributes:
        routes, rates, seeds: one trial for each combination, one baseline for each seed.
        states: trials that did not complete; the key is a route or (route, seed).
        seed_shift: added to the true held-out gap, seed by seed; its mean should be zero.
        guided: also an evaluation of samples under guidance, and what an image costs.
        pictures: also the samples themselves, which the route makes darker.
        budgets: training steps that are an axis of their own; `steps` alone where empty.
        stages: steps before the end at which every run was measured, too.
        specs: also the spec of every run, which YAML is slow to write.
    """

    name: str = "placement"
    routes: Sequence[Route] = PAPER_PLACEMENTS
    rates: Sequence[float] = (0.5,)
    seeds: Sequence[int] = (0,)
    states: Mapping[Any, str] = field(default_factory=dict)
    seed_shift: Mapping[int, float] = field(default_factory=dict)
    heldout: Callable[[Route], float] = heldout_gap
    images: int = 32
    levels: int = 4
    steps: int = 400
    log_every: int = 20
    history: bool = True
    similarity: bool = True
    guided: bool = False
    pictures: bool = False
    budgets: Sequence[int] = ()
    stages: Sequence[int] = ()
    specs: bool = False

    @property
    def evaluations(self) -> tuple[EvaluationSpec, ...]:
        heldout = HeldoutSpec(images=self.images, levels=self.levels)
        found: list[EvaluationSpec] = [heldout]
        found += map(self.samples, (2.0, 1.0) if self.guided else (1.0,))
        found += [SimilaritySpec(images=8, levels=2)] if self.similarity else []
        return decode_evaluations(found)

    @staticmethod
    def samples(weight: float) -> SamplesSpec:
        sampler = SamplerSpec(guidance=GuidanceSpec(weight=weight))
        return SamplesSpec(metrics=("fd",), count=1000, sampler=sampler)


def tiny_spec(
    route: Route | None, *, rate: float = 0.5, seed: int = 0, steps: int = 400
) -> RunSpec:
    """A 12-block network of width 32 on the embedded images."""
    routes = () if route is None else (RouteSpec(start=route[0], end=route[1], rate=rate),)
    return RunSpec(
        model=ModelSpec(depth=12, width=32, heads=2),
        routes=routes,
        train=TrainSpec(steps=steps, batch=16),
        precision="fp32",
        seed=seed,
    )


def write_sweep(root: Path, sweep: Synthetic) -> Lab:
    """Write plan, runs, evaluations and logs of `sweep` under `root`; gives the lab back."""
    lab = Lab(root)
    trials, later = [], []
    for steps in sweep.budgets or (sweep.steps,):
        part = dataclasses.replace(sweep, steps=steps)
        dense = {seed: _trial(part, None, 0.0, seed) for seed in sweep.seeds}
        trials += dense.values()
        for route in sweep.routes:
            for rate in sweep.rates:
                for seed in sweep.seeds:
                    trial = _trial(part, route, rate, seed)
                    later.append({**trial, "baseline": dense[seed]["run"]})
    trials += later
    plan = {
        "format": 2,
        "name": sweep.name,
        "question": "Where should a route start and end?",
        "sources": {},
        "experiment": "tiny",
        "evaluate": [encode(spec) for spec in sweep.evaluations],
        "trials": trials,
    }
    write_json(lab.sweep(sweep.name).plan_path, plan)
    for trial in trials:
        cell = trial["cell"]
        route = (cell["start"], cell["end"]) if cell else None
        part = dataclasses.replace(sweep, steps=trial["spec"]["train"]["steps"])
        _write_run(lab.run(trial["run"]), part, route, trial)
    return lab


def _trial(sweep: Synthetic, route: Route | None, rate: float, seed: int) -> dict[str, Any]:
    spec = tiny_spec(route, rate=rate, seed=seed, steps=sweep.steps)
    cell = {} if route is None else {"start": route[0], "end": route[1], "rate": rate}
    if cell and sweep.budgets:
        cell["train.steps"] = sweep.steps
    return {
        "run": signature(spec),
        "role": "baseline" if route is None else "trial",
        "cell": cell,
        "seed": seed,
        "baseline": None,
        "spec": encode(spec),
    }


def _write_run(
    run: RunFolder, sweep: Synthetic, route: Route | None, trial: dict[str, Any]
) -> None:
    seed = trial["seed"]
    state = sweep.states.get((route, seed), sweep.states.get(route, "completed"))
    if state == "pending":
        return
    steps = sweep.steps if state == "completed" else sweep.steps // 2
    if sweep.similarity or sweep.specs:  # others do not ask for it
        run.create(decode(RunSpec, trial["spec"]))
    if sweep.history:
        _write_log(run, sweep, route, seed, steps)
    if state == "interrupted":
        run.log_path.parent.mkdir(parents=True, exist_ok=True)
        run.log_path.touch()
        return
    if state != "completed":
        run.finish(state, step=steps, reason=f"{state} on purpose")
        return
    for stage in (*sweep.stages, None):
        part = dataclasses.replace(sweep, steps=stage or sweep.steps)
        for spec in sweep.evaluations:
            _write_evaluation(run, dataclasses.replace(spec, step=stage), part, route, seed)
    length = 0 if route is None else route[1] - route[0] + 1
    costs = {
        metric_names.TRAIN_FLOPS: 1e12 * (12 - 0.5 * length) * sweep.steps / 400,
        metric_names.TRAIN_SECONDS: (60.0 - 2 * length) * sweep.steps / 400,
        metric_names.STEP_SECONDS: (0.15 - 0.005 * length),
        metric_names.IMAGES_PER_S: 400.0 + 20 * length,
    }
    run.finish(RunState.COMPLETED, step=steps, metrics=costs)


def _write_log(
    run: RunFolder, sweep: Synthetic, route: Route | None, seed: int, steps: int
) -> None:
    """A falling curve that all runs of a seed share, plus the true gap growing with the steps."""
    noise = np.random.default_rng([1, seed]).normal(scale=0.02, size=sweep.steps)
    with LogWriter(run.log_path) as log:
        for step in range(sweep.log_every, steps + 1, sweep.log_every):
            gap = 0.0 if route is None else train_gap(route) * step / sweep.steps
            loss = 0.2 + 0.5 * np.exp(-step / 80) + noise[step - 1] + gap
            log(step, **{metric_names.TRAIN_LOSS: loss, metric_names.TRAIN_IMAGES_PER_S: 400.0})


def _write_evaluation(
    run: RunFolder, spec: EvaluationSpec, sweep: Synthetic, route: Route | None, seed: int
) -> None:
    folder = run.evaluation(spec)
    folder.path.mkdir(parents=True, exist_ok=True)
    metrics: dict[str, float]
    costs: dict[str, float] = {}
    if isinstance(spec, HeldoutSpec):
        losses = held_out_losses(sweep, route, seed)
        np.savez(folder.path / "losses.npz", **losses)  # type: ignore[arg-type]
        metrics = {metric_names.HELDOUT_LOSS: float(losses["dense"].mean())}
        if route is not None:
            metrics[metric_names.HELDOUT_ROUTED] = float(losses["routed"].mean())
    elif isinstance(spec, SimilaritySpec):
        mean = similarity_matrix(route)
        np.savez(
            folder.path / "similarity.npz",
            mean=mean,
            per_level=np.stack([mean] * 2),
            level=[0.1, 1],
        )
        metrics = {metric_names.SIMILARITY: float(np.diag(mean, 1).mean())}
    else:
        weight = spec.sampler.guidance.weight
        base = (4.4 if weight == 1 and sweep.guided else 1.8) + 0.2 * seed + late_gap(sweep.steps)
        metrics = {FD: base + (0.0 if route is None else fd_gap(route))}
        if sweep.pictures:
            images = sample_images(route)
            labels = np.arange(len(images)) % 10
            np.savez(folder.path / "samples.npz", arr_0=images, arr_1=labels)
            Image.fromarray(np.hstack(list(images[..., 0]))).save(folder.path / "grid.png")
        if sweep.guided:
            costs = {metric_names.SAMPLE_FLOPS: 1e9 * weight * (1.0 if route is None else 0.7)}
    folder.write(spec, metrics, **costs)


def with_provenance(run: RunFolder, spec: EvaluationSpec, made_with: Mapping[str, str]) -> None:
    """Say in the record of an evaluation what it was made with."""
    tree = run.evaluation(spec).read() or {}
    run.evaluation(spec).write(spec, tree["metrics"], made_with=made_with)


def held_out_losses(sweep: Synthetic, route: Route | None, seed: int) -> dict[str, Array]:
    """Losses [M, L] whose mean paired gaps are the true ones exactly, however noisy each image."""
    shared = np.random.default_rng([2, seed])
    shape = (sweep.images, sweep.levels)
    dense = 0.2 + 0.1 * shared.gamma(2.0, size=(sweep.images, 1)) + 0.02 * shared.normal(size=shape)
    level = np.exp(shared.normal(-1.2, 1.2, size=shape))
    if route is None:
        return {"dense": dense, "level": level}
    own = np.random.default_rng([3, seed, *route])
    gap = sweep.heldout(route) + sweep.seed_shift.get(seed, 0.0)
    routed = dense + train_gap(route) + _centred(own, shape, 0.004)
    return {"dense": dense + gap + _centred(own, shape, 0.004), "routed": routed, "level": level}


def late_gap(steps: int) -> float:
    """What the Frechet distance falls with training: 0 at 400 steps, halved by doubling them."""
    return 8.0 * (400 / steps - 1)


def sample_images(route: Route | None) -> NDArray[np.uint8]:
    """16 images of 6x6 whose first pixel is the image's number, darker for longer routes."""
    length = 0 if route is None else route[1] - route[0] + 1
    images = np.full((16, 6, 6, 1), 250 - 10 * length, dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(16)
    return images


def _centred(generator: np.random.Generator, shape: tuple[int, int], scale: float) -> Array:
    noise = generator.normal(scale=scale, size=shape)
    return noise - noise.mean()


def similarity_matrix(route: Route | None) -> Array:
    """exp(-|a-b| / 8); a route's window [i-1..j] is drawn together to 0.97 off the diagonal."""
    block = np.arange(12)
    matrix = np.exp(-np.abs(block[:, None] - block[None, :]) / 8)
    if route is not None:
        window = slice(max(route[0] - 1, 0), route[1] + 1)
        matrix[window, window] = 0.97
    np.fill_diagonal(matrix, 1.0)
    return np.asarray(matrix)


def small(**changes: Any) -> Synthetic:
    """Three placements, one seed, nothing but losses and samples: quick to write."""
    base = Synthetic(routes=((0, 4), (2, 8), (5, 8)), history=False, similarity=False)
    return dataclasses.replace(base, **changes)
