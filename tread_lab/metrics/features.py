"""Metrics of generated images from features of both sets; the only door to torch-fidelity."""

# N images, C channels, H height, W width, D features

from __future__ import annotations

import contextlib
import hashlib
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_fidelity
from torch import Tensor
from torch.utils.data import Dataset
from torch_fidelity.feature_extractor_base import FeatureExtractorBase
from torch_fidelity.utils import create_feature_extractor, get_featuresdict_from_dataset

from tread_lab.metrics.extractor import load_extractor, weights_path
from tread_lab.metrics.feature_space import INCEPTION, OWN, check_metrics
from tread_lab.metrics.inception import SHA256, inception_weights, sha256
from tread_lab.records.durable import disk_error
from tread_lab.records.names import sample_metric
from tread_lab.spec.errors import UserError

MOST_NEIGHBOURS = 10_000  # references that precision and recall look at, as the ADM evaluator does
BATCH = 100
DTYPE = "float32"  # arithmetic inside the extractors

RESULTS = {  # our name -> the flag that asks torch-fidelity for it and the key of its answer
    "fd": ("fid", "frechet_inception_distance"),
    "fid": ("fid", "frechet_inception_distance"),
    "kid": ("kid", "kernel_inception_distance_mean"),
    "is": ("isc", "inception_score_mean"),
    "precision": ("prc", "precision"),
    "recall": ("prc", "recall"),
}


