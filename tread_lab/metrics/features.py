"""Every metric of generated images and how it is computed; the only door to torch-fidelity."""

# N images, C channels, H height, W width, D features

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_fidelity
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_isc import isc_features_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torch_fidelity.metric_prc import prc_features_to_metric
from torch_fidelity.utils import create_feature_extractor

from tread_lab.metrics.extractor import load_extractor, weights_path
from tread_lab.metrics.feature_space import CHANNELS, INCEPTION, check_metrics
from tread_lab.metrics.inception import SHA256, inception_weights, sha256
from tread_lab.metrics.inception_score import inception_score
from tread_lab.records.durable import replacing
from tread_lab.records.metric_names import sample_metric
from tread_lab.specs.errors import UserError
from tread_lab.specs.metrics import METRICS

MOST_NEIGHBOURS = 10_000  # references that precision and recall look at, as the ADM evaluator does
BATCH = 100
DTYPE = "float32"  # arithmetic inside the extractors


@dataclass(frozen=True)
class Reference:
    """Images of the data set to compare with, named without being looked at.

    Attributes:
        name: all that decides them: data, decoder, number of images.
        batches: gives them again and again, uint8 [B, C, H, W], on any device.
    """

    name: str
    batches: Callable[[], Iterable[Tensor]]

    @staticmethod
    def of(images_NCHW: Tensor, name: str = "reference") -> Reference:
        """Return images in memory as a reference that is named by their hash."""
        pixels = hashlib.sha256(images_NCHW.cpu().contiguous().numpy().data).hexdigest()[:16]
        return Reference(f"{name}-{len(images_NCHW)}-{pixels}", lambda: [images_NCHW])


