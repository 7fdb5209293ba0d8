"""Evaluations of a trained run: sample once, extract once, compute every metric asked for."""

# B batch, C channels, H height, W width

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.engine.assemble import Trained, data_of, trained
from tread_lab.engine.device import check_precision
from tread_lab.engine.precision import autocast, matrix_products
from tread_lab.engine.probes import heldout_losses, layer_similarity
from tread_lab.engine.sample_cost import sample_flops
from tread_lab.records import names
from tread_lab.records.durable import replacing
from tread_lab.records.layout import EvaluationFolder, RunFolder
from tread_lab.routing.select import RoutePlan
from tread_lab.sampling.generate import generate
from tread_lab.sampling.guidance import Denoiser
from tread_lab.spec.errors import UserError
from tread_lab.spec.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec, SimilaritySpec
from tread_lab.spec.guidance import routes_taken


def evaluate(
    folder: RunFolder, spec: EvaluationSpec, device: torch.device, *, cache: Path | None = None
) -> dict[str, float]:
    """Metrics of a run's last EMA weights; computed once, then read from the record, and computed
    again where its files are damaged.

    Args:
        cache: folder for statistics of reference data.

    Raises:
        UserError: no checkpoint, or a metric's weights or reference are missing.
    """
    place = folder.evaluation(spec)
    done = place.read()
    if done is not None and place.done:
        metrics: dict[str, float] = done["metrics"]
        return metrics
    started = time.perf_counter()
    if isinstance(spec, SamplesSpec):
        metrics, facts = _samples(folder, spec, device, place, cache)
    else:
        model = trained(folder, device)
        with matrix_products("fp32"):
            metrics = _probe(model, spec, place)
        facts = {"step": model.step}
    place.write(spec, metrics, **facts, seconds=time.perf_counter() - started)
    return metrics


def _probe(
    model: Trained, spec: HeldoutSpec | SimilaritySpec, place: EvaluationFolder
) -> dict[str, float]:
    if isinstance(spec, HeldoutSpec):
        return _heldout(model, spec, place)
    return _similarity(model, spec, place)


def _heldout(model: Trained, spec: HeldoutSpec, place: EvaluationFolder) -> dict[str, float]:
    losses = heldout_losses(model, data_of(model.spec, "heldout"), spec.images, spec.levels)
    arrays = {"dense": losses.dense_ML, "level": losses.level_ML}
    metrics = {names.HELDOUT_LOSS: float(losses.dense_ML.mean(dtype=np.float64))}
    if losses.routed_ML is not None:
        arrays["routed"] = losses.routed_ML
        metrics[names.HELDOUT_ROUTED] = float(losses.routed_ML.mean(dtype=np.float64))
        metrics[names.GAP_ROUTE] = metrics[names.HELDOUT_ROUTED] - metrics[names.HELDOUT_LOSS]
    _write_arrays(place.path / "losses.npz", arrays)
    return metrics


def _similarity(model: Trained, spec: SimilaritySpec, place: EvaluationFolder) -> dict[str, float]:
    samples = data_of(model.spec, "heldout")
    per_level, level = layer_similarity(model, samples, spec.images, spec.levels)
    mean = per_level.mean(axis=0)
    arrays = {"mean": mean, "per_level": per_level, "level": level}
    _write_arrays(place.path / "similarity.npz", arrays)
    return {names.SIMILARITY: float(np.diagonal(mean, offset=1).mean())}


