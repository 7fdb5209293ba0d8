"""Ray worker: a reused process that carries out tasks one by one and reports every second."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import torch
from ray import tune

from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.execution.ray_cluster import alive_nodes
from tread_lab.sweep.execution.ray_probe import take
from tread_lab.sweep.trial.attempt import NodeMismatch, WorkerInfo
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import UNDER_WAY, Report, run_trial
from tread_lab.sweep.trial.watchdog import longest_silence, watched

MISTAKE, UNAVAILABLE = "mistake", "unavailable"  # phases of tasks that no attempt can mend
REFUSED = "refused"  # phase of a task that another node may carry out
_REPORT_SECONDS = 1.0  # how long a worker trains between two reports


@dataclass(frozen=True, repr=False)
class SentTask:
    """A task on its way to a worker; Ray names trials by the text of their configuration.

    Attributes:
        expected: what the worker's node must have as the driver has it, see `WorkerInfo`.
        place: what the worker gets, and on which nodes.
    """

    task: Task
    expected: Mapping[str, str] = field(default_factory=dict)
    place: tune.PlacementGroupFactory | None = None

    def __str__(self) -> str:
        return self.task.run


def place(resources: Mapping[str, float], refusing: Collection[str]) -> tune.PlacementGroupFactory:
    """Return the place of a run with such resources, on any one node but the refusing ones.

    A run on several devices has all of them in it, and its worker starts the other processes.
    """
    bundles = [{"CPU": resources["cpu"], "GPU": resources["gpu"]}]
    if not refusing:
        return tune.PlacementGroupFactory(bundles)
    others = {"ray.io/node-id": f"!in({','.join(sorted(refusing))})"}
    return tune.PlacementGroupFactory(bundles, bundle_label_selector=[others])


class Worker(tune.Trainable):
    """A process that takes one task after another; each step is a second or so of `run_trial`."""

    _reports: Iterator[Report] | None = None

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        sent: SentTask = config["task"]
        return sent.place

    def setup(
        self,
        config: dict[str, Any],
        lab: Lab,
        device: str,
        threads: int,
        worker: WorkerInfo,
        early: EarlyStopping | None,
    ) -> None:
        torch.set_num_threads(threads)
        self.lab, self.device, self.early = lab, device, early
        self.worker = replace(worker, node=ray.get_runtime_context().get_node_id())
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        sent: SentTask = new_config["task"]
        self.task, self.sent = sent.task, sent
        self.rungs = self.early.rungs(self.task.run) if self.early else ()
        self._reports = self.reports()
        return True

    def reports(self) -> Iterator[Report]:
        """Yield the task's reports; an error that no further attempt can mend is the last one."""
        report = Report(self.task.run, "train", 0, self.task.spec.train.steps, float("nan"))
        try:
            worker = replace(self.worker, expected=self.sent.expected, alive=alive_nodes())
            yield from run_trial(self.lab, self.task, take(self.device), worker)
        except NodeMismatch as error:
            yield replace(report, phase=REFUSED, note=str(error))
        except Unavailable as error:
            yield replace(report, phase=UNAVAILABLE, note=str(error))
        except UserError as error:
            yield replace(report, phase=MISTAKE, note=str(error))

    def step(self) -> dict[str, Any]:
        """Go on for a second, or up to a step at which the run is judged; return the last report.

        At such a step the result holds the gap by which early stopping judges the run.
        """
        assert self._reports is not None
        until, last = time.monotonic() + _REPORT_SECONDS, None
        with watched():
            for report in self._reports:
                last = report
                if time.monotonic() > until or self._is_judged(report):
                    break
        if last is None:
            return {"done": True}
        limit = longest_silence(self.worker.hang_timeout)
        result = {"done": last.phase not in UNDER_WAY, **vars(last), "limit": limit}
        if last.phase == REFUSED:
            result["node"] = self.worker.node
        if self.early is not None and self._is_judged(last):
            gap = self.early.gap(last.run, last.step)
            result |= {} if gap is None else {RUNG: last.step, GAP: gap}
        return result

    def _is_judged(self, report: Report) -> bool:
        return report.phase == "train" and report.step in self.rungs

    def cleanup(self) -> None:
        if self._reports is not None:
            self._reports.close()  # type: ignore[attr-defined]
            self._reports = None
