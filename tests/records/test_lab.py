"""Claims about the folders of a lab: what is written again, and what is kept."""

from __future__ import annotations

from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.specs import HeldoutSpec


def test_an_evaluation_that_is_written_again_is_done(lab: Lab) -> None:
    folder = lab.run("abc").evaluation(HeldoutSpec())
    for loss in (1.0, 2.0):
        folder.write(HeldoutSpec(), {"heldout/loss": loss})
    assert folder.done


def test_a_plan_is_kept_unless_the_last_copy_is_equal(lab: Lab) -> None:
    sweep = lab.sweep("s")
    for text in ("a", "b", "b", "a"):
        write_text(sweep.plan_path, text)
        sweep.keep_plan()
    assert [path.read_text() for path in sweep.earlier_plans] == ["a", "b", "a"]
