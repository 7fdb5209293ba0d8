"""The commands that cost, train and measure runs; their imports are delayed until they run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from tread_lab.cli.options import (
    DONE,
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
from tread_lab.records.lab import Lab

_SLURM = Path(__file__).with_name("slurm.sh")


def sweep(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    plan: Annotated[bool, "print the plan and stop"] = False,
    power: Annotated[bool, "the plan with the smallest gap that 2 to 10 seeds detect"] = False,
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
    from tread_lab.cli.options import resources_of

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


def cost(
    experiment: Annotated[
        str | None, "a base run (default: tiny; b2_imagenet256 with --model)"
    ] = None,
    overrides: Overrides = (),
    *,
    model: Annotated[str | None, "e.g. DiT-XL/2 (default: the model of the experiment)"] = None,
    route: Routes = None,
    rate: Rate = None,
    as_json: AsJson = False,
) -> int:
    """Compute parameters, MACs, FLOPs, speed-up.

    Example: tread-lab cost --route "2->B-4"
    """
    from tread_lab.cli.console import show_pairs
    from tread_lab.cli.options import run_spec
    from tread_lab.config.load import load_experiment
    from tread_lab.cost.training import report, table
    from tread_lab.sweep.plan import with_whole_parents

    if experiment and ("=" in experiment or experiment.startswith("~")):
        overrides, experiment = [experiment, *overrides], None
    lightning = (model or "").startswith("LightningDiT")  # of latents 32x16x16
    of_model = "lightning_xl1_imagenet256" if lightning else "b2_imagenet256"
    name = experiment or (of_model if model else "tiny")
    named_model = [f"model={model}"] if model else []
    loaded = with_whole_parents(load_experiment(name, [*overrides, *named_model]), Lab.at())
    spec = run_spec(loaded, route, rate)
    if as_json:
        print(json.dumps(report(spec), indent=1))
    else:
        show_pairs([("experiment", f"{name}, {spec.tokens} tokens"), *table(spec)])
    return DONE


def slurm(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    nodes: Annotated[int, "nodes of the job (1)"] = 1,
    gpus: Annotated[int, "GPUs of each node; 0: none", {"type": int, "metavar": "N"}],
    time: Annotated[str, "time of the job, as Slurm writes it: 12:00:00"],
    cores: Annotated[int | None, "CPU cores of each node (default: what its runs need)"] = None,
    gpus_per_run: Annotated[
        float | None, "GPUs per run, or a share such as 0.5 (default: 1 where nodes have GPUs)"
    ] = None,
    margin: Annotated[int, "stop so many seconds before the time is up (300)"] = 300,
    resubmit: Annotated[
        bool, "submit a new job each time, where requeueing is not allowed"
    ] = False,
    name: SweepName = None,
    tracker: Tracker = "mlflow",
    cpus: Cpus = 1,
    processes: Processes = 1,
    concurrent: Concurrent = None,
    hang_timeout: HangTimeout = None,
    root: Root = None,
) -> int:
    """Print a sweep's batch file for sbatch; its job starts again until the sweep is complete.

    Example: tread-lab submit slurm route_placement.yaml --nodes 2 --gpus 8 --time 12:00:00
    """
    import shlex
    import sys

    from tread_lab.config.load import find, load_sweep
    from tread_lab.cost.training import cost as cost_of
    from tread_lab.hardware import AMPERE, RunResources
    from tread_lab.sweep.expand import expand

    file_name, sweep, experiment = load_sweep(file, overrides)
    facts = {"device": {"type": "cuda", "precisions": [*AMPERE]}}
    expand(sweep, experiment, facts, lambda spec: cost_of(spec).train_flops)
    lab = Lab.at(root).root
    share = float(gpus > 0) if gpus_per_run is None else gpus_per_run
    resources = RunResources(cpus=cpus, gpus=share, processes=processes)
    runs = max(1, int(gpus / share)) if share else 1
    asked = [
        f"--job-name={name or file_name}",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={cores or runs * resources.cores:g}",
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        f"--time={time}",
        "--no-requeue" if resubmit else "--requeue",
        f"--chdir={Path.cwd()}",
        "--open-mode=append",
    ]
    variables = {
        "python": sys.executable,
        "lab": lab,
        "gpus": gpus,
        "margin": margin,
        "resubmit": "yes" if resubmit else "no",
    }
    options = {
        "executor": "ray",
        "gpus": f"{share:g}",
        "device": None if share else "cpu",
        "name": name,
        "tracker": tracker,
        "cpus": cpus,
        "processes": processes,
        "concurrent": concurrent,
        "hang-timeout": hang_timeout,
        "root": lab,
    }
    driver = ["sweep", str(find(file, "sweeps", "experiments")), *overrides]
    driver += [f"--{key}={value}" for key, value in options.items() if value is not None]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {shlex.quote(word)}" for word in asked),
        "",
        *(f"{key}={shlex.quote(str(value))}" for key, value in variables.items()),
        f"sweep=({shlex.join(driver)})",
        "",
    ]
    print("\n".join(lines) + _SLURM.read_text(), end="")
    return DONE
