"""One evaluation of a run: its spec, its numbers (written last), its arrays and pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.config.decode import encode
from tread_lab.config.evaluation import EvaluationSpec
from tread_lab.records.durable import read_json, write_json

Tree = Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationFolder:
    """The folder of one evaluation.

    Attributes:
        end: the step at which its run has ended; what is recorded as measured at the end, but with
            earlier weights, is not complete.
    """

    path: Path
    end: int | None = None

    def write(self, spec: EvaluationSpec, metrics: dict[str, float], **facts: Any) -> None:
        write_json(self.path / "metrics.json", {"spec": encode(spec), "metrics": metrics, **facts})
        os.utime(self.path.parent)  # readers go by its time, which a file below it leaves

    def read(self) -> dict[str, Any] | None:
        """Return `{spec, metrics, ...}`, `None` while the evaluation is not complete."""
        tree = read_json(self.path / "metrics.json")
        if tree is None or (self.end is not None and is_former_end(tree, self.end)):
            return None
        return dict(tree)

    @property
    def step(self) -> int | None:
        """The step of the run that it measures, `None` for its end."""
        return tree["spec"].get("step") if (tree := self.read()) else None

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return self.read() is not None


def last_step(tree: Mapping[str, Any]) -> int | None:
    """Return the step of the last weights that an evaluation was made with; `None` where it is not
    on record, or where a guidance names the steps of all its branches."""
    step: int | None = tree.get("step")
    guidance = (tree.get("spec", {}).get("sampler") or {}).get("guidance")
    if not isinstance(guidance, Mapping):
        return step
    branches = (guidance.get(branch) for branch in ("strong", "weak"))
    named = [branch.get("step") if isinstance(branch, Mapping) else None for branch in branches]
    if named[0] is None:  # the step on record is that of the first branch
        return step
    steps = (int(step) for step in tree.get("weights", {}) if step.isdecimal())
    return max((step for step in steps if step not in named), default=None)


def is_former_end(tree: Mapping[str, Any], end: int) -> bool:
    """Return whether a record is of weights that were a run's last ones before its end."""
    return tree["spec"].get("step") is None and last_step(tree) not in (None, end)