def score(
    generated: Tensor,
    reference: Reference,
    *,
    metrics: Sequence[str],
    extractor: str,
    cache: Path | None = None,
    weights: Path | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Return metrics of `generated` against `reference`, by the names they are recorded under.

    Features are extracted once, whatever the number of metrics, batch by batch on `device`, whose
    products must be exact in fp32: the published numbers know no TF32.

    Args:
        generated: uint8 [N, C, H, W].
        reference: precision and recall take at most 10,000 of its images, evenly spread; the other
            metrics take all.
        metrics: of one extractor (`by_extractor`).
        extractor: `inception`, or an extractor shipped for a data set.
        cache: folder that keeps the features of references, under names that hold the reference's
            own, the extractor's weights and the arithmetic; then no reference is decoded again.
        weights: the Inception-2015 file, if not in TREAD_LAB_INCEPTION.

    Raises:
        UserError: unknown or mismatched metrics and extractors, Inception weights that are absent
            or not the published ones, images the extractor cannot take.
    """
    check_metrics(metrics, extractor)
    device, shape = torch.device(device), tuple(generated.shape[1:])
    extract = _extraction(extractor, weights, device, shape)
    layers = list(dict.fromkeys(METRICS[metric].layer for metric in metrics))
    references: Mapping[str, Tensor] = {}
    if any(METRICS[metric].compares for metric in metrics):
        path = cache and cache / _entry(reference.name, shape, extractor, device)
        references = _kept(path, lambda: extract(reference.batches(), ["pool"]))
    compared = Compared(extract([generated], layers), references)
    return {sample_metric(m, extractor, len(generated)): MEASURES[m](compared) for m in metrics}


def evenly(rows: Tensor, most: int) -> Tensor:
    """Return at most `most` rows, spread evenly over all (which may be sorted by class)."""
    count = min(len(rows), most)
    return rows[torch.arange(count) * len(rows) // count]


class Compared:
    """Features [N, D] of generated images and of references, by layer, on the CPU.

    What two metrics share is computed once. References have the layer `pool` alone, and none
    unless a metric compares.
    """

    def __init__(self, generated: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> None:
        self.generated, self.reference = generated, reference

    @functools.cached_property
    def frechet(self) -> float:
        """The Frechet distance, in float64."""
        both = (self.generated["pool"], self.reference["pool"])
        moments = [fid_features_to_statistics(x.double()) for x in both]
        found = fid_statistics_to_metric(*moments, verbose=False)
        return float(found["frechet_inception_distance"])

    @functools.cached_property
    def kernel(self) -> float:
        """The kernel distance: mean over 100 random subsets of at most 1,000 images."""
        both = (self.generated["pool"], self.reference["pool"])
        size = min(1000, *map(len, both))
        distance = kid_features_to_metric(*both, kid_subset_size=size, verbose=False)
        return float(distance["kernel_inception_distance_mean"])

    @functools.cached_property
    def neighbours(self) -> dict[str, float]:
        """Precision and recall at k = 3."""
        near = evenly(self.reference["pool"], MOST_NEIGHBOURS)
        found = prc_features_to_metric(
            self.generated["pool"], near, save_cpu_ram=True, verbose=False
        )
        return {"precision": float(found["precision"]), "recall": float(found["recall"])}


MEASURES: Mapping[str, Callable[[Compared], float]] = METRICS.code(
    {
        "fd": lambda compared: compared.frechet,
        "fid": lambda compared: compared.frechet,
        "kid": lambda compared: compared.kernel,
        "is": lambda compared: inception_score(compared.generated["logits"].numpy()),
        "is_shuffled": lambda compared: float(
            isc_features_to_metric(compared.generated["logits"])["inception_score_mean"]
        ),
        "precision": lambda compared: compared.neighbours["precision"],
        "recall": lambda compared: compared.neighbours["recall"],
    }
)


def _check_images(images_BCHW: Tensor, shape: tuple[int, ...], extractor: str) -> None:
    """Refuse images of another shape than the generated ones, or that the extractor lacks."""
    assert images_BCHW.dtype == torch.uint8 and images_BCHW.ndim == 4
    if tuple(images_BCHW.shape[1:]) != shape:
        shapes = f"{list(shape)} and {list(images_BCHW.shape[1:])}"
        raise UserError(f"metrics: generated and reference images differ in shape: {shapes}")
    takes = CHANNELS[extractor]
    if shape[0] not in takes:
        raise UserError(
            f"metrics: {extractor!r} takes images of {' or '.join(map(str, takes))} channels, "
            f"not {shape[0]}"
        )


# describe(images_BCHW) -> features [B, D] by layer, on the device
Describe = Callable[[Tensor], dict[str, Tensor]]
Extraction = Callable[[Iterable[Tensor], Sequence[str]], dict[str, Tensor]]


def _extraction(
    extractor: str, weights: Path | None, device: torch.device, shape: tuple[int, ...]
) -> Extraction:
    """Batches of images of one shape and layers -> features [N, D] of each layer, on the CPU.

    One batch is on the device at a time; only its features are kept.
    """
    describe = _inception(weights, device) if extractor == INCEPTION else _own(extractor, device)

    def extract(batches: Iterable[Tensor], layers: Sequence[str]) -> dict[str, Tensor]:
        parts: list[dict[str, Tensor]] = []
        for images_BCHW in batches:
            _check_images(images_BCHW, shape, extractor)
            with torch.no_grad():
                parts += (describe(part.to(device)) for part in torch.split(images_BCHW, BATCH))
        return {layer: torch.cat([part[layer] for part in parts]).cpu() for layer in layers}

    return extract


def _inception(weights: Path | None, device: torch.device) -> Describe:
    """Inception-2015 as torch-fidelity has it; grey images become RGB, logits lack their bias."""
    layers, path = {"pool": "2048", "logits": "logits_unbiased"}, inception_weights(weights)
    model = create_feature_extractor(
        "inception-v3-compat",
        [*layers.values()],
        cuda=device.type == "cuda",
        feature_extractor_weights_path=str(path),
        verbose=False,
    )
    return lambda images_BCHW: dict(zip(layers, model(images_BCHW.expand(-1, 3, -1, -1))))


def _own(name: str, device: torch.device) -> Describe:
    """Return a shipped extractor; float64 features give exact moments."""
    model = load_extractor(name).to(device)
    return lambda images_BCHW: dict(
        zip(("pool", "logits"), (layer.double() for layer in model(images_BCHW)))
    )


def _entry(reference: str, shape: tuple[int, ...], extractor: str, device: torch.device) -> str:
    """Return a file name that holds everything that decides the features of the reference."""
    made_by = SHA256 if extractor == INCEPTION else sha256(weights_path(extractor))
    safe, size = re.sub(r"[^\w.-]", "_", reference), "x".join(map(str, shape))
    version = f"{DTYPE}-{device.type}-{torch_fidelity.__version__}"
    return f"{safe}-{size}-{extractor}-{made_by[:12]}-{version}.safetensors"


def _kept(path: Path | None, extract: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return what `path` holds, else what `extract` gives, kept there.

    torch-fidelity's own cache is not used: its entries are pickles, and their names leave out the
    number of samples, the weights and the precision.
    """
    if path is None:
        return extract()
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "pt") as entry:
        held = {name: entry.get_tensor(name) for name in entry.keys()}  # noqa: SIM118
        if entry.metadata() == {"sha256": _digest(held)}:
            return held
    found = extract()
    with replacing(path) as temporary:
        save_file(found, temporary, {"sha256": _digest(found)})
    return found


def _digest(found: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors: safetensors notices a file cut short, but no flipped bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(found.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
