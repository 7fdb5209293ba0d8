"""What is refused, and what is told, before anything is measured."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec, check_ema, check_solver
from tread_lab.config.guidance import check_branches
from tread_lab.config.metrics import METRICS, OWN_FEATURES, extractor_for
from tread_lab.config.run import RunSpec
from tread_lab.data.deviation import check_decoded
from tread_lab.data.source import Samples, image_shape, open_data
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.probes import check_probe
from tread_lab.evaluate.references import open_reference
from tread_lab.evaluate.sampling_calls import check_effect
from tread_lab.train.joining import files_read


def check_samplers(asked: Iterable[tuple[RunSpec, EvaluationSpec]]) -> None:
    """Refuse solvers of another process, guidance by untrained inputs, guidance without effect, and
    EMA lengths without snapshots."""
    for run, spec in asked:
        check_ema(run, spec)
        if isinstance(spec, SamplesSpec):
            check_solver(run, spec.sampler)
            check_branches(run, spec.sampler.guidance, spec.step)
            check_effect(run, spec.sampler)


def check_measurable(
    asked: Iterable[tuple[RunSpec, EvaluationSpec]],
    to_train: Sequence[RunSpec] = (),
    opened: Mapping[DataSpec, tuple[Samples | None, Samples]] | None = None,
) -> None:
    """Refuse evaluations that are impossible here, one error per requirement.

    Args:
        to_train: runs to be trained here first.
        opened: open training and held-out samples of all runs, if any.

    Raises:
        UserError: a missing decoder, encoder, weights or reference, too few held-out samples, or
            held-out samples that do not decode to images.
    """
    asked = [*asked]
    runs = [*to_train, *(run for run, _ in asked)]
    if opened is None:
        distinct = dict.fromkeys(run.data for run in runs)
        opened = {data: (None, open_data(data, "heldout")) for data in distinct}
    for system, run in files_read(runs):
        system.check(run, *opened[run.data])
    sampled: dict[tuple[DataSpec, Hashable], SamplesSpec] = {}
    for run, spec in asked:
        if not isinstance(spec, SamplesSpec):
            check_probe(spec, run.model, opened[run.data][1])
        elif spec.metrics:
            sampled[run.data, (spec.metrics, spec.reference)] = spec
    for (data, _), spec in sampled.items():
        check_requirements(spec, data.source, opened[data][1])
    for data in dict.fromkeys(data for data, _ in sampled):
        check_decoded(data, opened[data][1])


def check_requirements(spec: SamplesSpec, source: str, heldout: Samples) -> None:
    """Refuse metrics that cannot be computed here, before a single image is drawn.

    Args:
        source: the data source of the run.
        heldout: its held-out samples.

    Raises:
        UserError: an unknown metric, a missing decoder, missing or wrong weights, or a reference
            that is missing, wrong, too small or of another shape.
    """
    if heldout.preview and spec.metrics:
        raise UserError(
            f"metrics: {spec.metrics[0]} requires images, but these latents have no decoder. Set"
            " TREAD_LAB_AUTOENCODER to the SD autoencoder's folder, or remove the metric."
        )
    for metric in spec.metrics:
        extractor = extractor_for(metric, source)
        SPACES[extractor].weights()
        if not METRICS[metric].compares:
            continue
        if extractor in OWN_FEATURES.values() and spec.reference is not None:
            raise UserError(
                f"reference: must be heldout for {metric}, whose features are made for {source}"
            )
        if spec.reference is None and len(heldout) < METRICS[metric].fewest_real:
            raise UserError(
                f"metrics: {metric} requires at least {METRICS[metric].fewest_real} reference"
                f" images, got {len(heldout)} held-out ones. Set `reference` to a file of"
                " statistics, or remove the metric."
            )
    if spec.reference is not None:
        against, shape = open_reference(spec.reference, spec.metrics), image_shape(heldout)
        if shape is not None:
            against.check_size(shape)