def _samples(
    folder: RunFolder,
    spec: SamplesSpec,
    device: torch.device,
    place: EvaluationFolder,
    cache: Path | None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Metrics of generated images, and what they were generated with and for how much."""
    branches = spec.sampler.guidance.branches
    models = {b.step: trained(folder, device, step=b.step) for b in branches}
    model = models[branches[0].step]
    reference = data_of(model.spec, "heldout")
    drawn = _generated(models, model, spec)
    images, labels = zip(*((reference.pixels(x.cpu()), y.cpu()) for x, y in drawn))
    images_BCHW, labels_B = torch.cat(images), torch.cat(labels)
    arrays = {"arr_0": images_BCHW.permute(0, 2, 3, 1).numpy(), "arr_1": labels_B.numpy()}
    _write_arrays(place.path / "samples.npz", arrays)
    _write_grid(place.path / "grid.png", images_BCHW[:64])
    flops = sample_flops(model.spec, spec.sampler)
    facts: dict[str, float] = {"step": model.step, names.SAMPLE_FLOPS: flops}
    return _scores(images_BCHW, spec.metrics, model, reference, cache), facts


def _generated(
    models: Mapping[int | None, Trained], model: Trained, spec: SamplesSpec
) -> Iterator[tuple[Tensor, Tensor]]:
    """(samples, labels) batch by batch."""
    data, sampler = model.spec.data, spec.sampler
    return generate(
        {step: _denoiser(known, sampler.precision) for step, known in models.items()},
        model.process,
        sampler,
        count=spec.count,
        shape=(data.channels, data.size, data.size),
        classes=data.classes,
        device=model.device,
        routes=routes_taken(model.spec, sampler.guidance),
        tokens=model.spec.tokens,
    )


def _denoiser(model: Trained, precision: str) -> Denoiser:
    """The raw network in the arithmetic of `precision`."""
    check_precision(precision, model.device)

    def denoiser(x: Tensor, t: Tensor, y: Tensor, plan: RoutePlan | None) -> Tensor:
        with matrix_products(precision), autocast(precision, model.device):
            out: Tensor = model.network(x, t, y, plan)
        return out

    return denoiser


def _scores(
    images_BCHW: Tensor,
    metrics: Sequence[str],
    model: Trained,
    reference: Samples,
    cache: Path | None,
) -> dict[str, float]:
    """Metrics of generated images against the held-out ones, one pass for each feature space.

    Raises:
        UserError: the images are previews of latents, or a feature space lacks its weights.
    """
    if not metrics:
        return {}
    if reference.preview:
        raise UserError(
            f"metrics: {metrics[0]} needs images, and these latents have no decoder; name the SD"
            " autoencoder's folder in TREAD_LAB_AUTOENCODER, then `tread-lab evaluate`"
        )
    from tread_lab.metrics.feature_space import by_extractor
    from tread_lab.metrics.features import score  # torch-fidelity takes seconds to import

    found: dict[str, float] = {}
    spaces = by_extractor(metrics, model.spec.data.source)
    against = _pixels(reference)
    for extractor, group in spaces.items():
        found |= score(
            images_BCHW,
            against,
            metrics=group,
            extractor=extractor,
            cache=cache,
            reference_name=f"heldout-{reference.fingerprint}",
            device=model.device,
        )
    return found


def _pixels(samples: Samples, chunk: int = 1000) -> Tensor:
    """All images of a split, uint8."""
    starts = range(0, len(samples), chunk)
    ids = [torch.arange(start, min(start + chunk, len(samples))) for start in starts]
    return torch.cat([samples.pixels(samples.take(part)[0]) for part in ids])


def _write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz without compression: 10,000 images take a minute for 7% less space."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _write_grid(path: Path, images_BCHW: Tensor, columns: int = 8, zoom: int = 3) -> None:
    """Images side by side on a white ground, small ones enlarged without smoothing."""
    B, C, H, W = images_BCHW.shape
    zoom, rows = zoom if H < 64 else 1, -(-B // columns)
    sheet = torch.full((C, rows * (H + 1) + 1, columns * (W + 1) + 1), 255, dtype=torch.uint8)
    for k, image in enumerate(images_BCHW):
        top, left = k // columns * (H + 1) + 1, k % columns * (W + 1) + 1
        sheet[:, top : top + H, left : left + W] = image
    array = sheet[:3].permute(1, 2, 0).numpy() if C >= 3 else sheet[0].numpy()
    picture = Image.fromarray(array)
    size = (picture.width * zoom, picture.height * zoom)
    with replacing(path) as temporary:
        picture.resize(size, Image.Resampling.NEAREST).save(temporary, format="PNG")
