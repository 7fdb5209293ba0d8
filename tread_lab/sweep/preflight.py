"""Preflight checks: refuse before anything is written what would fail."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.config.metrics import by_extractor
from tread_lab.config.routes import SELECTIONS
from tread_lab.config.run import RunSpec
from tread_lab.data.autoencoder import VARIABLE as AUTOENCODER
from tread_lab.data.content import sha256
from tread_lab.data.deviation import check_deviation
from tread_lab.data.source import open_data
from tread_lab.data.stored import absent_labels
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.measurable import check_measurable, check_samplers
from tread_lab.evaluate.references import reference_path
from tread_lab.hardware import Devices
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing.select import draw_routing
from tread_lab.sweep.task import Task
from tread_lab.train.assemble import check_start
from tread_lab.train.joining import files_read
from tread_lab.train.precision import has_compiler


def preflight(tasks: Sequence[Task], devices: Devices) -> list[str]:
    """Check each requirement and file of `tasks` once, on the target device.

    Returns:
        a line for each notice that is not an error.

    Raises:
        UserError: an indivisible batch, an invalid selection or sampler, a missing compiler,
            unreadable or wrongly scaled data, too few held-out samples, missing weights, decoder,
            encoder or reference of a metric, held-out samples that do not decode to images, or
            incompatible starting weights.
    """
    _check_shares(tasks, devices.per_run)
    _check_selections(tasks)
    asked = [(task.spec, evaluation) for task in tasks for evaluation in task.evaluations]
    check_samplers(asked)
    specs = [task.spec for task in tasks]
    _check_compiler(specs)
    opened = {
        data: (open_data(data, "train"), open_data(data, "heldout"))
        for data in dict.fromkeys(spec.data for spec in specs)
    }
    for spec in {(spec.data, spec.process): spec for spec in specs}.values():
        check_deviation(spec, opened[spec.data][0])
    for spec in {(spec.init_from, spec.network, spec.process): spec for spec in specs}.values():
        check_start(spec)
    check_measurable(asked, specs, opened)
    labelled = dict.fromkeys(spec.data for spec in specs if spec.condition is None)
    lacking = (absent_labels(opened[d][0].labels_N.numpy(), d.classes) for d in labelled)
    return [
        f"data: no training sample has the label {absent}; it is drawn and never trained"
        for absent in lacking
        if absent
    ]


def missing_files(tasks: Sequence[Task]) -> list[str]:
    """Return a line for each missing file of the planned runs, with its source."""
    missing = dict[str, None]()
    specs = [task.spec for task in tasks]
    for data in dict.fromkeys(spec.data for spec in specs):
        with _noted(missing):
            open_data(data, "heldout")
            open_data(data, "train")
    for system, run in files_read(specs):
        with _noted(missing):
            system.network_folder(run)
    found = {
        (task.spec.data, spec.metrics, spec.reference): (task.spec.data, spec)
        for task in tasks
        for spec in task.evaluations
        if isinstance(spec, SamplesSpec) and spec.metrics
    }
    for data, spec in found.values():
        with _noted(missing):
            for extractor in by_extractor(spec.metrics, data.source):
                SPACES[extractor].weights()
        if spec.reference is not None:
            with _noted(missing):
                reference_path(spec.reference)
        if data.holds.latents and not os.environ.get(AUTOENCODER):
            where = "stabilityai/sd-vae-ft-ema of the Hugging Face hub"
            missing[f"decoder: image metrics need {where}; give its folder in {AUTOENCODER}"] = None
    return [f"missing: {line}" for line in missing]


@contextlib.contextmanager
def _noted(missing: dict[str, None]) -> Iterator[None]:
    """Add the line of what the block refuses."""
    try:
        yield
    except UserError as error:
        missing[str(error)] = None


def _check_compiler(specs: Sequence[RunSpec]) -> None:
    """Refuse blocks that are to be compiled where nothing compiles."""
    if any(spec.execution.compile == "blocks" for spec in specs) and not has_compiler():
        raise UserError(
            "execution.compile: must be auto or none without a C compiler and Python.h, got blocks."
            " Try installing gcc and python3-dev."
        )


def _check_selections(tasks: Iterable[Task]) -> None:
    """Refuse selections of plugins that keep wrong tokens."""
    for routes, tokens in dict.fromkeys((task.spec.routes, task.spec.tokens) for task in tasks):
        draw_routing([r for r in routes if r.selection not in SELECTIONS.built_in], (2, tokens), 0)


def _check_shares(tasks: Iterable[Task], devices: int) -> None:
    """Refuse batches that the devices of a run cannot share evenly."""
    for batch in dict.fromkeys(task.spec.train.batch for task in tasks):
        if batch % devices:
            near = devices * max(1, round(batch / devices))
            raise UserError(
                f"train.batch: must be divisible by the number of devices ({devices}), got {batch}."
                f" Try train.batch={near}."
            )


def check_references(asked: Iterable[tuple[RunFolder, Iterable[EvaluationSpec]]]) -> None:
    """Refuse another file under the name of a used reference, even if all evaluations are done."""
    compared = {
        spec.reference: folder
        for folder, specs in asked
        for spec in specs
        if isinstance(spec, SamplesSpec) and spec.reference is not None
    }
    for reference, folder in compared.items():
        try:
            file = reference_path(reference)
        except UserError:  # said once it is to be read
            continue
        folder.check_same_reference(reference.name, sha256(file), file)
