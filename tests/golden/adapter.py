"""The one door from recorded numbers to the package: settings as users write them, then arrays."""

# S seeds, K cells, M images, L noise levels, N tokens

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.evaluate.conftest import images, random_inception, score
from tests.made_data import write_captioned
from tests.stand_ins import write_text_encoder
from tests.synthetic import small, write_sweep
from tests.train.runs import CPU, evaluate, imagenet, last_checkpoint, train_until
from tread_lab.config import RunSpec, SamplerSpec, decode, encode
from tread_lab.config.data import DataSpec
from tread_lab.config.evaluation import HeldoutSpec, SamplesSpec, SimilaritySpec, decode_evaluations
from tread_lab.config.guidance import BranchSpec, GuidanceSpec, routes_taken
from tread_lab.config.load import load_experiment
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.config.model import ModelSpec
from tread_lab.config.recipe import (
    LOSSES,
    DDPMSpec,
    EDMSpec,
    EmaSpec,
    ExecutionSpec,
    FlowSpec,
    TrainSpec,
)
from tread_lab.config.registry import Variants
from tread_lab.config.routes import BYPASSES, ReEntrySpec, RouteSpec
from tread_lab.config.run import InitSpec
from tread_lab.config.sweep import SearchSpec, StopEarlySpec, SweepSpec
from tread_lab.cost.training import cost
from tread_lab.diffusion.generate import generate
from tread_lab.evaluate.drawing import _denoiser
from tread_lab.evaluate.extraction import Extraction
from tread_lab.evaluate.features import KEEPERS, MEASURES, Compared
from tread_lab.evaluate.sampling_calls import sample_flops
from tread_lab.records.lab import Lab
from tread_lab.results import (
    better_than_dense,
    ranked_cells,
    ranking_key,
    tied_with_best,
    trials_frame,
)
from tread_lab.results.gaps import Losses, loss_gaps
from tread_lab.results.intervals import (
    largest,
    pairing_kept,
    t_interval,
    to_one,
    widening,
    worse_over_seeds,
)
from tread_lab.train.assemble import trained
from tread_lab.train.joining import condition_of

__all__ = ["random_inception"]  # a fixture

IMAGES = 5


