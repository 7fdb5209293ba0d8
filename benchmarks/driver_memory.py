"""Does the driver's memory stay flat over many trials?

    python benchmarks/driver_memory.py [--trials 1000] [--json FILE]

Trials that do next to nothing pass through the Ray executor; the resident memory of the driver is
read after the first tenth, the first half and all of them. Ray Tune keeps an object for every trial
(ray#64231); this says how much that is.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tread_lab.config import load
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, decode
from tread_lab.sweep.execution import ray_executor, ray_worker
from tread_lab.sweep.execution.ray_executor import RayExecutor
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report

LIMIT = 30.0  # kB a trial, aimed at


def no_op(worker: ray_worker.Worker) -> Iterator[Report]:
    """Reports of a task that has ended before it began."""
    yield Report(worker.task.run, "completed", 1, 1, 0.0)


class _NoOp(ray_worker.Worker):
    """A worker whose tasks do nothing."""

    def reports(self) -> Iterator[Report]:
        return no_op(self)


def resident() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(count: int) -> dict[str, float]:
    """Memory in MB after a tenth, half and all of `count` trials, and kB a trial in between."""
    base = load.load_experiment("tiny", ["train.steps=1"])
    work = [Task(decode(RunSpec, {**base.run, "seed": seed})) for seed in range(count)]
    marks = {count // 10: 0.0, count // 2: 0.0, count: 0.0}
    ended = 0

    def watch(report: Report) -> None:
        nonlocal ended
        ended += 1
        if ended in marks:
            marks[ended] = resident()

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(ray_executor, "Worker", _NoOp):
        RayExecutor().run(Lab(Path(folder)), work, watch)
    first, last = marks[count // 10], marks[count]
    return {
        **{f"MB after {number} trials": value for number, value in marks.items()},
        "kB a trial": (last - first) / (count - count // 10) * 1e3,
        "seconds a trial": (time.perf_counter() - started) / count,
    }


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.trials)
    for name, value in found.items():
        print(f"{name:<24} {value:8.2f}" + (f"   (aim: {LIMIT:g})" if name == "kB a trial" else ""))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
