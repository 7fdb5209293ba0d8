"""Evaluations of a trained run: sample once, extract once, compute every metric asked for."""

# B batch, C channels, H height, W width, M images, L levels

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tread_lab.config.errors import Exploded, NotFinite
from tread_lab.config.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec, SimilaritySpec
from tread_lab.config.metrics import by_extractor
from tread_lab.config.run import RunSpec
from tread_lab.data.arrays import write_npz
from tread_lab.data.autoencoder import DECODING
from tread_lab.data.content import sha256
from tread_lab.data.source import Samples, check_content, open_data
from tread_lab.evaluate.drawing import PARTS, Drawing, draw_open, whole, write_grid, write_samples
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.features import Scorer
from tread_lab.evaluate.measurable import check_requirements
from tread_lab.evaluate.probes import Measuring, check_probe, heldout_losses, layer_similarity
from tread_lab.evaluate.references import heldout_reference, open_reference, reference_path
from tread_lab.evaluate.sampling_calls import sample_flops
from tread_lab.records import metric_names
from tread_lab.records.lab import digest_of
from tread_lab.records.run_folder import EXPORTED, INFLUENCES, EvaluationFolder, RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.train.assemble import Trained, trained
from tread_lab.train.joining import condition_of, systems_of
from tread_lab.train.precision import EAGER, arithmetic, matrix_products
from tread_lab.train.provenance import named, plugins_of
from tread_lab.train.ranks import Ranks

SMOKE_TEST = 50  # steps, of which a run need not be better than predicting zero
Metrics = dict[str, float]


def measuring(
    folder: RunFolder,
    spec: EvaluationSpec,
    device: torch.device,
    *,
    cache: Path | None = None,
    ranks: Ranks | None = None,
) -> Measuring[Metrics]:
    """Return metrics of a run's EMA weights, from the record if it is complete.

    A generator closed between two batches keeps its images and resumes from them.

    Uses the weights of `spec.step`, or the last ones. Images, noise and levels are equal at each
    step.

    Args:
        cache: folder for statistics of reference data.
        ranks: the processes that draw images together; rank 0 does everything else.

    Raises:
        UserError: no checkpoint, or a metric's weights or reference are missing.
        NotFinite: the network's output is not finite.
        Exploded: the held-out loss exceeds the loss of predicting zero; the run is diverged.
    """
    if (record := record_of(folder, spec)) is not None:
        if "problem" in record:
            raise NotFinite(record["problem"])
        return dict(record["metrics"])
    run, place = folder.spec(), folder.evaluation(spec)
    check_content(run.data, cache or folder.cache)
    provenance = measured_with(run, spec, device)
    try:
        with matrix_products("fp32"):  # features are exact products, as the published ones
            measured: Any = _samples if isinstance(spec, SamplesSpec) else _probe
            metrics, facts = yield from measured(folder, spec, device, cache, ranks)
    except NotFinite as error:
        if "step" in (ended := folder.result() or {}):
            step = ended["step"] if spec.step is None else spec.step
            _end(place, spec, {}, step=step, problem=str(error))
            if isinstance(error, Exploded):
                facts = {"kind": "diverged", "step": step, "reason": str(error)}
                folder.finish(RunState.DIVERGED, **facts)
        raise
    _end(place, spec, metrics, **facts, made_with=provenance)
    return dict(metrics)


def _end(place: EvaluationFolder, spec: EvaluationSpec, metrics: Metrics, **facts: Any) -> None:
    """Write the record of an evaluation, and remove the images of the unfinished one."""
    place.write(spec, metrics, **facts)
    shutil.rmtree(place.path / PARTS, ignore_errors=True)


def record_of(folder: RunFolder, spec: EvaluationSpec) -> Mapping[str, Any] | None:
    """Return the record of an evaluation, or `None` if it is still open.

    A run's name determines its weights; exported weights are checked by digest.
    """
    record = folder.evaluation(spec).read()
    if record is None or not folder.exported or "weights" not in record:
        return record
    return record if digest_of(folder.path / EXPORTED) in record["weights"].values() else None