class Networks:
    """Runs by the names of their cases, trained when they are first asked for, in one folder."""

    def __init__(self, folder: Path, cases: Mapping[str, dict[str, Any]]) -> None:
        self.folder, self.cases, self.lab = folder, cases, Lab.at(folder / "lab")
        self.trained: dict[str, dict[str, Any]] = {}

    def train(self, name: str) -> dict[str, Any]:
        """Return the losses and gradient norms of every step, the gradients of the first and of the
        last step as the optimizer sees them, what the last checkpoint holds, and the EMA less the
        weights, which the start does not dominate.
        """
        if name not in self.trained:
            spec = self.spec(name)
            folder = self.lab.run_of(spec)
            folder.create(spec)
            with _gradients() as steps:
                train_until(spec, folder.path)
            entries, kept = folder.entries(), last_checkpoint(folder)
            found: dict[str, Any] = {
                key: np.array([entry.value for entry in entries if entry.key == f"train/{key}"])
                for key in ("loss", "gradient_norm", "lr")
            }
            found["first_gradient"], found["last_gradient"] = steps[0], steps[-1]
            parts = {key.partition("/")[0] for key in kept.tensors} - {"optimizer", "scaler"}
            for part in sorted(parts - {"window"}):
                found[part] = _arrays(kept.part(part))
            ema, model = found["ema"], found["model"]
            found["ema_apart"] = {name: x - model[name] for name, x in ema.items()}
            self.trained[name] = found
        return self.trained[name]

    def sample(self, run: str, sampler: Mapping[str, Any]) -> dict[str, Any]:
        """Return images of a run in the network's space, and their labels."""
        spec, how = self.spec(run), decode(SamplerSpec, sampler)
        self.train(run)
        folder, data = self.lab.run_of(spec), spec.data
        steps = {branch.step for branch in how.guidance.branches}
        networks = {step: trained(folder, CPU, step=step) for step in steps}
        condition, more = condition_of(spec, folder, CPU), {"classes": data.classes}
        if condition is not None:
            more = {"classes": len(condition), "condition": condition.of}
        ((images, labels),) = generate(
            {step: _denoiser(network, how.precision) for step, network in networks.items()},
            next(iter(networks.values())).process,
            how,
            count=IMAGES,
            shape=(data.channels, data.size, data.size),
            device=CPU,
            routes=routes_taken(spec, how.guidance),
            tokens=spec.tokens,
            **more,
        )
        return {"images": images.numpy(), "labels": labels.tolist()}

    def evaluate(self, run: str, evaluation: Any, baseline: str | None = None) -> dict[str, Any]:
        """Return the metrics of an evaluation and its arrays, or the gaps of two runs under it."""
        places = []
        for name in (run, baseline) if baseline else (run,):
            self.train(name)
            folder = self.lab.run_of(self.spec(name))
            (spec,) = decode_evaluations([evaluation])
            metrics = evaluate(folder, spec, CPU)
            places.append(folder.evaluation(spec).path)
        if baseline:
            own, dense = (Losses.read(path / "losses.npz") for path in places)
            scale = float(dense.dense.mean())  # beside a gap, whose rounding is that of the losses
            gaps = loss_gaps(own, dense).items()
            return {name: [gap.mean, gap.low, gap.high, scale] for name, gap in gaps}
        files = sorted(path for path in places[0].glob("*.npz") if path.stem != "samples")
        arrays = {key: value for file in files for key, value in np.load(file).items()}
        return {"names": [*metrics], "metrics": [*metrics.values()], **arrays}

    def spec(self, name: str) -> RunSpec:
        tree = dict(self.cases[name])
        if "init_from" in tree:
            parent = tree["init_from"]["run"]
            self.train(parent)
            tree["init_from"] = {**tree["init_from"], "run": encode(self.spec(parent))}
        return decode(RunSpec, self._with_folders(tree))

    def _with_folders(self, tree: Any) -> Any:
        """Return settings with the folders of made files in place of their names."""
        if isinstance(tree, Mapping):
            return {key: self._with_folders(value) for key, value in tree.items()}
        write = {"CAPTIONED": lambda to: write_captioned(to, 40), "CLIP": write_text_encoder}
        if not (isinstance(tree, str) and tree in write):
            return tree
        folder = self.folder / tree
        if not folder.exists():
            folder.mkdir()
            write[tree](folder)
        return str(folder)


@contextmanager
def _gradients() -> Iterator[list[dict[str, Any]]]:
    """Note the gradients of every optimizer step within, whatever trains."""
    steps: list[dict[str, Any]] = []

    def note(optimizer: Any, *_: Any) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        grads = {str(k): p.grad for k, p in enumerate(parameters) if p.grad is not None}
        steps[1:] = [] if not steps else [_arrays(grads)]
        if not steps:
            steps.append(_arrays(grads))

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield steps
    finally:
        handle.remove()


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: x.detach().float().numpy().copy() for name, x in tensors.items()}


