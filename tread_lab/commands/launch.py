"""A sweep that is ready to run: its plan, and what carries it out; printed before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tread_lab.commands.options import Sweep
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import hours_text
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.disk import disk_line
from tread_lab.sweep.plan.forecast import forecast
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.resources import RunResources
from tread_lab.sweep.task import Task
from tread_lab.terminal.console import show_lines
from tread_lab.terminal.plan import hours_lines, show_plan


@dataclass(frozen=True)
class Launch:
    """A sweep that is ready to run.

    Attributes:
        options: as typed.
        begun, open_tasks: the tasks so far, and those with something left to do.
    """

    options: Sweep
    lab: Lab
    plan: Plan
    begun: Sequence[Task]
    open_tasks: Sequence[Task]
    resources: RunResources
    devices: Devices

    @property
    def whole(self) -> set[str]:
        """The runs that were complete, with every file as it was written."""
        return {task.run for task in self.begun} - {task.run for task in self.open_tasks}


def show(launch: Launch, out: Console) -> None:
    """Print what will run and what it will take; on stdout where only the plan is asked for."""
    plan, lab, slots = launch.plan, launch.lab, launch.devices.slots
    remaining = forecast(lab, launch.open_tasks, launch.devices)
    show_plan(out, plan, lab, remaining, slots)
    if launch.open_tasks:
        show_lines(out, [disk_line(launch.open_tasks, lab)])
    if launch.options.plan:
        show_lines(out, hours_lines(plan, remaining))
    if limit := hours_text(lab.sweep(plan.name), plan.hours):
        show_lines(out, [f"hours: {limit}"])
