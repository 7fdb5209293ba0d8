"""What an evaluation costs: the network calls of a solver or probe, decoding and features."""

# c channels, s side in pixels of a feature map

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tread_lab.data.scaled import MOST_HELDOUT
from tread_lab.data.source import open_data
from tread_lab.diffusion import build_process
from tread_lab.engine.cost.training import FLOPS_PER_MAC, block_macs, cost
from tread_lab.metrics.reference_file import described_images
from tread_lab.sampling.generate import place, progress
from tread_lab.sampling.guidance import Term, acting
from tread_lab.sampling.solvers import SOLVERS
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplerSpec, SamplesSpec
from tread_lab.specs.guidance import routes_taken
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.specs.recipe import ProcessSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec


def sample_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    """Return forward FLOPs per image: at each call all branches that act, at their rates."""
    return FLOPS_PER_MAC * sum(call_macs(spec, sampler))


def call_macs(spec: RunSpec, sampler: SamplerSpec) -> list[int]:
    """Return the MACs per image of every call of the prediction by the solver, in order."""
    routes = routes_taken(spec, sampler.guidance)
    macs_at = functools.cache(lambda path, rate: PATH_MACS[path](spec, routes, rate))
    called = terms_called(spec.process, sampler)
    return [sum(macs_at(term.branch.path, term.rate) for term in terms) for _, terms in called]


@functools.lru_cache(maxsize=256)
def terms_called(process: ProcessSpec, sampler: SamplerSpec) -> list[tuple[float, list[Term]]]:
    """Return the level of every call of the prediction by the solver, and the terms that act."""
    levels, guidance = build_process(process).grid(sampler), sampler.guidance
    return [
        (level, acting(guidance, level, progress(place(levels, level), sampler.steps)))
        for level in called_at(sampler.solver, levels)
    ]


