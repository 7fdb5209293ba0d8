"""Claims about reading the runs of a sweep again: only what is whole is remembered."""

from __future__ import annotations

from pathlib import Path

from tests.synthetic import small, tiny_spec, write_sweep
from tread_lab.frames.reading import Memory, Records
from tread_lab.specs import signature


def test_a_run_is_read_again_until_its_evaluations_are_whole(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    plan, memory, run = lab.sweep("placement").plan(), Memory(), signature(tiny_spec((2, 8)))
    metrics = next(lab.run(run).path.glob("evaluations/*/metrics.json"))
    text = metrics.read_text()
    metrics.unlink()
    assert metrics.parent.name not in Records(lab, plan, memory)[run].evaluations
    metrics.write_text(text)
    assert metrics.parent.name in Records(lab, plan, memory)[run].evaluations