def score(
    generated: Tensor,
    reference: Tensor,
    *,
    metrics: Sequence[str],
    extractor: str,
    cache: Path | None = None,
    reference_name: str = "reference",
    weights: Path | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Metrics of `generated` against `reference`, by the names they are recorded under.

    Args:
        generated, reference: uint8 [N, C, H, W]. Precision and recall take at most 10,000
            references, evenly spread; the other metrics take all.
        metrics: of fd, fid, kid, is, precision, recall; those of one extractor (`feature_space`).
        extractor: `inception`, or an extractor shipped for a data set.
        cache: folder for the features of the reference. Entries are named by the images' own hash,
            so a cached result equals a computed one whatever `reference_name` says.
        weights: the Inception-2015 file, if not in TREAD_LAB_INCEPTION.

    Raises:
        UserError: unknown or mismatched metrics and extractors, Inception weights that are absent
            or not the published ones, images the extractor cannot take.
    """
    check_metrics(metrics, extractor)
    _check(generated, reference, extractor)
    near = [metric for metric in metrics if metric in ("precision", "recall")]
    rest = [metric for metric in metrics if metric not in near]
    if len(reference) <= MOST_NEIGHBOURS:
        near, rest = [], list(metrics)
    found: dict[str, float] = {}
    for wanted, against in ((rest, reference), (near, evenly(reference, MOST_NEIGHBOURS))):
        if wanted:
            tag = _tag(against, reference_name, extractor, torch.device(device))
            options: dict[str, Any] = {flag: True for flag, _ in map(RESULTS.__getitem__, wanted)}
            if "kid" in wanted:
                options["kid_subset_size"] = min(1000, len(generated), len(against))
            with _cached(cache, tag) as caching:
                found |= _calculate(
                    generated, against, extractor, weights, device, **options, **caching
                )
    return {sample_metric(m, extractor, len(generated)): found[RESULTS[m][1]] for m in metrics}


def features(
    images: Tensor,
    *,
    extractor: str,
    weights: Path | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The features [N, D] that the Frechet distance is computed from, on the CPU."""
    name, layers, options = _options(extractor, weights)
    layer = layers["fid"]
    cuda = torch.device(device).type == "cuda"
    with _exact(device):
        model = create_feature_extractor(name, [layer], cuda=cuda, verbose=False, **options)
        found = get_featuresdict_from_dataset(
            Images(images, extractor), model, BATCH, cuda, save_cpu_ram=True, verbose=False
        )
    features_ND: Tensor = found[layer]
    return features_ND


def evenly(images: Tensor, most: int) -> Tensor:
    """At most `most` images, spread evenly over all (which may be sorted by class)."""
    count = min(len(images), most)
    return images[torch.arange(count) * len(images) // count]


class Images(Dataset[Tensor]):
    """uint8 images, one tensor an item; grey ones become RGB for Inception."""

    def __init__(self, images_NCHW: Tensor, extractor: str) -> None:
        grey = extractor == INCEPTION and images_NCHW.shape[1] == 1
        images_NCHW = images_NCHW.cpu()
        self._images_NCHW = images_NCHW.expand(-1, 3, -1, -1) if grey else images_NCHW

    def __len__(self) -> int:
        return len(self._images_NCHW)

    def __getitem__(self, i: int) -> Tensor:
        return self._images_NCHW[i]


class OwnFeatures(FeatureExtractorBase):  # type: ignore[misc]
    """A shipped extractor as torch-fidelity wants one; float64 features give exact moments."""

    def __init__(self, name: str, features_list: list[str], **_: Any) -> None:
        super().__init__(name, features_list)
        self.model = load_extractor(name)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip(self.get_provided_features_list(), self.model(images), strict=True))
        return tuple(found[name].double() for name in self.features_list)

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        return "features", "logits"

    @staticmethod
    def get_default_feature_layer_for_metric(metric: str) -> str:
        return "logits" if metric == "isc" else "features"

    @staticmethod
    def can_be_compiled() -> bool:
        return False


for _name in OWN.values():
    torch_fidelity.register_feature_extractor(_name, OwnFeatures)


def _check(generated: Tensor, reference: Tensor, extractor: str) -> None:
    for images in (generated, reference):
        assert images.dtype == torch.uint8 and images.ndim == 4
    if generated.shape[1:] != reference.shape[1:]:
        shapes = f"{list(generated.shape[1:])} and {list(reference.shape[1:])}"
        raise UserError(f"metrics: generated and reference images differ in shape: {shapes}")
    takes = (1, 3) if extractor == INCEPTION else (1,)
    if generated.shape[1] not in takes:
        raise UserError(
            f"metrics: {extractor!r} takes images of {' or '.join(map(str, takes))} channels, "
            f"not {generated.shape[1]}"
        )


def _calculate(
    generated: Tensor,
    reference: Tensor,
    extractor: str,
    weights: Path | None,
    device: torch.device | str,
    **options: Any,
) -> dict[str, float]:
    name, layers, more = _options(extractor, weights)
    with _exact(device):
        found: dict[str, float] = torch_fidelity.calculate_metrics(
            input1=Images(generated, extractor),
            input2=Images(reference, extractor),
            feature_extractor=name,
            **{f"feature_layer_{flag}": layer for flag, layer in layers.items()},
            cuda=torch.device(device).type == "cuda",
            batch_size=BATCH,
            save_cpu_ram=True,  # also: no worker processes
            verbose=False,
            **more,
            **options,
        )
    return found


def _options(extractor: str, weights: Path | None) -> tuple[str, dict[str, str], dict[str, Any]]:
    """torch-fidelity's name of an extractor, its layer for every metric, and its options."""
    if extractor != INCEPTION:
        layers = {"fid": "features", "kid": "features", "prc": "features", "isc": "logits"}
        return extractor, layers, {}
    layers = {"fid": "2048", "kid": "2048", "prc": "2048", "isc": "logits_unbiased"}
    path = str(inception_weights(weights))
    options = {"feature_extractor_weights_path": path, "feature_extractor_internal_dtype": DTYPE}
    return "inception-v3-compat", layers, options


def _tag(reference: Tensor, name: str, extractor: str, device: torch.device) -> str:
    """Everything that decides the features of the reference, as a file name.

    torch-fidelity itself adds only extractor and layer to it.
    """
    pixels = hashlib.sha256(reference.cpu().contiguous().numpy().data).hexdigest()[:16]
    shape = "x".join(map(str, reference.shape))
    own = extractor != INCEPTION
    made_by = (sha256(weights_path(extractor)) if own else SHA256)[:12]
    safe = re.sub(r"[^\w.-]", "_", name)
    version = torch_fidelity.__version__
    return f"{safe}-{shape}-{pixels}-{made_by}-{DTYPE}-{device.type}-{version}"


@contextlib.contextmanager
def _cached(cache: Path | None, tag: str) -> Iterator[dict[str, Any]]:
    """Options that keep the reference's features in `cache`; entries cut short are dropped."""
    if cache is None:
        yield {"cache": False}
        return
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for entry in cache.glob(f"{tag}-*.pt"):
            if not zipfile.is_zipfile(entry):
                entry.unlink(missing_ok=True)
        yield {"cache": True, "cache_root": str(cache), "input2_cache_name": tag}
    except OSError as error:
        raise disk_error(error, cache) from error


@contextlib.contextmanager
def _exact(device: torch.device | str) -> Iterator[None]:
    """Full fp32 on `device` for the block: the published numbers know no TF32."""
    device = torch.device(device)
    if device.type != "cuda":
        yield
        return
    backends: Any = torch.backends
    settings = (backends.cudnn.conv, backends.cuda.matmul)
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = "ieee"
        with torch.cuda.device(device):
            yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision
