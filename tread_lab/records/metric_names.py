"""The table of metrics: key, label, unit, direction and digits, and how every view shows a value.

Titles, legends, colours, fronts and rankings follow from `METRIC_KINDS`. Metrics of generated
images have their entries in `config/metrics.py`.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from tread_lab.config.labels import count_label
from tread_lab.config.metrics import METRICS, OWN_FEATURES, MetricKind
from tread_lab.config.recipe import PlainLoss
from tread_lab.config.routes import RouteBypass
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.config.units import quantity, with_interval

MINUS = "\N{MINUS SIGN}"
DELTA = "delta/"  # before a metric: its difference to the baseline's

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
TRAIN_IMAGES_PER_S = "train/images_per_s"
STEP_SECONDS = "throughput/step_seconds"
TRAIN_FLOPS = "cost/train_flops"  # executed: 3 x forward, routes counted
FAMILY_FLOPS = "cost/family_flops"  # the same, with those of the runs it descends from
SAMPLE_FLOPS = "cost/sample_flops"  # one image: all calls of the solver, guidance and routes
TRAIN_SECONDS = "cost/train_seconds"
TRAIN_IMAGES = "cost/train_images"  # seen by a step of a run, in curves over training
DEVICE_HOURS = "cost/device_hours"  # trained by a step of a run, likewise
MFU = "cost/mfu"
PEAK_MEMORY = "cost/peak_memory_bytes"


def _cost(
    label: str, unit: str, meaning: str = "", better: Literal["lower", "higher"] = "lower"
) -> MetricKind:
    return MetricKind("cost", better, label=label, unit=unit, meaning=meaning)


METRIC_KINDS: dict[str, MetricKind] = {
    TRAIN_LOSS: MetricKind(label="training loss", meaning="mean since the entry before"),
    LEARNING_RATE: MetricKind(),
    GRADIENT_NORM: MetricKind(),
    OVERFLOWS: MetricKind(),
    HELDOUT_LOSS: MetricKind(
        "quality",
        "lower",
        label="held-out loss",
        meaning="training loss without routes on images that no run was trained on; lower is"
        " better",
    ),
    HELDOUT_ROUTED: MetricKind(
        compared="value",
        label="held-out loss, routed",
        meaning="held-out loss with the run's routes on",
    ),
    GAP_HELDOUT: MetricKind(
        "quality",
        "lower",
        "gap",
        label="Δ held-out loss",
        meaning="held-out loss less that of dense with the same seed, images and noise; below 0 is"
        " better than dense",
    ),
    GAP_TRAIN: MetricKind(
        compared="gap",
        label="Δ held-out loss, routed",
        meaning="held-out loss under the run's routes less that of dense",
    ),
    GAP_ROUTE: MetricKind(
        compared="gap",
        label="routed less dense loss",
        meaning="held-out loss under the run's routes less that of the same run without them",
    ),
    SIMILARITY: MetricKind(
        label="similarity of neighbouring blocks",
        meaning="mean cosine between what neighbouring blocks give out",
    ),
    **{name: metric.kind for name, metric in METRICS.built_in.items()},
    TRAIN_IMAGES_PER_S: MetricKind(label="images per second"),
    IMAGES_PER_S: _cost("images per second", "images/s", "speed of training", better="higher"),
    STEP_SECONDS: _cost("seconds a step", "s", "median over training"),
    TRAIN_FLOPS: _cost(
        "training FLOPs", "FLOP", "what training executed: 3 x forward, routes counted"
    ),
    FAMILY_FLOPS: _cost(
        "training FLOPs with parents",
        "FLOP",
        "training FLOPs with those of the runs that a run starts from",
    ),
    SAMPLE_FLOPS: _cost(
        "FLOPs per image",
        "FLOP",
        "of a generated image: all calls of the solver, with guidance and routes",
    ),
    TRAIN_SECONDS: _cost(
        "training seconds", "s", "wall time of all training steps, without evaluations"
    ),
    TRAIN_IMAGES: _cost("training images", "images"),
    DEVICE_HOURS: _cost("device-hours", "h"),
    MFU: _cost("MFU", "", "share of the device's peak FLOPs that training used", better="higher"),
    PEAK_MEMORY: _cost(
        "peak memory",
        "byte",
        "of the run on a GPU; on a CPU of the whole process, no fact about a route",
    ),
}


def metric_kind(name: str) -> MetricKind:
    """Return the entry of a column such as `fd[x]@1k w=2` or `delta/fid@10k`, or of its MLflow
    name.

    Unknown metrics are neither quality nor cost.
    """
    stem = re.split(r"[\[@: ]", name.removeprefix(DELTA), maxsplit=1)[0].lower()
    if stem in METRIC_KINDS:
        return METRIC_KINDS[stem]
    return METRICS[stem].kind if stem in METRICS else MetricKind()


def sample_metric(metric: str, extractor: str, count: int, *, heldout: bool) -> str:
    """Return a metric's name: `fid@10k` with Inception-2015 features and a reference file.

    Other feature spaces are named, `fd[dinov2-large]@10k`, and so is a comparison with held-out
    images, `fid[heldout]@10k`. Features made for a data set always compare with its held-out
    images: `fd[fashion16-v1]@1k`.

    Args:
        extractor: `inception` for the 2015 Inception weights.
        heldout: whether real images are the held-out images.
    """
    said = extractor == "inception" or METRICS[metric].features == "dinov2"  # by the metric's name
    departures = [] if said else [extractor]
    if heldout and METRICS[metric].compares and extractor not in OWN_FEATURES.values():
        departures.append("heldout")
    bracket = f"[{','.join(departures)}]" if departures else ""
    return f"{metric}{bracket}@{count_label(count)}"


def metric_label(name: str) -> str:
    """Return the display name of a metric: `Δ FID@10k, w=1.5`."""
    if name.startswith(DELTA):
        return f"Δ {metric_label(name.removeprefix(DELTA))}"
    name, _, settings = name.partition(" ")
    stem = re.split(r"[\[@]", name, maxsplit=1)[0]
    text = (metric_kind(name).label or stem) + name[len(stem) :]
    return f"{text}, {settings}" if settings else text


def is_difference(name: str) -> bool:
    """Whether the values of a metric are signed differences to a baseline."""
    return name.startswith(("gap/", DELTA))


def delta_column(metric: str) -> str:
    """Return the column of a metric's difference to the baseline; a gap is already a difference."""
    return metric if is_difference(metric) else DELTA + metric


def value_text(name: str, value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Return `+0.0066 ± 0.0026`, `0.2534` or `8.5 TFLOP`, as every view shows it; "" for NaN.

    Values with a unit omit their interval.
    """
    if not math.isfinite(value):
        return ""
    kind, signed = metric_kind(name), is_difference(name)
    text = with_interval(value, low, high, signed=signed, digits=kind.digits)
    if kind.unit:
        text = quantity(value, kind.unit, signed=signed)
    return text.replace("-", MINUS)


def mlflow_name(name: str) -> str:
    """Return `fd:fashion16-v1:1k w:1.5 SG 0.5/0.9` for `fd[fashion16-v1]@1k w=1.5 SG(0.5/0.9)`.

    MLflow accepts letters, digits, spaces and `_ - . : /`; such names are unchanged.
    """
    metric, space, setting = name.partition(" ")
    metric = re.sub(r"[\[@,]", ":", metric).replace("]", "")
    setting = re.sub(r"->|,", "-", setting).replace("=[", ":").replace("=", ":")
    setting = re.sub(r"[(+]", " ", re.sub(r"[\])]", "", setting))
    return re.sub(r"[^\w/.\- :]", "_", metric + space + setting)


def lower_is_better(name: str) -> bool:
    """Whether a metric sorts ascending, also without a better direction."""
    return metric_kind(name).better != "higher"


def parameters(spec: RunSpec) -> dict[str, str | int | float]:
    """Return flat parameters for filters and sorting; values as in the paper (bypass, loss, no
    parent) and routes of dense runs are empty."""
    routes, start = spec.routes, ""
    if spec.init_from is not None:
        start = signature(spec.parent) if spec.parent else f"file {spec.init_from.digest}"
    minimised = [] if spec.loss == PlainLoss() else [str(spec.loss)]
    return {
        "model": spec.model.name,
        "route": " + ".join(map(str, routes)) or "dense",
        "start": int(routes[0].start) if routes else "",
        "end": int(routes[0].end) if routes else "",
        "length": sum(len(route.blocks) for route in routes),
        "rate": routes[0].rate if routes else 0.0,
        "bypass": "" if spec.bypass == RouteBypass() else str(spec.bypass),
        "loss": " + ".join([*minimised, *spec.beside_labels]),
        "starts_from": start,
        "process": spec.process.kind,
        "precision": spec.precision,
        "fp32_block": spec.fp32_block,
        "seed": spec.seed,
    }
