"""A run of seconds, plans of its variations, and how tasks are carried out in this process."""

from __future__ import annotations

from typing import Any

from tread_lab.config import RunSpec, decode, encode
from tread_lab.config.sweep import Experiment, SweepSpec
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import Plan, make_plan
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.runner import InlineRunner
from tread_lab.sweep.task import ListQueue, Task

SMALL = {"depth": 4, "width": 16, "heads": 2}
DEEP = {"depth": 8, "width": 16, "heads": 2}
HELDOUT = {"heldout_loss": {"images": 8, "levels": 2}}


def tiny(*, steps: int = 20, execution: dict[str, Any] | None = None, **more: Any) -> RunSpec:
    """A run of seconds on the embedded data: `tiny(routes=["1->2"], steps=20)`."""
    train = {"steps": steps, "batch": 8, "lr": 3e-3, "warmup": 2, "schedule": "sqrt_decay"}
    train |= {"ema": {"halflife": 0.1}, **more.pop("train", {})}
    execution = {"log_every": 5, "checkpoint_every": 10, **(execution or {})}
    tree = {"model": SMALL, "precision": "fp32", "train": train, "execution": execution}
    return decode(RunSpec, {**tree, **more})


def plan_of(run: RunSpec, name: str, **sweep: Any) -> Plan:
    """A sweep over a run, which a small evaluation measures."""
    tree = {"experiment": "tiny", "evaluate": [HELDOUT], **sweep}
    return make_plan(name, decode(SweepSpec, tree), Experiment(name="tiny", run=encode(run)))


def carry_out(lab: Lab, *tasks: Task) -> list[Report]:
    """Carry tasks out on the CPU, one after the other; give their reports."""
    reports: list[Report] = []
    InlineRunner(device="cpu").run(lab, ListQueue(tasks), reports.append)
    return reports
