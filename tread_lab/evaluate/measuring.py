"""Evaluations of a trained run: sample once, extract once, compute every metric asked for."""

# B batch, C channels, H height, W width

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tread_lab.config.errors import Exploded, NotFinite, UserError
from tread_lab.config.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.config.metrics import by_extractor
from tread_lab.config.run import RunSpec
from tread_lab.data.batch_files import Parts
from tread_lab.data.content import check_content
from tread_lab.data.npy import write_npz
from tread_lab.data.source import Samples, open_data
from tread_lab.evaluate.drawing import PARTS, Drawing, draw_open, whole
from tread_lab.evaluate.features import Scorer
from tread_lab.evaluate.made_with import measured_with
from tread_lab.evaluate.measurable import check_requirements
from tread_lab.evaluate.probes import (
    Measuring,
    check_probe,
    heldout_losses,
    layer_similarity,
)
from tread_lab.evaluate.reference_file import ReferenceFile, open_reference
from tread_lab.evaluate.references import file_reference, heldout_reference
from tread_lab.evaluate.sampling_calls import sample_flops
from tread_lab.records import metric_names
from tread_lab.records.durable import replacing
from tread_lab.records.lab import digest_of
from tread_lab.records.run_folder import EXPORTED, EvaluationFolder, RunFolder
from tread_lab.train.assemble import Trained, trained
from tread_lab.train.joining import condition_of
from tread_lab.train.precision import matrix_products
from tread_lab.train.ranks import Ranks

SMOKE_TEST = 50  # steps, of which a run need not be better than predicting zero


def measuring(
    folder: RunFolder,
    spec: EvaluationSpec,
    device: torch.device,
    *,
    cache: Path | None = None,
    ranks: Ranks | None = None,
) -> Measuring[dict[str, float]]:
    """Return metrics of a run's EMA weights; they are read from the record if it is whole.

    Closed between two batches it keeps the images that it has drawn, and goes on from them.

    The weights are those of `spec.step`, or the last ones. Images, noises and levels are the same
    at each step.

    Args:
        cache: folder for statistics of reference data.
        ranks: the processes that draw images together; this one, rank 0, does all else.

    Raises:
        UserError: no checkpoint, or a metric's weights or reference are missing.
        NotFinite: what the network gives is not finite, as the record of a run that has ended says.
    """
    if (record := record_of(folder, spec)) is not None:
        return _metrics(record)
    try:
        return (yield from _measured(folder, spec, device, cache, ranks))
    except NotFinite as error:
        if "step" in (ended := folder.result() or {}):
            step = ended["step"] if spec.step is None else spec.step
            place = folder.evaluation(spec)
            place.write(spec, {}, step=step, problem=str(error))
            remove_images(place.path)
        raise


def _metrics(record: Mapping[str, Any]) -> dict[str, float]:
    if "problem" in record:
        raise NotFinite(record["problem"])
    return dict(record["metrics"])


def _measured(
    folder: RunFolder,
    spec: EvaluationSpec,
    device: torch.device,
    cache: Path | None,
    ranks: Ranks | None,
) -> Measuring[dict[str, float]]:
    started = time.perf_counter()
    run, place = folder.spec(), folder.evaluation(spec)
    check_content(run.data, cache or folder.cache)
    provenance, resumed = measured_with(run, spec, device), False
    with matrix_products("fp32"):  # features are exact products, as the published ones
        if isinstance(spec, SamplesSpec):
            try:
                metrics, facts, resumed = yield from _samples(
                    folder, spec, device, place, cache, ranks
                )
            except (OSError, UserError):
                if (record := record_of(folder, spec)) is None:
                    raise
                return _metrics(record)  # another process was first, and has removed the images
        else:
            heldout = open_data(run.data, "heldout")
            check_probe(spec, run.model, heldout)
            model = trained(folder, device, step=whole(spec.step))
            condition = condition_of(model.spec, folder, device)
            model = dataclasses.replace(model, condition=condition)
            metrics = yield from PROBES[type(spec)](model, heldout, spec, place)
            if not all(map(math.isfinite, metrics.values())):
                raise NotFinite(
                    f"evaluate: {spec.kind} must be finite, got another number of the weights of"
                    f" step {model.step}"
                )
            facts = _weights([model])
    seconds = {} if resumed else {"seconds": time.perf_counter() - started}
    place.write(spec, metrics, **facts, made_with=provenance, **seconds)
    remove_images(place.path)
    return metrics


