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
    """Refuse solvers of another process, guidance by what was never trained, guidance that never
    acts, and an EMA of which no snapshots are kept."""
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
    """Refuse, once for each distinct requirement, what cannot be measured here.

    Args:
        to_train: runs that will be trained here first.
        opened: training and held-out samples of all runs, where they are open already.

    Raises:
        UserError: no decoder, weights that are absent or not the published, a
            reference that is absent or wrong, more held-out samples than there are, held-out
            samples that are no images when they are decoded, an encoder that is not here.
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
        UserError: an unknown metric, no decoder, weights that are absent or not the published
            ones, a reference that is absent, wrong, of another shape, or too small.
    """
    if heldout.preview and spec.metrics:
        raise UserError(
            f"metrics: {spec.metrics[0]} needs images, and these latents have no decoder; name the"
            " SD autoencoder's folder in TREAD_LAB_AUTOENCODER, or leave the metric out"
        )
    for metric in spec.metrics:
        extractor = extractor_for(metric, source)
        SPACES[extractor].weights()
        if not METRICS[metric].compares:
            continue
        if extractor in OWN_FEATURES.values() and spec.reference is not None:
            raise UserError(
                f"reference: {metric} is in features of {source}'s own images, and compares with"
                f" those alone; leave the reference out of it: `reference: heldout`"
            )
        if spec.reference is None and len(heldout) < METRICS[metric].fewest_real:
            raise UserError(
                f"metrics: {metric} compares with at least {METRICS[metric].fewest_real} images,"
                f" and the data hold out {len(heldout)}; name a file of statistics (reference), or"
                " leave the metric out"
            )
    if spec.reference is not None:
        against, shape = open_reference(spec.reference, spec.metrics), image_shape(heldout)
        if shape is not None:
            against.check_size(shape)
