"""What is refused, and what is told, before anything is measured."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tread_lab.data.autoencoder import VARIABLE as AUTOENCODER
from tread_lab.data.deviation import check_decoded
from tread_lab.data.exported import is_export, refuse_samples
from tread_lab.data.source import Samples, image_shape, open_data
from tread_lab.engine.system import files_read
from tread_lab.metrics.fidelity import STAND_IN_FILE
from tread_lab.metrics.reference_file import reference_path
from tread_lab.metrics.requirements import check_requirements
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import (
    EvaluationSpec,
    SamplesSpec,
    check_solver,
)
from tread_lab.specs.guidance import check_branches
from tread_lab.specs.metrics import METRICS
from tread_lab.specs.run import RunSpec


def check_measurable(asked: Iterable[tuple[RunSpec, EvaluationSpec]]) -> list[str]:
    """Refuse samplers and metrics that do not work here, before anything is measured.

    Returns:
        a line for each thing that is no error, and that a reader of the numbers should know.

    Raises:
        UserError: a solver of another process, guidance by the same weights, no decoder, no
            torch-fidelity, weights that are absent or not the published, a reference that is absent
            or wrong, held-out samples that are no images when they are decoded or that an export
            does not have.
    """
    asked = [*asked]
    for run, spec in asked:
        if is_export(run.data) and _sees_heldout(spec):
            refuse_samples(run.data)
    for system, run in files_read(run for run, _ in asked):
        system.check(run, None, open_data(run.data, "heldout"))
    sampled = [(run, spec) for run, spec in asked if isinstance(spec, SamplesSpec)]
    for run, spec in sampled:
        check_solver(run, spec.sampler)
        check_branches(run, spec.sampler.guidance, spec.step)
    distinct = {
        (run.data, s.metrics, s.reference): (run.data, s) for run, s in sampled if s.metrics
    }
    for data, spec in distinct.values():
        samples = open_data(data, "heldout")
        shape = image_shape(samples)
        check_requirements(
            spec, data.source, preview=samples.preview, shape=shape, heldout=len(samples)
        )
    for data in dict.fromkeys(data for data, *_ in distinct):
        check_decoded(data, open_data(data, "heldout"))
    warnings = [*untrained_classes(asked), *stand_ins((run for run, _ in asked), asked)]
    return [*warnings, *late_branches(asked)]


def late_branches(asked: Iterable[tuple[RunSpec, EvaluationSpec]]) -> Iterator[str]:
    """Yield warnings where a branch of a guidance is of no earlier step than what is measured."""
    steps = {
        (spec.step, branch.step)
        for _, spec in asked
        if isinstance(spec, SamplesSpec) and isinstance(spec.step, int)
        for branch in spec.sampler.guidance.branches
        if branch.step is not None and branch.step >= spec.step
    }
    for at, step in sorted(steps):
        effect = "which is the same network" if step == at else "which is better trained"
        yield f"samples: at step {at} a guidance has a branch of step {step}, {effect}"


def untrained_classes(
    asked: Iterable[tuple[RunSpec, EvaluationSpec]],
    training: Callable[[DataSpec], Samples] = lambda data: open_data(data, "train"),
) -> Iterator[str]:
    """Yield warnings where images are drawn, or losses measured, of classes that no step saw; the
    null class is one.

    Args:
        training: gives the training samples of data, where they are open already.
    """
    asked = [*asked]
    if any(
        _sees_classes(spec) and not _has_seen(run, lambda drop: drop < 1) for run, spec in asked
    ):
        yield (
            "train.label_drop is 1, so that no step sees a class, and what is measured sees them;"
            " images without one: sampler.guidance={strong: {label: none}}"
        )
    sampled = [(run, spec.sampler) for run, spec in asked if isinstance(spec, SamplesSpec)]
    if any(
        "none" in {branch.label for branch in sampler.guidance.branches}
        and not _has_seen(run, lambda drop: drop > 0)
        for run, sampler in sampled
    ):
        yield (
            "samples: a guidance takes the null class, which is never trained where"
            " train.label_drop is 0"
        )
    for data in dict.fromkeys(run.data for run, _ in sampled if run.condition is None):
        labels_N = None  # of an export, or of a package that does not show them
        with contextlib.suppress(UserError):
            labels_N = getattr(training(data), "labels_N", None)
        if labels_N is None:
            continue
        untrained = sorted({*range(data.classes)} - {*labels_N.unique().tolist()})
        if untrained:
            yield (
                f"samples: {len(untrained)} of {data.classes} classes have no training sample"
                f" (the first is {untrained[0]}), and images are drawn of all; data whose labels"
                " have no gaps leave them out"
            )


def stand_ins(
    runs: Iterable[RunSpec], asked: Iterable[tuple[RunSpec, EvaluationSpec]]
) -> Iterator[str]:
    """Yield a warning for each folder of random numbers (`doctor --stand-ins`) that runs are
    trained with, or metrics of images computed by; Inception's are said by the metrics' names."""
    found: dict[Path, str] = {}
    for system, run in files_read(runs):
        with contextlib.suppress(UserError):  # said by what opens it
            if (folder := system.network_folder(run)) is not None:
                found[folder] = "the frozen encoder"
    for run, spec in asked:
        if not isinstance(spec, SamplesSpec) or not spec.metrics:
            continue
        if run.data.holds.latents and (where := os.environ.get(AUTOENCODER)):
            found[Path(where)] = "the autoencoder"
        if spec.reference is not None:
            with contextlib.suppress(UserError):
                found[reference_path(spec.reference).parent] = f"reference {spec.reference.name}"
    for folder, what in found.items():
        if (folder / STAND_IN_FILE).exists():
            yield f"{what} in {folder} is a stand-in of random numbers; bring the real one"


def _has_seen(run: RunSpec, drop: Callable[[float], bool]) -> bool:
    """Return whether a run, or one that it descends from, has a share of dropped labels such that
    it saw what is asked about; a file may have."""
    family = (run, *run.ancestors)
    starts = (one.init_from for one in family if one.init_from is not None)
    return any(drop(one.train.label_drop) for one in family) or any(s.file for s in starts)


def _sees_classes(spec: EvaluationSpec) -> bool:
    """Return whether an evaluation gives the network a class, or a caption."""
    if not isinstance(spec, SamplesSpec):
        return True
    return "class" in {branch.label for branch in spec.sampler.guidance.branches}


def _sees_heldout(spec: EvaluationSpec) -> bool:
    """Return whether an evaluation needs the held-out samples."""
    if not isinstance(spec, SamplesSpec):
        return True
    return spec.reference is None and any(METRICS[name].compares for name in spec.metrics)