def open_evaluations(
    asked: Iterable[tuple[RunFolder, Iterable[EvaluationSpec]]],
) -> Iterator[tuple[RunSpec, EvaluationSpec]]:
    """Yield open evaluations; a run with a lost spec fails later."""
    for folder, specs in asked:
        if (run := folder.readable_spec()) is not None:
            yield from ((run, spec) for spec in specs if record_of(folder, spec) is None)


def measured_with(run: RunSpec, spec: EvaluationSpec, device: torch.device) -> dict[str, str]:
    """Return name -> digest of everything outside the specs that determines an evaluation.

    If latents are decoded, this includes the decoder's arithmetic on the device.

    Raises:
        UserError: data, weights or a reference cannot be read.
    """
    data, heldout = named(run.data), open_data(run.data, "heldout")
    found = {f"held-out data {data}": heldout.fingerprint, **plugins_of(run)}
    for system in systems_of(run):
        found |= system.measured_with(run)
    if not isinstance(spec, SamplesSpec):
        return found
    found[f"decoder of {data}"] = heldout.decoder
    if spec.metrics and run.data.holds.latents:
        products, made_by = DECODING.get(device.type, "fp32"), arithmetic(run, device.type)
        found[f"decoding of {data}"] = products if made_by == EAGER else f"{products}, {made_by}"
    for extractor in by_extractor(spec.metrics, run.data.source):
        found[f"weights {extractor}"] = sha256(SPACES[extractor].weights())
    if spec.metrics and spec.reference is not None:
        found[f"reference {spec.reference.name}"] = sha256(reference_path(spec.reference))
    return found


def _weights(networks: Iterable[Trained]) -> dict[str, Any]:
    """Return the step of the first network, and the digest of the weights at every step."""
    weights = {n.step: n.weights for n in networks}
    return {"step": next(iter(weights)), "weights": {str(at): w for at, w in weights.items()}}


def _probe(
    folder: RunFolder,
    spec: HeldoutSpec | SimilaritySpec,
    device: torch.device,
    *_: object,
) -> Measuring[tuple[Metrics, dict[str, Any]]]:
    """Return metrics of held-out samples inside the network, and what else the record says."""
    run, place = folder.spec(), folder.evaluation(spec)
    heldout = open_data(run.data, "heldout")
    check_probe(spec, run.model, heldout)
    model = trained(folder, device, step=whole(spec.step), ema=spec.ema)
    model = dataclasses.replace(model, condition=condition_of(model.spec, folder, device))
    if isinstance(spec, HeldoutSpec):
        metrics = yield from _heldout(model, heldout, spec, place)
    else:
        metrics = yield from _similarity(model, heldout, spec, place)
    if not all(map(math.isfinite, metrics.values())):
        raise NotFinite(
            f"evaluate: {spec.kind} must be finite, got another number of the weights of step"
            f" {model.step}"
        )
    return metrics, _weights([model])


def _heldout(
    model: Trained, samples: Samples, spec: HeldoutSpec, place: EvaluationFolder
) -> Measuring[Metrics]:
    losses = yield from heldout_losses(model, samples, spec)
    arrays = {"dense": losses.dense_ML, "level": losses.level_ML}
    dense = float(losses.dense_ML.mean(dtype=np.float64))
    metrics = {metric_names.HELDOUT_LOSS: dense}
    if losses.routed_ML is not None:
        arrays["routed"] = losses.routed_ML
        routed = float(losses.routed_ML.mean(dtype=np.float64))
        metrics |= {metric_names.HELDOUT_ROUTED: routed, metric_names.GAP_ROUTE: routed - dense}
    if spec.step is None and model.step > SMOKE_TEST and dense > losses.zero:
        raise Exploded(
            f"held-out loss {dense:.4g} exceeds {losses.zero:.4g}, the loss of predicting zero;"
            " try a lower train.lr"
        )
    _write_arrays(place.path / "losses.npz", arrays)
    return metrics


