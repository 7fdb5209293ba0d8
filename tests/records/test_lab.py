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


def test_a_run_has_come_as_far_as_its_last_entry(lab: Lab) -> None:
    run = lab.run("abc")
    assert run.step() == 0
    with run.log() as log:
        for step in (1, 5):
            log(step, loss=0.5)
    assert run.step() == 5


def test_a_stored_sweep_may_be_named_by_its_file(lab: Lab) -> None:
    write_text(lab.sweep("s").plan_path, "{}")
    assert {lab.known_sweep(name).name for name in ("s", "s.yaml", "sweeps/s.yml")} == {"s"}


def test_the_origin_of_earlier_attempts_stays(lab: Lab) -> None:
    run = lab.run("abc")
    for host in ("a", "b"):
        run.write_origin({"host": host})
    assert run.origin() == [{"host": "a"}, {"host": "b"}]
