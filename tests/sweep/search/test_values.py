"""The value of a cell is the mean over seeds of its runs less those of their baselines."""

from __future__ import annotations

import math
from typing import Any

from tests.pretender import ended_run
from tests.sweep.plans import tiny
from tread_lab.config import RunSpec
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.config.labels import Trial
from tread_lab.records.lab import Lab
from tread_lab.sweep.suggest import cell_values

AT_END = HeldoutSpec(images=8, levels=2)
FLOPS, LOSS = "cost/train_flops", "heldout/loss"


def measured(
    lab: Lab, spec: RunSpec, baseline: str | None = None, *, flops: float = 10.0, loss: Any = None
) -> Trial:
    """A trial whose run has ended with these training FLOPs and this held-out loss."""
    folder = ended_run(lab, spec, step=20, metrics={FLOPS: flops})
    if loss is not None:
        folder.evaluation(AT_END).write(AT_END, {LOSS: loss})
    return Trial("trial", {}, spec.seed, spec, folder.name, baseline)


def test_values_are_less_the_baselines(lab: Lab) -> None:
    dense = [measured(lab, tiny(seed=s), loss=1.0 + s) for s in (0, 1)]
    routed = [
        measured(lab, tiny(seed=s, routes=["0->2"]), dense[s].run, flops=8.0 - s, loss=4.0)
        for s in (0, 1)
    ]
    assert cell_values(lab, routed, [LOSS, FLOPS], [AT_END]) == (2.5, -2.5)
    assert cell_values(lab, dense, [FLOPS, LOSS], [AT_END]) == (10.0, 1.5)


def test_unmeasured_cell_has_no_values(lab: Lab) -> None:
    infinite = measured(lab, tiny(), loss=math.inf)
    routed = measured(lab, tiny(routes=["0->2"]), infinite.run, loss=2.0)
    no_number = measured(lab, tiny(seed=3), loss=2.0)
    lab.run(no_number.run).evaluation(AT_END).write(AT_END, {}, problem="no finite number")
    unmeasured = Trial("trial", {}, 5, tiny(seed=5), lab.run_of(tiny(seed=5)).name, None)
    for trial, names, found in (
        (infinite, [FLOPS], (10.0,)),
        (infinite, [FLOPS, LOSS], None),
        (infinite, ["gap/heldout"], None),  # it has no baseline
        (routed, ["gap/heldout"], None),  # no losses an image
        (unmeasured, [FLOPS], None),
        (no_number, [LOSS], None),
    ):
        assert cell_values(lab, [trial], names, [AT_END]) == found
