"""Metric and parameter names, fixed in one place for logs, MLflow, tables and figures."""

from __future__ import annotations

from tread_lab.spec.bypass import RouteBypass
from tread_lab.spec.evaluation import count_label
from tread_lab.spec.loss import PlainLoss
from tread_lab.spec.run import RunSpec
from tread_lab.spec.signature import signature

TRAIN_LOSS = "train/loss"  # mean over the steps since the entry before
LEARNING_RATE = "train/lr"
GRADIENT_NORM = "train/gradient_norm"
OVERFLOWS = "train/overflows"  # steps that fp16 skipped so far
HELDOUT_LOSS = "heldout/loss"  # dense forward, EMA weights
HELDOUT_ROUTED = "heldout/loss_routed"  # forward under the training routes
GAP_TRAIN = "gap/train"  # routed forward of the model - dense baseline
GAP_HELDOUT = "gap/heldout"  # dense forward of the model - dense baseline
GAP_ROUTE = "gap/route"  # routed forward - dense forward of the same model
SIMILARITY = "similarity/adjacent"  # mean cosine between neighbouring blocks
IMAGES_PER_S = "throughput/images_per_s"
STEP_SECONDS = "throughput/step_seconds"
TRAIN_FLOPS = "cost/train_flops"  # executed: 3 x forward, routes counted
FAMILY_FLOPS = "cost/family_flops"  # the same, with those of the runs it descends from
SAMPLE_FLOPS = "cost/sample_flops"  # one image: all calls of the solver, guidance and routes
TRAIN_SECONDS = "cost/train_seconds"
MFU = "cost/mfu"
PEAK_MEMORY = "cost/peak_memory_bytes"

HIGHER_IS_BETTER = ("is@", "precision", "recall", IMAGES_PER_S, MFU)


def sample_metric(metric: str, extractor: str, count: int) -> str:
    """`fid@10k` for Inception-2015 features, any other feature space by name: `fd[x]@1k`.

    `extractor` is `inception` for the 2015 Inception weights.
    """
    plain = metric in ("fid", "is") or extractor == "inception"
    return (
        f"{metric}@{count_label(count)}" if plain else f"{metric}[{extractor}]@{count_label(count)}"
    )


def lower_is_better(name: str) -> bool:
    """Which way a metric sorts."""
    return not name.startswith(HIGHER_IS_BETTER)


def parameters(spec: RunSpec) -> dict[str, str | int | float]:
    """The flat parameters people filter and sort by; a dense run has empty route columns, and what
    is as in the paper (bypass, loss, no parent) is empty."""
    routes = spec.routes
    return {
        "model": spec.model.name,
        "route": " + ".join(map(str, routes)) or "dense",
        "route_start": int(routes[0].start) if routes else "",
        "route_end": int(routes[0].end) if routes else "",
        "route_length": sum(len(route.blocks) for route in routes),
        "selection_rate": routes[0].rate if routes else 0.0,
        "bypass": "" if spec.bypass == RouteBypass() else str(spec.bypass),
        "loss": _loss(spec),
        "starts_from": signature(spec.init_from.run) if spec.init_from else "",
        "process": spec.process.kind,
        "precision": spec.precision,
        "fp32_block": spec.fp32_block,
        "seed": spec.seed,
    }


def _loss(spec: RunSpec) -> str:
    """What is minimised, where it is more than the plain loss."""
    parts = [] if spec.loss == PlainLoss() else [str(spec.loss)]
    return " + ".join([*parts, *([str(spec.repa)] if spec.repa else [])])
