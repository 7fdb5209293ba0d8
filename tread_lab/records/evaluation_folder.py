"""One evaluation of a run: its spec, its numbers (written last), its arrays and pictures."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.checksums import (
    NUMBER,
    Kind,
    are_checksums,
    changed_files,
    file_checksums,
    fits,
    fits_all,
)
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.metric_names import heldout_named
from tread_lab.specs.decode import encode
from tread_lab.specs.evaluation import EvaluationSpec
from tread_lab.specs.metrics import METRICS

Tree = Mapping[str, Any]
_NONE = type(None)
_MEASURED: Mapping[str, Kind] = {
    "metrics": (list, _NONE), "reference": (dict, _NONE), "sampler": (dict, _NONE),
    "step": (int, _NONE),
}  # fmt: skip


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
        beside = (path for path in self.path.glob("[!.]*") if path.name != "metrics.json")
        arrays = file_checksums(beside)
        tree = {"spec": encode(spec), "metrics": metrics, **facts, "files": arrays}
        write_json(self.path / "metrics.json", tree)
        os.utime(self.path.parent)  # readers go by its time, which a file below it leaves

    def read(self) -> dict[str, Any] | None:
        """Return `{spec, metrics, ...}`, `None` while the evaluation is not complete."""
        tree = read_json(self.path / "metrics.json")
        if not _is_evaluation(tree) or (self.end is not None and is_former_end(tree, self.end)):
            return None
        return _renamed(tree)

    @property
    def step(self) -> int | None:
        """The step of the run that it measures, `None` for its end."""
        return tree["spec"].get("step") if (tree := self.read()) else None

    @property
    def done(self) -> bool:
        """Whether it is complete and its files are as they were written."""
        tree = self.read()
        return tree is not None and not changed_files(self.path, tree.get("files", {}))


def by_guidance(tree: Mapping[str, Any]) -> tuple[bool, float, float]:
    """Return by what recorded samples are ordered: metrics first, less guidance, more images."""
    guidance = tree["sampler"].get("guidance")
    weight = guidance.get("weight") if isinstance(guidance, Mapping) else guidance
    known = weight if isinstance(weight, int | float) else 1.0
    count = tree.get("count")
    return not tree.get("metrics"), abs(known - 1), -count if isinstance(count, int) else 0


def sampled_with(
    trees: Sequence[Tree], sampler: Tree | None = None, reference: Tree | None = None
) -> tuple[Tree, Tree | None]:
    """Return the sampler of the first of these evaluations, and the reference of the first that
    compares with one (`None` for held-out images); what is given where none says it."""
    samplers = (tree["sampler"] for tree in trees)
    references = (tree.get("reference") for tree in trees if _compares(tree))
    return next(samplers, sampler or {}), next(references, reference)


def _compares(tree: Tree) -> bool:
    """Return whether a metric of an evaluation compares images with real ones; `is` does not."""
    names = (name for name in tree.get("metrics") or () if isinstance(name, str))
    return any(name not in METRICS or METRICS[name].compares for name in names)


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


def _is_evaluation(tree: Any) -> bool:
    return (
        fits(tree, {"metrics": dict, "spec": dict})
        and fits_all(tree["metrics"], NUMBER)
        and fits(tree, {"problem": str}, partly=True)
        and fits(tree["spec"], _MEASURED, partly=True)
        and fits_all(tree.get("made_with", {}), str)
        and fits_all(tree.get("weights", {}), str)
        and are_checksums(tree.get("files", {}))
    )


def _renamed(tree: dict[str, Any]) -> dict[str, Any]:
    """Rename metrics of earlier versions.

    These called torch-fidelity's score `is`, and a distance to held-out images `fid`.
    """
    spec = tree["spec"]
    if not spec.get("metrics"):
        return tree
    metrics = tree["metrics"] if spec.get("reference") else heldout_named(tree["metrics"])
    if "is" in spec["metrics"] and "inception_score" not in spec:
        metrics = {re.sub(r"^is@", "is_shuffled@", name): x for name, x in metrics.items()}
    return {**tree, "metrics": metrics}
