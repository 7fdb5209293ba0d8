"""How good is the predicted time? Sweeps of a few shapes: predicted, measured, ratio.

    python benchmarks/predicted_time.py [--steps 60] [--executor ray] [--json FILE] [SHAPE ...]

Predicted is what `tread-lab sweep --plan` says at the start, measured the wall time of carrying the
plan out, Ray's start included. Load that comes or goes in between is not predicted: for each sweep
the calibration is made again afterwards, and `load` is how much slower the machine is then.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tread_lab.config import load as config
from tread_lab.records.lab import Lab
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.execution.executors import EXECUTORS
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.forecast import forecast
from tread_lab.sweep.plan.plan import Plan, make_plan

AIM = 0.25
SHAPES = {
    "placements, held-out loss": ["evaluate=[heldout_loss]"],
    "three placements, all evaluations": [
        "axes={route:{start:0,end:[2,6,10]}}",
        "evaluate=[heldout_loss,layer_similarity,fd@1k]",
    ],
    "seeds of one placement": [
        "axes={route:{start:0,end:8}}",
        "seeds=[0,1,2]",
        "evaluate=[{heldout_loss:{images:128}}]",
    ],
}


def planned(overrides: list[str], steps: int) -> Plan:
    """The shipped placement sweep with few steps."""
    settings = [*overrides, f"train.steps={steps}"]
    _, sweep, experiment = config.load_sweep("route_placement", settings)
    return make_plan("timed", sweep, experiment)


def timed(plan: Plan, executor: str, slots: int) -> dict[str, float]:
    """Predicted and measured seconds of one plan, and how the machine's speed has changed."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        todo = plan.open_tasks(lab)
        here, start = Devices.here("cpu", slots=slots), EXECUTORS[executor].start_seconds
        before = forecast(lab, todo, here, start=start)
        predicted = before.total(todo).seconds
        assert predicted is not None
        started = time.perf_counter()
        if executor == "ray":
            from tread_lab.sweep.execution.ray_executor import RayExecutor

            RayExecutor().run(lab, todo, lambda report: None)
        else:
            InlineExecutor().run(lab, todo, lambda report: None)
        measured = time.perf_counter() - started
    after, spec = forecast(lab, todo, here, start=start), todo[0].spec
    load = after.training(spec) / before.training(spec)
    ratio = measured / predicted
    return {"predicted s": predicted, "measured s": measured, "ratio": ratio, "load": load}


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help="parts of their names; all where absent")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--executor", choices=("ray", "inline"), default="ray")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    slots = (os.cpu_count() or 1) if options.executor == "ray" else 1
    found = {}
    for name, overrides in SHAPES.items():
        if options.shapes and not any(part in name for part in options.shapes):
            continue
        found[name] = timed(planned(overrides, options.steps), options.executor, slots)
        values = ", ".join(f"{key} {value:.3g}" for key, value in found[name].items())
        print(f"{name:<36} {values} (aim: {1 - AIM:g} to {1 + AIM:g})", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
