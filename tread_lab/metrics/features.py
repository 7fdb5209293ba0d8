"""Every metric of generated images and how it is computed; the only door to torch-fidelity."""

# N images, C channels, H height, W width, D features

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_fidelity
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import Dataset
from torch_fidelity.feature_extractor_base import FeatureExtractorBase
from torch_fidelity.metric_fid import fid_features_to_statistics, fid_statistics_to_metric
from torch_fidelity.metric_isc import isc_features_to_metric
from torch_fidelity.metric_kid import kid_features_to_metric
from torch_fidelity.metric_prc import prc_features_to_metric
from torch_fidelity.utils import create_feature_extractor, get_featuresdict_from_dataset

from tread_lab.metrics.extractor import load_extractor, weights_path
from tread_lab.metrics.feature_space import INCEPTION, OWN, check_metrics
from tread_lab.metrics.inception import SHA256, inception_weights, sha256
from tread_lab.records.durable import replacing
from tread_lab.records.names import sample_metric
from tread_lab.spec.errors import UserError

MOST_NEIGHBOURS = 10_000  # references that precision and recall look at, as the ADM evaluator does
BATCH = 100
DTYPE = "float32"  # arithmetic inside the extractors


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

    Features are extracted once, whatever the number of metrics.

    Args:
        generated, reference: uint8 [N, C, H, W]. Precision and recall take at most 10,000
            references, evenly spread; the other metrics take all.
        metrics: of fd, fid, kid, is, precision, recall; those of one extractor (`by_extractor`).
        extractor: `inception`, or an extractor shipped for a data set.
        cache: folder that keeps the features of references. Entries are named by the images' own
            hash, so a cached result equals a computed one whatever `reference_name` says.
        weights: the Inception-2015 file, if not in TREAD_LAB_INCEPTION.

    Raises:
        UserError: unknown or mismatched metrics and extractors, Inception weights that are absent
            or not the published ones, images the extractor cannot take.
    """
    check_metrics(metrics, extractor)
    _check_images(generated, reference, extractor)
    pool, logits = _layers(extractor)
    extract = _extraction(extractor, weights, torch.device(device))
    mine = extract(generated, [pool, logits] if "is" in metrics else [pool])
    found: dict[str, float] = {}
    if "is" in metrics:
        found["is"] = isc_features_to_metric(mine[logits])["inception_score_mean"]
    if set(metrics) - {"is"}:
        path = cache and cache / _entry(reference, reference_name, extractor, torch.device(device))
        theirs = _kept(path, lambda: extract(reference, [pool]))
        found |= _compare(mine[pool], theirs[pool], metrics)
    return {sample_metric(m, extractor, len(generated)): found[m] for m in metrics}


def features(
    images: Tensor,
    *,
    extractor: str,
    weights: Path | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """The features [N, D] that the Frechet distance is computed from, on the CPU."""
    pool, _ = _layers(extractor)
    return _extraction(extractor, weights, torch.device(device))(images, [pool])[pool]


def evenly(rows: Tensor, most: int) -> Tensor:
    """At most `most` rows, spread evenly over all (which may be sorted by class)."""
    count = min(len(rows), most)
    return rows[torch.arange(count) * len(rows) // count]


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


def _compare(mine_ND: Tensor, theirs_ND: Tensor, metrics: Sequence[str]) -> dict[str, float]:
    """The metrics of two feature matrices that need both of them."""
    found: dict[str, float] = {}
    if "fd" in metrics or "fid" in metrics:
        moments = [fid_features_to_statistics(x.double()) for x in (mine_ND, theirs_ND)]
        distance = fid_statistics_to_metric(*moments, verbose=False)["frechet_inception_distance"]
        found["fd"] = found["fid"] = distance
    if "kid" in metrics:
        size = min(1000, len(mine_ND), len(theirs_ND))
        kernel = kid_features_to_metric(mine_ND, theirs_ND, kid_subset_size=size, verbose=False)
        found["kid"] = kernel["kernel_inception_distance_mean"]
    if "precision" in metrics or "recall" in metrics:
        near_ND = evenly(theirs_ND, MOST_NEIGHBOURS)
        near = prc_features_to_metric(mine_ND, near_ND, save_cpu_ram=True, verbose=False)
        found |= {"precision": near["precision"], "recall": near["recall"]}
    return found


def _check_images(generated: Tensor, reference: Tensor, extractor: str) -> None:
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


def _layers(extractor: str) -> tuple[str, str]:
    """The layers distances and the Inception score are computed from; ADM's own for Inception."""
    return ("2048", "logits_unbiased") if extractor == INCEPTION else ("features", "logits")


Extraction = Callable[[Tensor, list[str]], dict[str, Tensor]]


def _extraction(extractor: str, weights: Path | None, device: torch.device) -> Extraction:
    """Images [N, C, H, W] and names of layers -> features [N, D] of each layer, on the CPU."""
    name, options = extractor, {}
    if extractor == INCEPTION:
        name = "inception-v3-compat"
        options = {"feature_extractor_weights_path": str(inception_weights(weights))}
    cuda = device.type == "cuda"

    def extract(images_NCHW: Tensor, layers: list[str]) -> dict[str, Tensor]:
        data = Images(images_NCHW, extractor)
        with _exact(device):
            model = create_feature_extractor(name, layers, cuda=cuda, verbose=False, **options)
            found: dict[str, Tensor] = get_featuresdict_from_dataset(
                data, model, BATCH, cuda, save_cpu_ram=True, verbose=False
            )
        return found

    return extract


def _entry(reference: Tensor, name: str, extractor: str, device: torch.device) -> str:
    """A file name that holds everything that decides the features of the reference."""
    pixels = hashlib.sha256(reference.cpu().contiguous().numpy().data).hexdigest()[:16]
    shape = "x".join(map(str, reference.shape))
    made_by = SHA256 if extractor == INCEPTION else sha256(weights_path(extractor))
    safe = re.sub(r"[^\w.-]", "_", name)
    version = f"{DTYPE}-{device.type}-{torch_fidelity.__version__}"
    return f"{safe}-{shape}-{pixels}-{extractor}-{made_by[:12]}-{version}.safetensors"


def _kept(path: Path | None, extract: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """What `path` holds, else what `extract` gives, kept there.

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


@contextlib.contextmanager
def _exact(device: torch.device) -> Iterator[None]:
    """Full fp32 on `device` for the block: the published numbers know no TF32."""
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