def _routed_macs(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """MACs of a pass whose routes have another rate; a rate too low to route a token is dense."""
    rated = (dataclasses.replace(route, rate=rate) for route in routes)
    active = tuple(route for route in rated if route.routed(spec.tokens))
    run_cost = cost(dataclasses.replace(spec, routes=active or spec.routes, init_from=None))
    return run_cost.routed.network if active else run_cost.dense.network


def _macs_without_path(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """Return the MACs of a pass in which no token runs the blocks of a route."""
    skipped = [l for route in routes for l in route.blocks]
    text = spec.text_tokens > 0  # a caption runs the blocks all the same
    rest = [block_macs(spec, l, spec.tokens) - text * block_macs(spec, l, 0) for l in skipped]
    return cost(spec).dense.network - sum(rest)


PATH_MACS: dict[str, Callable[[RunSpec, tuple[RouteSpec, ...], float], int]] = {
    "full": _routed_macs,
    "dropped": _macs_without_path,
}


def called_at(solver: str, levels: Tensor) -> list[float]:
    """Return the levels at which a solver calls the network: it follows a field of zeros."""
    field = _Watched()
    lookup(SOLVERS, solver, "solver")(field, torch.zeros(1, 1, 1, 1), levels)
    return field.called


class _Watched:
    """A field of zeros that remembers at which levels it was asked."""

    def __init__(self) -> None:
        self.called: list[float] = []

    def __call__(self, z_BCHW: Tensor, level: Tensor) -> Tensor:
        self.called.append(float(level))
        return torch.zeros_like(z_BCHW)

    def reverse(self, z_BCHW: Tensor, now: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
        return self(z_BCHW, now), torch.zeros_like(z_BCHW)

    def noise(self, step: int) -> Tensor:
        return torch.zeros(())


def pass_flops(spec: RunSpec, evaluation: EvaluationSpec) -> int:
    """Return the FLOPs of all network calls of an evaluation."""
    if isinstance(evaluation, SamplesSpec):
        return evaluation.count * sample_flops(spec, evaluation.sampler)
    run_cost, both = cost(spec), isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    macs_each = run_cost.dense.network + (run_cost.routed.network if both else 0)
    return evaluation.images * evaluation.levels * FLOPS_PER_MAC * macs_each


INCEPTION_FLOPS = 11.4e9  # an image at 299x299 through Inception-v3, two for each MAC
DINOV2_FLOPS = 162e9  # one at 224x224 through ViT-L/14: 24 blocks of 257 tokens of width 1,024
SD_WIDTHS = (128, 256, 512, 512)  # the Stable Diffusion autoencoder, from pixels to latents


def image_work(spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
    """Return the FLOPs on the generated images of one evaluation by kind of work; none where none
    is looked at.

    The data set's own small extractor costs next to nothing and is left out.
    """
    if not isinstance(evaluation, SamplesSpec):
        return {}
    return _image_flops(spec, evaluation.count, evaluation.metrics, decoded=True)


def describing_share(spec: RunSpec, evaluation: SamplesSpec) -> float:
    """Return the part that features have in the FLOPs of an evaluation of samples."""
    work = image_work(spec, evaluation)
    return work.get("features", 0.0) / (pass_flops(spec, evaluation) + sum(work.values()))


def reference_work(spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
    """Return the FLOPs on the images that one evaluation compares with, once for a lab.

    Those of a file need no decoding.
    """
    if not isinstance(evaluation, SamplesSpec):
        return {}
    compared = [metric for metric in evaluation.metrics if METRICS[metric].compares]
    decoded = evaluation.reference is None and _feature_flops(compared, spec.data.source) > 0
    return _image_flops(spec, reference_images(spec.data, evaluation), compared, decoded=decoded)


def _image_flops(
    spec: RunSpec, count: int, metrics: Sequence[str], *, decoded: bool
) -> dict[str, float]:
    each = {
        "decoding": _decoding(spec.data) if decoded else 0.0,
        "features": _feature_flops(metrics, spec.data.source),
    }
    return {kind: count * flops for kind, flops in each.items() if count * flops}


def reference_images(data: DataSpec, evaluation: SamplesSpec) -> int:
    """Return how many real images are described: all held-out ones, those of a file, or none.

    A file's are described for metrics that its moments are not enough for. Ten thousand are
    assumed where data or file cannot be read, the most that a data set without held-out arrays of
    its own holds out.
    """
    with contextlib.suppress(UserError):
        if evaluation.reference is not None:
            return described_images(evaluation.reference, evaluation.metrics)
        return len(open_data(data, "heldout")) if described(evaluation) else 0
    return MOST_HELDOUT if described(evaluation) else 0


def _decoding(data: DataSpec) -> float:
    """Return the FLOPs of turning a sample into an image; none where pixels are the data."""
    return FLOPS_PER_MAC * decoder_macs(data.size) if data.holds.latents else 0.0


def _feature_flops(metrics: Sequence[str], source: str) -> float:
    """Return the FLOPs of an image through every large network that the metrics look through."""
    any_of = 0.0 if source in OWN_FEATURES else INCEPTION_FLOPS
    flops = {"inception": INCEPTION_FLOPS, "dinov2": DINOV2_FLOPS, "own": 0.0, "any": any_of}
    return sum({flops[METRICS[metric].features] for metric in metrics})


def described(evaluation: SamplesSpec) -> list[str]:
    """Return the metrics that need features of references; for some a file's moments are enough."""
    by_file = evaluation.reference is not None
    return [
        metric
        for metric in evaluation.metrics
        if METRICS[metric].compares and not (by_file and METRICS[metric].moments_given)
    ]


def decoder_macs(side: int) -> int:
    """Return the MACs of the autoencoder's decoder for latents of `side` x `side`.

    Convolutions are 3x3; every stage but the last ends with an upsampling and a convolution, the
    middle has one attention between two residual blocks. 3.11e11 for 4x32x32: .62 TFLOP an image.
    """
    s, c = side, SD_WIDTHS[-1]
    macs = _convolution(4, c, s) + 2 * _residual(c, c, s)
    macs += 4 * c * c * s**2 + 2 * c * s**4
    for stage, width in enumerate(reversed(SD_WIDTHS)):
        macs += _residual(c, width, s) + 2 * _residual(width, width, s)
        c = width
        if stage < len(SD_WIDTHS) - 1:
            s *= 2
            macs += _convolution(c, c, s)
    return macs + _convolution(c, 3, s)


def _convolution(c_in: int, c_out: int, s: int) -> int:
    return 9 * c_in * c_out * s**2


def _residual(c_in: int, c_out: int, s: int) -> int:
    shortcut = c_in * c_out * s**2 if c_in != c_out else 0
    return _convolution(c_in, c_out, s) + _convolution(c_out, c_out, s) + shortcut
