"""How good is the predicted time? Sweeps of a few shapes and sizes: predicted, measured, ratio.

    python benchmarks/predicted_time.py [--steps 60] [--executor ray] [--json FILE] [SHAPE ...]
    python benchmarks/predicted_time.py --sizes 32 96 192 [--record FILE]

Predicted is what `tread-lab sweep --plan` says at the start, measured the wall time of carrying the
plan out, Ray's start included. Predicted are the seconds of an idle machine.

`--sizes` takes networks of these widths instead: two runs are predicted from a few steps, then two
others from those. `--record` keeps the step times of all four.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tread_lab.config import load as config
from tread_lab.engine.device import model
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import STEP_SECONDS
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
FIRST, OTHERS = "{start:2,end:8}", "{start:[0,4],end:8}"
STEPS = {32: 60, 96: 30}  # of each run by width; 12 of wider ones


def planned(overrides: Sequence[str], steps: int) -> Plan:
    """The shipped placement sweep with few steps."""
    settings = [*overrides, f"train.steps={steps}"]
    _, sweep, experiment = config.load_sweep("route_placement", settings)
    return make_plan("timed", sweep, experiment)


def timed(plan: Plan, lab: Lab, executor: str, slots: int) -> dict[str, Any]:
    """Predicted and measured seconds of one plan, and how the machine's speed has changed."""
    todo = plan.open_tasks(lab)
    here, start = Devices.here("cpu", slots=slots), EXECUTORS[executor].start_seconds
    before = forecast(lab, todo, here, start=start)
    predicted = before.total(todo)
    assert predicted.seconds is not None
    started = time.perf_counter()
    if executor == "ray":
        from tread_lab.sweep.execution.ray_executor import RayExecutor

        RayExecutor().run(lab, todo, lambda report: None)
    else:
        InlineExecutor().run(lab, todo, lambda report: None)
    measured = time.perf_counter() - started
    ratio = measured / predicted.seconds
    seconds = {"predicted s": predicted.seconds, "measured s": measured, "ratio": ratio}
    return {**seconds, "source": predicted.source}


def shapes(options: argparse.Namespace, slots: int) -> dict[str, dict[str, Any]]:
    """Time the sweeps of several shapes."""
    found = {}
    for name, overrides in SHAPES.items():
        if options.shapes and not any(part in name for part in options.shapes):
            continue
        plan = planned(overrides, options.steps)
        with tempfile.TemporaryDirectory() as folder:
            found[name] = timed(plan, Lab(Path(folder)), options.executor, slots)
        show(name, found[name])
    return found


def sizes(widths: Sequence[int], record: Path | None) -> dict[str, dict[str, Any]]:
    """Predict runs of each width from a few steps, then others from those runs."""
    found: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for width in widths:
        shape = [f"model={{depth:12,width:{width},heads:2,patch:2}}", "execution.log_every=2"]
        shape.append("evaluate=[{heldout_loss:{images:64}}]")
        with tempfile.TemporaryDirectory() as folder:
            lab = Lab(Path(folder))
            for routes in (FIRST, OTHERS):
                plan = planned([*shape, f"axes={{route:{routes}}}"], STEPS.get(width, 12))
                name = f"width {width}, {len(plan.open_tasks(lab))} runs"
                found[name] = timed(plan, lab, "inline", 1)
                show(name, found[name])
            rows += [row | {"width": width} for row in recorded(plan, lab)]
    if record is not None:
        device = {"device": model(Devices.here("cpu").local), "threads": 1}
        record.write_text(json.dumps({**device, "batch": 16, "runs": rows}, indent=1) + "\n")
    return found


def recorded(plan: Plan, lab: Lab) -> list[dict[str, Any]]:
    """Return the routes and the median step of every run of a lab."""
    rows = []
    for path in sorted(lab.root.glob("runs/*")):
        folder = lab.run(path.name)
        routes = [[int(r.start), int(r.end), r.rate] for r in folder.spec().routes]
        seconds = (folder.result() or {})["metrics"][STEP_SECONDS]
        rows.append({"route": routes[0] if routes else None, "step_seconds": round(seconds, 5)})
    return sorted(rows, key=lambda row: row["step_seconds"])


def show(name: str, row: dict[str, Any]) -> None:
    """Print a line."""
    values = (f"{k} {v:.3g}" if isinstance(v, float) else str(v) for k, v in row.items())
    print(f"{name:<36} {', '.join(values)} (aim: {1 - AIM:g} to {1 + AIM:g})", flush=True)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", help="parts of their names; all where absent")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--executor", choices=("ray", "inline"), default="ray")
    parser.add_argument("--sizes", nargs="+", type=int, help="widths of networks of 12 blocks")
    parser.add_argument("--record", type=Path, help="JSON of the step times of all sizes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    slots = (os.cpu_count() or 1) if options.executor == "ray" else 1
    found = sizes(options.sizes, options.record) if options.sizes else shapes(options, slots)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