def measure(kind: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics of a case, or features of images."""
    return {"embedded": _embedded, "features": _features, "describe": _describe}[kind](**case)


def _embedded(count: int, of: Any, against: int, metrics: list[str]) -> dict[str, Any]:
    found = score(
        images(of, count), images("heldout", against), metrics=metrics, extractor="fashion16-v1"
    )
    return dict(zip(metrics, found.values()))


def _features(
    seed: int, count: int, against: int, shift: float, width: int, metrics: list[str]
) -> dict[str, Any]:
    """Metrics of features that are drawn, alike in every layer; the reference is not shifted."""
    rng = np.random.default_rng(seed)
    real = torch.from_numpy(rng.normal(size=(against, width)))
    generated = torch.from_numpy(rng.normal(size=(count, width)) + shift)
    kept = {layer: make() for layer, make in KEEPERS.items()}
    for part in generated.split(25):
        for keeper in kept.values():
            keeper.add(part)
    samples, references = dict.fromkeys(KEEPERS, generated), dict.fromkeys(KEEPERS, real)
    compared = Compared(samples, kept, references, {}, CPU)
    return {metric: float(MEASURES[metric](compared)) for metric in metrics}


def _describe(extractor: str, count: int, channels: int, side: int) -> dict[str, Any]:
    """Features by layer of drawn images."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, channels, side, side), np.uint8)
    described = Extraction(extractor, device=CPU)(torch.from_numpy(pixels))
    return {layer: features.numpy() for layer, features in described.items()}


def count_cost(
    *,
    experiment: str | None = None,
    run: Mapping[str, Any] | None = None,
    sampler: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a run costs, and an image where a sampler is given."""
    tree = dict(load_experiment(experiment).run) if experiment else run
    spec = decode(RunSpec, tree)
    if sampler is not None:
        return {"flops_an_image": sample_flops(spec, decode(SamplerSpec, sampler))}
    found = cost(spec)
    names = ("parameters", "unsampled", "auxiliary", "teacher", "positions", "plain_macs")
    names += ("speedup", "images", "train_flops")
    names += ("weights_bytes", "checkpoint_bytes", "memory_bytes")
    return {
        **{name: getattr(found, name) for name in names},
        "tokens": list(found.tokens),
        "macs_dense": [*dataclasses.asdict(found.dense).values()],
        "macs_routed": [*dataclasses.asdict(found.routed).values()],
        "flops_a_step": found.step.flops,
        "phases": [list(phase) for phase in found.phases],
    }


def published_network(model: str) -> dict[str, float]:
    """Return the counts that papers give of a network on 256 tokens, which has no routes."""
    plain, learned = imagenet_cost(model), imagenet_cost(model, learn_sigma=True)
    return {
        "with_variance": learned.parameters + learned.positions,
        "trained": plain.parameters,
        "with_positions": plain.parameters + plain.positions,
        "gmacs": learned.plain_macs / 1e9,
    }


def speedup(model: str, route: str, rate: float, tokens: int = 256) -> float:
    """Return forward FLOPs, dense over routed."""
    return imagenet_cost(model, route, rate=rate, tokens=tokens).speedup


def train_tflops(model: str, route: str | None = None) -> float:
    """Return TFLOPs of one image in a training step on 256 tokens."""
    return imagenet_cost(model, route).step.flops / 1e12


def imagenet_cost(
    model: str,
    route: str | None = None,
    *,
    rate: float = 0.5,
    tokens: int = 256,
    learn_sigma: bool = False,
) -> Any:
    size, side = model.removeprefix("DiT-").removesuffix("/2"), 2 * math.isqrt(tokens)
    routes = (route,) if route else ()
    return cost(imagenet(size, *routes, rate=rate, side=side), learn_sigma=learn_sigma)


def compare(kind: str, case: Any) -> dict[str, Any]:
    """Return a statistic of given numbers."""
    return COMPARISONS[kind](case)


def _gaps(case: Mapping[str, Any]) -> dict[str, Any]:
    arrays = {name: np.array(values) for name, values in case.items()}
    own = Losses(arrays["dense"], arrays.get("routed"), arrays["level"])
    found = loss_gaps(own, Losses(arrays["baseline"], None, arrays["level"]))
    return {
        f"{name} {key}": value
        for name, gap in found.items()
        for key, value in dataclasses.asdict(gap).items()
    }


def _interval(values: list[float]) -> dict[str, Any]:
    return {"mean, low, high": list(t_interval(np.array(values)))}


def _pairing(case: list[list[float]]) -> dict[str, Any]:
    return {"kept": pairing_kept(*map(np.array, case))}


def _best_set(values: list[list[Any]]) -> dict[str, Any]:
    """Which cells are worse than the first: chosen by these values, and known before."""
    values_SK = np.array(values, dtype=float)
    found = {
        name: worse_over_seeds(values_SK, chosen=name == "chosen", cells=values_SK.shape[1])
        for name in ("chosen", "known")
    }
    return {name: None if worse is None else worse.tolist() for name, worse in found.items()}


def _quantiles(case: list[list[int]]) -> dict[str, Any]:
    return {
        "all pairs": [largest(cells, freedom + 1) for cells, freedom in case],
        "to one": [float(to_one(cells, np.array(freedom))) for cells, freedom in case],
        "widening": [widening(cells, n) for cells, n in case],
    }


def _ranking(case: Mapping[str, Any]) -> dict[str, Any]:
    """The ranking of a made sweep: order, gaps with intervals, metrics, the best set."""
    states = {tuple(map(int, key.split("->"))): s for key, s in case.get("states", {}).items()}
    routes = [tuple(route) for route in case["routes"]]
    sweep = small(**{**case, "routes": routes, "states": states})
    with tempfile.TemporaryDirectory() as folder:
        lab = write_sweep(Path(folder), sweep)
        frame = trials_frame(lab, sweep.name)
        key = ranking_key(frame)
        cells = ranked_cells(frame, key)
        done = cells[(cells["role"] == "trial") & (cells["state"] == "completed")]
        tied = tied_with_best(lab, frame, [*done["cell"]])
        better = better_than_dense(frame, done)
    shown = [c for c in cells if c.startswith(("gap/", "heldout/", "fd")) and "unit" not in c]
    numbers = {name: cells[name].to_numpy(float, na_value=np.nan) for name in sorted(shown)}
    states_found = [str(state) for state in cells["state"]]
    more = {"key": key, "best set": tied, "better than dense": better, "states": states_found}
    return {"order": [*cells["cell"]], **more, **numbers}


COMPARISONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "gaps": _gaps,
    "interval": _interval,
    "pairing": _pairing,
    "best_set": _best_set,
    "quantiles": _quantiles,
    "ranking": _ranking,
}


def defaults() -> dict[str, dict[str, Any]]:
    """Return part of a file -> field -> its default: as written on the fields, and at the end as a
    run has them when all that is implied is settled.
    """
    found = {part: dict(_defaults_of(cls)) for part, cls in PARTS.items()}
    for variants in (BYPASSES, LOSSES, Variants("repa"), Variants("captions")):
        for cls in variants.classes:
            kind = f" {cls.kind}" if hasattr(cls, "kind") else ""
            found[f"{variants.field}{kind}"] = dict(_defaults_of(cls))
    runs = {"dense run": {}, "routed run": {"routes": ["2->8"]}}
    for name, tree in runs.items():
        found[name] = dict(_leaves(encode(decode(RunSpec, {"model": "DiT-S/2", **tree}))))
    for kind in ("heldout_loss", "layer_similarity", "samples"):
        (spec,) = decode_evaluations([kind])
        found[f"evaluate {kind}, settled"] = dict(_leaves(encode(spec)))
    return found


PARTS: dict[str, type] = {
    "run": RunSpec,
    "model": ModelSpec,
    "data": DataSpec,
    "process edm": EDMSpec,
    "process flow": FlowSpec,
    "process ddpm": DDPMSpec,
    "routes": RouteSpec,
    "re_entry": ReEntrySpec,
    "train": TrainSpec,
    "train.ema": EmaSpec,
    "execution": ExecutionSpec,
    "init_from": InitSpec,
    "evaluate heldout_loss": HeldoutSpec,
    "evaluate layer_similarity": SimilaritySpec,
    "evaluate samples": SamplesSpec,
    "sampler": SamplerSpec,
    "sampler.guidance": GuidanceSpec,
    "sampler.guidance.weak": BranchSpec,
    "reference": ReferenceSpec,
    "sweep": SweepSpec,
    "sweep.search": SearchSpec,
    "sweep.stop_early": StopEarlySpec,
}


def _defaults_of(cls: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(cls):
        value: Any = "required"
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if dataclasses.is_dataclass(value):
            value = getattr(value, "kind", "its defaults")
        elif isinstance(value, Mapping):
            value = str(value)
        yield field.name, [*value] if isinstance(value, tuple) else value


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    for key, value in items:
        if isinstance(value, Mapping | list) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
