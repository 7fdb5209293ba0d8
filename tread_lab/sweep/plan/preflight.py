"""Preflight checks: refuse before anything is written what would fail."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tread_lab.data.autoencoder import VARIABLE as AUTOENCODER
from tread_lab.data.deviation import check_deviation
from tread_lab.data.scaled import absent_labels
from tread_lab.data.source import Samples, open_data
from tread_lab.engine.assemble import check_start
from tread_lab.engine.compiled import no_compiler
from tread_lab.engine.cost import memory
from tread_lab.engine.device import CONTEXT
from tread_lab.engine.measurable import check_measurable, check_probes, check_samplers
from tread_lab.engine.system import files_read
from tread_lab.metrics.extraction import SPACES
from tread_lab.metrics.fidelity import sha256
from tread_lab.metrics.reference_file import reference_path
from tread_lab.records.run_folder import RunFolder
from tread_lab.routing.select import draw_routing
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import (
    EvaluationSpec,
    SamplesSpec,
)
from tread_lab.specs.metrics import by_extractor
from tread_lab.specs.routes import SELECTIONS
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import amount, counted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.task import Task


def preflight(tasks: Sequence[Task], devices: Devices) -> list[str]:
    """Check every distinct requirement of `tasks` once, on the devices where they will run.

    Returns:
        a line for each thing that is no error, and that a reader of the numbers should know.

    Raises:
        UserError: a device is not here or lacks a precision or memory, or as `check_files`.
    """
    check_arithmetic(tasks, devices)
    _check_shares(tasks, devices.per_run)
    check_memory(tasks, devices)
    warnings = check_files(tasks)
    return [*_check_compiler([task.spec for task in tasks], devices.type), *warnings]


def check_files(tasks: Sequence[Task]) -> list[str]:
    """Check once each file that `tasks` read, and that it fits what they ask of it.

    Returns:
        a line for each thing that is no error, and that a reader of the numbers should know.

    Raises:
        UserError: data cannot be read or are scaled wrongly; an evaluation asks for more samples
            than are held out; a metric lacks weights, a decoder or a fitting reference; held-out
            samples are no images when they are decoded; an encoder is not here; what a run starts
            from does not fit.
    """
    specs = [task.spec for task in tasks]
    opened = {
        data: (open_data(data, "train"), open_data(data, "heldout"))
        for data in dict.fromkeys(spec.data for spec in specs)
    }
    for spec in {(spec.data, spec.process): spec for spec in specs}.values():
        check_deviation(spec, opened[spec.data][0])
    for spec in {(spec.init_from, spec.network, spec.process): spec for spec in specs}.values():
        check_start(spec)
    asked = ((task.spec, evaluation) for task in tasks for evaluation in task.evaluations)
    absent = [*_absent_classes(specs, {data: train for data, (train, _) in opened.items()})]
    check_measurable(asked, specs, opened)
    return absent


def check_planned(tasks: Sequence[Task]) -> list[str]:
    """Refuse in a plan what data that are here do not allow to measure; it is made without, too.

    Returns:
        a line for each file that is missing, with its source, and for each thing that is no error,
        and that a reader of the numbers should know.
    """
    train, heldout = dict[DataSpec, Samples](), dict[DataSpec, Samples]()
    missing = dict[str, None]()
    for data in dict.fromkeys(task.spec.data for task in tasks):
        with _noted(missing):
            heldout[data] = open_data(data, "heldout")
            train[data] = open_data(data, "train")
    specs = [task.spec for task in tasks]
    for system, run in files_read(specs):
        with _noted(missing):
            system.network_folder(run)
    asked = [(task.spec, evaluation) for task in tasks for evaluation in task.evaluations]
    for data, spec in _with_metrics(asked):
        with _noted(missing):
            for extractor in by_extractor(spec.metrics, data.source):
                SPACES[extractor].weights()
        if spec.reference is not None:
            with _noted(missing):
                reference_path(spec.reference)
        if data.holds.latents and not os.environ.get(AUTOENCODER):
            where = "stabilityai/sd-vae-ft-ema of the Hugging Face hub"
            missing[f"decoder: image metrics need {where}; give its folder in {AUTOENCODER}"] = None
    check_probes(asked, heldout)
    return [*(f"missing: {line}" for line in missing), *_absent_classes(specs, train)]


@contextlib.contextmanager
def _noted(missing: dict[str, None]) -> Iterator[None]:
    """Add the line of what the block refuses."""
    try:
        yield
    except UserError as error:
        missing[str(error)] = None


def _with_metrics(
    asked: Iterable[tuple[RunSpec, EvaluationSpec]],
) -> Iterable[tuple[DataSpec, SamplesSpec]]:
    """Return the distinct evaluations of images, with the data of their runs."""
    found = {
        (run.data, spec.metrics, spec.reference): (run.data, spec)
        for run, spec in asked
        if isinstance(spec, SamplesSpec) and spec.metrics
    }
    return found.values()


def _absent_classes(specs: Iterable[RunSpec], train: Mapping[DataSpec, Samples]) -> Iterator[str]:
    """Yield a line about data without a training sample of some class, which runs draw all the
    same."""
    for data in dict.fromkeys(spec.data for spec in specs if spec.condition is None):
        labels_N = train[data].labels_N.numpy() if data in train else None
        if labels_N is not None and (absent := absent_labels(labels_N, data.classes)):
            yield f"data: no training sample has the label {absent}; it is drawn and never trained"


def _check_compiler(specs: Sequence[RunSpec], device_type: str) -> Iterator[str]:
    """Refuse blocks that are to be compiled where nothing compiles; yield a line about `auto`."""
    asked = {spec.execution.compile for spec in specs}
    if "blocks" in asked and (why := no_compiler()) is not None:
        raise UserError(f"execution.compile: blocks needs a C compiler: {why}; install gcc")
    if "auto" in asked and device_type == "cuda" and (why := no_compiler()) is not None:
        yield f"blocks run eagerly, which takes 1.4 times as long on an H200: {why}; install gcc"


def check_selections(tasks: Iterable[Task]) -> None:
    """Refuse selections of plugins that keep wrong tokens."""
    for routes, tokens in dict.fromkeys((task.spec.routes, task.spec.tokens) for task in tasks):
        draw_routing([r for r in routes if r.selection not in SELECTIONS.built_in], (2, tokens), 0)


def check_arithmetic(tasks: Sequence[Task], devices: Devices) -> None:
    """Refuse precisions that a kind of device lacks, in training and in sampling."""
    evaluations = (evaluation for task in tasks for evaluation in task.evaluations)
    samplers = (spec.sampler.precision for spec in evaluations if isinstance(spec, SamplesSpec))
    for precision in dict.fromkeys([*(task.spec.precision for task in tasks), *samplers]):
        for kind in devices.kinds:
            if precision not in kind.precisions:
                raise UserError(
                    f"precision: {kind.type} ({kind.name}) has no {precision}; choose one of"
                    f" {', '.join(devices.precisions)}; `where: precision in device.precisions`"
                    " leaves it out of a sweep"
                )


def _check_shares(tasks: Iterable[Task], devices: int) -> None:
    """Refuse batches that the devices of a run cannot share evenly."""
    for batch in dict.fromkeys(task.spec.train.batch for task in tasks):
        if batch % devices:
            raise UserError(
                f"train.batch: {batch} images are no equal shares for {devices} devices; make it a"
                f" multiple such as {devices * max(1, round(batch / devices))}, or take another"
                " number of devices"
            )


def check_memory(tasks: Sequence[Task], devices: Devices) -> None:
    """Refuse a run that does not fit its device, and runs that share it if they do not."""
    for spec in {task.spec for task in tasks}:
        for kind in devices.kinds:
            label = f"{kind.type} ({kind.name})"
            memory.check_memory(spec, kind.type, label, kind.memory, devices.per_run)
    prices = (memory.cost_on(task.spec, devices.type) for task in tasks)
    need = max((price.memory_bytes for price in prices), default=0)
    capacity, runs = devices.memory, devices.runs_per_device
    context = CONTEXT if devices.type == "cuda" else 0  # each process has one, which runs do not
    fits = (capacity + context) // (need + context) if need + context else runs
    if runs > 1 and runs > fits:
        raise UserError(
            f"{runs} runs at once on one {devices.type} device need about"
            f" {amount(runs * need + (runs - 1) * context)}, and it has {amount(capacity)}:"
            f" room for {counted(max(1, fits), 'run')};"
            " give each run a larger share by --gpus, or fewer runs by --concurrent"
        )


def check_sampled(tasks: Sequence[Task]) -> None:
    """Refuse samplers of tasks of one plan, as `check_samplers`."""
    asked = ((task.spec, evaluation) for task in tasks for evaluation in task.evaluations)
    for task in tasks[:1]:
        check_samplers(asked, task.defaults)


def check_references(asked: Iterable[tuple[RunFolder, Iterable[EvaluationSpec]]]) -> None:
    """Refuse another file under a used name of a reference, even where all is measured: the numbers
    on record are those of the first file."""
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