def remove_images(place: Path) -> None:
    """Remove the images of an unfinished evaluation."""
    shutil.rmtree(place / PARTS, ignore_errors=True)


def record_of(folder: RunFolder, spec: EvaluationSpec) -> Mapping[str, Any] | None:
    """Return the record of an evaluation, `None` where it is still to be measured.

    The name of a run decides its weights; a folder of exported weights may have got others since.
    """
    place = folder.evaluation(spec)
    record = place.read() if place.done else None
    if record is None or not folder.exported or "weights" not in record:
        return record
    return record if digest_of(folder.path / EXPORTED) in record["weights"].values() else None


def _weights(networks: Iterable[Trained]) -> dict[str, Any]:
    """Return the step of the first network, and the digest of the weights at every step."""
    weights = {n.step: n.weights for n in networks}
    return {"step": next(iter(weights)), "weights": {str(at): w for at, w in weights.items()}}


def open_evaluations(
    asked: Iterable[tuple[RunFolder, Iterable[EvaluationSpec]]],
) -> Iterator[tuple[RunSpec, EvaluationSpec]]:
    """Yield what is still to be measured; a run whose spec is lost fails when its turn comes."""
    for folder, specs in asked:
        if (run := folder.readable_spec()) is not None:
            yield from ((run, spec) for spec in specs if record_of(folder, spec) is None)


def _heldout(
    model: Trained, samples: Samples, spec: HeldoutSpec, place: EvaluationFolder
) -> Measuring[dict[str, float]]:
    losses = yield from heldout_losses(model, samples, spec)
    arrays = {"dense": losses.dense_ML, "level": losses.level_ML}
    metrics = {metric_names.HELDOUT_LOSS: float(losses.dense_ML.mean(dtype=np.float64))}
    if losses.routed_ML is not None:
        arrays["routed"] = losses.routed_ML
        metrics[metric_names.HELDOUT_ROUTED] = float(losses.routed_ML.mean(dtype=np.float64))
        metrics[metric_names.GAP_ROUTE] = (
            metrics[metric_names.HELDOUT_ROUTED] - metrics[metric_names.HELDOUT_LOSS]
        )
    loss = metrics[metric_names.HELDOUT_LOSS]
    if spec.step is None and model.step > SMOKE_TEST and loss > losses.zero:
        raise Exploded(
            f"held-out loss {loss:.4g} exceeds {losses.zero:.4g}, the loss of predicting zero;"
            " try a lower train.lr"
        )
    _write_arrays(place.path / "losses.npz", arrays)
    return metrics


def _similarity(
    model: Trained, samples: Samples, spec: SimilaritySpec, place: EvaluationFolder
) -> Measuring[dict[str, float]]:
    per_level, level = yield from layer_similarity(model, samples, spec)
    mean = per_level.mean(axis=0)
    arrays = {"mean": mean, "per_level": per_level, "level": level}
    _write_arrays(place.path / "similarity.npz", arrays)
    return {metric_names.SIMILARITY: float(np.diagonal(mean, offset=1).mean())}


Probe = Callable[[Trained, Samples, Any, EvaluationFolder], Measuring[dict[str, float]]]
PROBES: dict[type, Probe] = {
    HeldoutSpec: _heldout,
    SimilaritySpec: _similarity,
}


