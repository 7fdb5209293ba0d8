"""Published methods beside TREAD in one sweep, each compared with its own dense run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tasks.conftest import FIXED, PROBE, Answer, trials
from tread_lab.records.lab import Lab

Sweep = Callable[..., Answer]
SYSTEMS = """
variants:
  system:
    tread: {routes: [1->2]}
    sprint: {routes: [1->2], bypass: sprint}
    maskdit:
      routes: [0->B-1]
      bypass: {kind: mask, depth: 1, width: 8, heads: 2}
      loss: {kind: ensemble, form: code, weight: 0.1}
    mdt: {routes: [{start: 0, end: B-3, rate: 0.3}], bypass: mdt, loss: both}
    sd_dit:
      routes: [{start: 0, end: B-1, rate: 0.2}]
      bypass: {kind: mask, depth: 1, width: 8, heads: 2, fill: entry}
      loss: {kind: discrimination, prototypes: 6, hidden: 8, bottleneck: 4}
    repa: {routes: [1->2], repa: {encoder: fashion16-v1, block: 1, hidden: 8}}
"""


@pytest.mark.task(42, 43, 44, 45, 46)
def test_every_method_has_a_gap_to_its_dense_run(run_sweep: Sweep, lab: Lab) -> None:
    run_sweep(f"{FIXED}{SYSTEMS}{PROBE}")
    frame = trials(lab)
    assert (frame["state"] == "completed").all()
    own = frame[frame["role"] == "trial"].set_index("system")
    assert [*own.index] == ["tread", "sprint", "maskdit", "mdt", "sd_dit", "repa"]
    assert own["gap/heldout"].notna().all() and own["gap/heldout"].nunique() == len(own)
    assert (own["gap/heldout:low"] < own["gap/heldout:high"]).all()
