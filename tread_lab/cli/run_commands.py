"""The commands that train and measure runs: their options; their modules import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from tread_lab.cli.options import (
    AsJson,
    Concurrent,
    Cpus,
    Device,
    GpusTogether,
    HangTimeout,
    Overrides,
    Processes,
    ProcessesTogether,
    Rate,
    Root,
    Routes,
    SweepFile,
    SweepName,
    Threads,
    Tracker,
)


def sweep(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    plan: Annotated[bool, "print the plan and stop"] = False,
    power: Annotated[bool, "with --plan: the smallest gap that 2 to 10 seeds can show"] = False,
    retry_failed: Annotated[bool, "run all failed runs again"] = False,
    executor: Annotated[Literal["ray", "inline"], "what carries the runs out (ray)"] = "ray",
    gpus: Annotated[
        float | None, "GPUs per run, or a share such as 0.5 (default: 1 if there is a GPU)"
    ] = None,
    name: SweepName = None,
    tracker: Tracker = "mlflow",
    cpus: Cpus = 1,
    processes: Processes = 1,
    concurrent: Concurrent = None,
    device: Device = None,
    hang_timeout: HangTimeout = None,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Plan and run a sweep file.

    Example: tread-lab sweep route_placement.yaml --plan
    """
    from tread_lab.cli.launch import launch
    from tread_lab.cli.resolve import resources_of

    return launch(
        file,
        overrides,
        resources_of(device, cpus, gpus, concurrent, processes, ray=executor == "ray"),
        only_plan=plan or power,
        power=power,
        retry_failed=retry_failed,
        executor=executor,
        name=name,
        tracker=tracker,
        hang_timeout=hang_timeout,
        as_json=as_json,
        root=root,
    )


def train(
    experiment: Annotated[str, "a path, or the name of a shipped file or of one in ./experiments"],
    overrides: Overrides = (),
    *,
    retry_failed: Annotated[bool, "run it again if it has failed"] = False,
    route: Routes = None,
    rate: Rate = None,
    device: Device = None,
    threads: Threads = 1,
    gpus: GpusTogether = None,
    processes: ProcessesTogether = None,
    hang_timeout: HangTimeout = None,
    root: Root = None,
) -> int:
    """Train one run, its parents first, and measure it.

    Example: tread-lab train tiny --route "2->8" train.steps=500
    """
    from tread_lab.cli.train_run import train_run

    return train_run(
        experiment,
        overrides,
        retry_failed=retry_failed,
        route=route,
        rate=rate,
        device=device,
        threads=threads,
        gpus=gpus,
        processes=processes,
        hang_timeout=hang_timeout,
        root=root,
    )


def evaluate(
    name: Annotated[str, "a sweep, or the start of a run's signature"],
    evaluations: Annotated[
        Sequence[str],
        'e.g. fd@5k "fd@1k at 250, 50%%, end" "{heldout_loss: {images: 64}}" (default: the'
        " evaluations of the plan); sampler.steps=20 sampler.guidance=2 say how images are"
        " generated",
        {"nargs": "*"},
    ] = (),
    *,
    reference: Annotated[
        str | None,
        "statistics to compare with, e.g. fid@50k --reference imagenet256: a name, an .npz as"
        " ADM's evaluator reads it, or heldout (default: as measured so far)",
        {"metavar": "NAME|FILE"},
    ] = None,
    device: Device = None,
    threads: Threads = 1,
    gpus: GpusTogether = None,
    processes: ProcessesTogether = None,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Measure trained runs.

    Example: tread-lab evaluate route_placement fd@5k
    """
    from tread_lab.cli.evaluate_runs import evaluate_runs

    return evaluate_runs(
        name,
        evaluations,
        reference,
        device=device,
        threads=threads,
        gpus=gpus,
        processes=processes,
        as_json=as_json,
        root=root,
    )