def _samples(
    folder: RunFolder,
    spec: SamplesSpec,
    device: torch.device,
    place: EvaluationFolder,
    cache: Path | None,
    ranks: Ranks | None,
) -> Measuring[tuple[dict[str, float], dict[str, Any], bool]]:
    """Return metrics of generated images, what else the record says, and whether an earlier attempt
    drew some of them.

    Every image is drawn and kept before the first is scored, so that scores are of one pass.
    """
    run = folder.spec()
    data = open_data(run.data, "heldout")
    check_requirements(spec, run.data.source, preview=data.preview, heldout=len(data))
    drawing = Drawing(folder, spec, device)
    parts, labels = drawing.parts(), list[int]()
    file, against = None, heldout_reference(data, device)
    if spec.reference is not None:
        file = open_reference(spec.reference, spec.metrics)
        folder.keep_reference(file.name, file.digest, file.path)
        file.check_size(drawing.shape)
        against = file_reference(file)
    scorers = {
        space: Scorer(
            metrics, space, against, drawing.shape, count=spec.count, device=device, cache=cache
        )
        for space, metrics in by_extractor(spec.metrics, run.data.source).items()
    }
    facts = _facts(drawing, file, {name: s.extraction.made_by for name, s in scorers.items()})
    parts.begin()
    resumed = parts.done > 0
    yield from draw_open(drawing, parts, ranks)
    for part in parts.read():
        images_BCHW = torch.from_numpy(part["images"])
        if not labels:
            _write_grid(place.path / "grid.png", images_BCHW[:64])
        for scorer in scorers.values():
            scorer.add(images_BCHW)
        labels += part["labels"].tolist()
        yield drawing.progress(parts, described=len(labels))
    _write_samples(place.path / "samples.npz", parts, drawing.shape, labels)
    if drawing.condition is not None:
        drawing.condition.write(place.path, labels)
    metrics: dict[str, float] = {}
    for scorer in scorers.values():
        metrics |= scorer.scores()
    return metrics, facts, resumed


def _facts(
    drawing: Drawing, file: ReferenceFile | None, extractors: Mapping[str, str]
) -> dict[str, Any]:
    """Return what the record of an evaluation says beside its metrics."""
    condition, facts = drawing.condition, _weights(drawing.networks.values())
    facts[metric_names.SAMPLE_FLOPS] = sample_flops(drawing.model.spec, drawing.spec.sampler)
    if file is not None:
        facts["reference"] = {"name": file.name, "file": str(file.path), "sha256": file.digest}
    if extractors:
        facts["extractors"] = extractors
    return facts if condition is None else {**facts, **condition.record()}


def _write_samples(
    path: Path, parts: Parts, shape: tuple[int, int, int], labels: Sequence[int]
) -> None:
    """Write what ADM's evaluator takes: images `arr_0`, uint8 [N, H, W, C], and labels `arr_1`."""
    C, H, W = shape
    pixels = (part["images"].transpose(0, 2, 3, 1) for part in parts.read())
    members = {
        "arr_0": ((parts.count, H, W, C), np.uint8, pixels),
        "arr_1": ((parts.count,), np.int64, [np.array(labels)]),
    }
    write_npz(path, members)


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_npz(path, {name: (x.shape, x.dtype, [x]) for name, x in arrays.items()})


def _write_grid(path: Path, images_BCHW: Tensor, columns: int = 8) -> None:
    """Write images side by side on a white ground, small ones enlarged without smoothing."""
    B, C, H, W = images_BCHW.shape
    zoom, rows = 3 if H < 64 else 1, -(-B // columns)
    sheet = torch.full((C, rows * (H + 1) + 1, columns * (W + 1) + 1), 255, dtype=torch.uint8)
    for k, image in enumerate(images_BCHW):
        top, left = k // columns * (H + 1) + 1, k % columns * (W + 1) + 1
        sheet[:, top : top + H, left : left + W] = image
    array = sheet[:3].permute(1, 2, 0).numpy() if C >= 3 else sheet[0].numpy()
    picture = Image.fromarray(array)
    size = (picture.width * zoom, picture.height * zoom)
    with replacing(path) as temporary:
        picture.resize(size, Image.Resampling.NEAREST).save(temporary, format="PNG")
