"""Runs that nothing has trained, and a runner that makes up results in any order of ending."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tread_lab.config import RunSpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.sweep.task import ListQueue, Task, TaskQueue


def ended_run(lab: Lab, spec: RunSpec, state: str = RunState.COMPLETED, **facts: Any) -> RunFolder:
    """The folder of a run that has ended so, of which no more is on record."""
    folder = lab.run_of(spec)
    folder.create(spec)
    folder.finish(state, **facts)
    return folder


def loss_of(spec: RunSpec) -> float:
    """The made-up result of a run: best at 2->5."""
    if not spec.routes:
        return 1.0
    start, end = int(spec.routes[0].start), int(spec.routes[0].end)
    return 1.0 + 0.01 * ((start - 2) ** 2 + (end - 5) ** 2) + 0.001 * spec.seed


@dataclass
class Pretender:
    """Carries tasks out by writing their results; `order` picks which of those running ends."""

    lab: Lab
    slots: int = 1
    order: random.Random | None = None
    most: int = 10_000
    diverges: str = ""
    done: list[Task] = field(default_factory=list)

    def run(self, work: Sequence[Task] | TaskQueue) -> None:
        queue = ListQueue(work) if isinstance(work, Sequence) else work
        running: list[Task] = []
        while len(self.done) < self.most:
            while len(running) < self.slots and (task := queue.next()) is not None:
                running.append(task)
            if not running:
                assert queue.done
                return
            task = running.pop(self.order.randrange(len(running)) if self.order else 0)
            self.finish(task)
            queue.ended(task)

    def finish(self, task: Task) -> None:
        self.done.append(task)
        if task.spec.routes and str(task.spec.routes[0]).startswith(self.diverges or "never"):
            ended_run(self.lab, task.spec, RunState.DIVERGED, step=3, reason="made up")
            return
        if task.rung is not None:
            folder = self.lab.run(task.run)
            folder.create(task.spec)
            folder.log_path.touch()
            folder.checkpoints.mkdir(exist_ok=True)
            (folder.checkpoints / f"step-{task.until:08d}-{0:016x}.safetensors").touch()
            folder.evaluation(task.rung).write(task.rung, {"heldout/loss": loss_of(task.spec)})
            return
        folder = ended_run(self.lab, task.spec, step=task.until, metrics={"cost/train_flops": 1.0})
        for spec in task.evaluations:
            folder.evaluation(spec).write(spec, {"heldout/loss": loss_of(task.spec)})
