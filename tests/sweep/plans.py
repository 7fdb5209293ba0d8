"""Plans of variations of a small run."""

from __future__ import annotations

from typing import Any

from tread_lab.specs import RunSpec, decode, encode
from tread_lab.specs.sweep import Experiment, SweepSpec
from tread_lab.sweep.plan.plan import Plan, make_plan

DEEP = {"depth": 8, "width": 16, "heads": 2}
HELDOUT = {"heldout_loss": {"images": 8, "levels": 2}}


def plan_of(run: RunSpec, name: str, **sweep: Any) -> Plan:
    """A sweep over a run, which a small evaluation measures."""
    tree = {"experiment": "tiny", "evaluate": [HELDOUT], **sweep}
    return make_plan(name, decode(SweepSpec, tree), Experiment(name="tiny", run=encode(run)))