def _similarity(
    model: Trained, samples: Samples, spec: SimilaritySpec, place: EvaluationFolder
) -> Measuring[Metrics]:
    per_level, level = yield from layer_similarity(model, samples, spec)
    mean = per_level.mean(axis=0)
    arrays = {"mean": mean, "per_level": per_level, "level": level}
    _write_arrays(place.path / "similarity.npz", arrays)
    return {metric_names.SIMILARITY: float(np.diagonal(mean, offset=1).mean())}


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    write_npz(path, {name: (x.shape, x.dtype, [x]) for name, x in arrays.items()})


def _samples(
    folder: RunFolder,
    spec: SamplesSpec,
    device: torch.device,
    cache: Path | None,
    ranks: Ranks | None,
) -> Measuring[tuple[Metrics, dict[str, Any]]]:
    """Return metrics of generated images, and what else the record says.

    Every image is drawn and kept before the first is scored, so that scores are of one pass.
    """
    run, place = folder.spec(), folder.evaluation(spec).path
    data = open_data(run.data, "heldout")
    check_requirements(spec, run.data.source, data)
    drawing = Drawing(folder, spec, device)
    facts = _weights(drawing.networks.values())
    facts[metric_names.SAMPLE_FLOPS] = sample_flops(run, spec.sampler)
    against = heldout_reference(data, device)
    if spec.reference is not None:
        against = open_reference(spec.reference, spec.metrics)
        against.check_size(drawing.shape)
        name, path = spec.reference.name, reference_path(spec.reference)
        folder.keep_reference(name, sha256(path), path)
        facts["reference"] = {"name": name, "file": str(path), "sha256": sha256(path)}
    scorers = {
        space: Scorer(
            metrics, space, against, drawing.shape, count=spec.count, device=device, cache=cache
        )
        for space, metrics in by_extractor(spec.metrics, run.data.source).items()
    }
    if scorers:
        facts["extractors"] = {name: s.extraction.made_by for name, s in scorers.items()}
    parts, labels = drawing.parts(), list[int]()
    parts.begin()
    yield from draw_open(drawing, parts, ranks)
    sets: list[Metrics] = []
    influences: dict[str, np.ndarray] = {}
    for part in parts.read():
        images_BCHW = torch.from_numpy(part["images"])
        if not labels:
            write_grid(place / "grid.png", images_BCHW[:64])
        ends = [*range(spec.count - len(labels) % spec.count, len(images_BCHW) + 1, spec.count)]
        for k, rows_BCHW in enumerate(images_BCHW.tensor_split(ends)):
            for scorer in scorers.values() if len(rows_BCHW) else ():
                scorer.add(rows_BCHW)
            if k < len(ends):  # the set is whole
                sets.append({})
                for scorer in scorers.values():
                    found, of_images = scorer.scores()
                    sets[-1] |= found
                    influences |= {n: x_N.float().cpu().numpy() for n, x_N in of_images.items()}
        labels += part["labels"].tolist()
        yield drawing.progress(parts, described=len(labels))
    write_samples(place / "samples.npz", parts, drawing.shape, labels)
    if drawing.condition is not None:
        drawing.condition.write(place, labels)
        facts |= drawing.condition.record()
    by_set = {name: [one[name] for one in sets] for name in sets[0]}
    metrics = {name: float(np.mean(values)) for name, values in by_set.items()}
    if spec.sets > 1:
        facts["sets"] = by_set
    elif influences:
        _write_arrays(place / INFLUENCES, influences)
        errors = {name: float(x.std(ddof=1) / len(x) ** 0.5) for name, x in influences.items()}
        facts["standard_errors"] = errors
    return metrics, facts
