"""What a trial costs beside its own work under the Ray executor, and how busy it keeps the workers.

    python benchmarks/executor.py [--trials 12] [--steps 150] [--json FILE]

Overhead is the slope of wall time over the number of trials that do next to nothing, beside the
same trials as plain function trainables. Efficiency is useful seconds (training and measuring,
timed inside the trials) over wall seconds times workers, with start-up and without.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import ray
from ray import tune

from tread_lab.config import load
from tread_lab.records.lab import Lab
from tread_lab.specs import HeldoutSpec, RunSpec, decode
from tread_lab.sweep.execution.ray_cluster import cluster
from tread_lab.sweep.execution.ray_executor import RayExecutor
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report, run_trial


def tasks(count: int, steps: int, *, depth: int = 12) -> list[Task]:
    """Distinct runs of `steps` steps, one seed each."""
    base = load.load_experiment("tiny", [f"train.steps={steps}", f"model.depth={depth}"])
    specs = [decode(RunSpec, {**base.run, "seed": seed}) for seed in range(count)]
    return [Task(spec, (HeldoutSpec(images=8, levels=1),)) for spec in specs]


def ours(work: list[Task]) -> float:
    """Wall seconds of the reused workers."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        RayExecutor().run(Lab(Path(folder)), work, lambda report: None)
        return time.perf_counter() - started


def naive(work: list[Task]) -> float:
    """Wall seconds of the same tasks as function trainables, a process each."""
    with tempfile.TemporaryDirectory() as folder:

        def trainable(settings: dict[str, int]) -> None:
            import torch

            torch.set_num_threads(1)
            for _ in run_trial(Lab(Path(folder)), work[settings["task"]], torch.device("cpu")):
                pass
            tune.report({"done": True})

        started = time.perf_counter()
        space = {"task": tune.grid_search(list(range(len(work))))}
        place = tune.RunConfig(storage_path=folder, verbose=0)
        tune.Tuner(trainable, param_space=space, run_config=place).fit()
        return time.perf_counter() - started


def overhead(count: int) -> dict[str, float]:
    """Seconds a trial beyond its work, as the slope between 2 and 2 + `count` trials."""
    with cluster():
        slots = int(ray.cluster_resources()["CPU"])
        results = {}
        for name, run in (("reused workers", ours), ("function trainables", naive)):
            few, many = run(tasks(2, 1, depth=2)), run(tasks(2 + count, 1, depth=2))
            results[f"{name}: seconds a trial"] = (many - few) / count
            results[f"{name}: first two trials"] = few
        return {**results, "workers": slots}


def efficiency(count: int, steps: int) -> dict[str, float]:
    """Useful seconds over wall seconds times workers."""
    seen: dict[str, list[float]] = {}

    def watch(report: Report) -> None:
        seen.setdefault(report.run, []).append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder, cluster():
        lab, work = Lab(Path(folder)), tasks(count, steps)
        slots, started = int(ray.cluster_resources()["CPU"]), time.perf_counter()
        RayExecutor().run(lab, work, watch)
        wall = time.perf_counter() - started
        useful = sum(_useful(lab, task) for task in work)
    first = min(times[0] for times in seen.values())
    running = max(times[-1] for times in seen.values()) - first + 1.0  # a report comes each second
    return {
        "trials": count,
        "seconds a trial": useful / count,
        "efficiency with start-up": useful / (wall * slots),
        "efficiency once running": useful / (running * slots),
    }


def _useful(lab: Lab, task: Task) -> float:
    folder = lab.run(task.run)
    result = folder.result() or {}
    measuring = sum((e.read() or {}).get("seconds", 0.0) for e in folder.evaluations())
    return float(result["metrics"]["cost/train_seconds"] + measuring)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = overhead(options.trials) | efficiency(options.trials, options.steps)
    for name, value in found.items():
        print(f"{name:<42} {value:8.3f}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
