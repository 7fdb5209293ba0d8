"""Claims about merging: no run is halved, the further one stays, and it costs no weights."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.faults.drivers import KILLED, Zygote
from tests.records.conftest import checkpoint, merged, packed, records
from tests.synthetic import small, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.log import with_checksum
from tread_lab.records.merge import ADDED, BUSY, HAS_WEIGHTS, KEPT, NEW, TAKEN
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_status import run_status
from tread_lab.records.status import RunState
from tread_lab.records.sweep_archive import STAGE
from tread_lab.records.sweep_folder import Stopped, seconds_spent
from tread_lab.specs import UserError

AT = """
import os, signal
from tread_lab.records import archive, merge, sweep_archive
calls = []
def dies(function):
    def counted(*arguments, **more):
        calls.append(1)
        if len(calls) == {n}:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return counted
{place} = dies({place})
"""


def interrupted(source: Lab, lab: Lab, steps: int) -> RunFolder:
    """The lab's own record of the source's first run, as far as some step."""
    run = lab.run(source.runs()[0].name)
    with run.log() as log:
        for step in range(1, steps + 1):
            log(step, loss=1.0)
    return run


@pytest.mark.parametrize(
    ("place", "n", "runs"),
    [
        ("archive.Archive._chunks", 20, 0),
        ("merge._move", 3, 2),
        ("sweep_archive.merge_sweep", 1, 4),
    ],
)
def test_a_killed_import_leaves_whole_runs_or_nothing_and_the_next_goes_on(
    source: Lab, archive: Path, lab: Lab, zygote: Zygote, place: str, n: int, runs: int
) -> None:
    words = ("import", str(archive), "--root", str(lab.root))
    killed = zygote.run(lab.root.parent, *words, prelude=AT.format(place=place, n=n))
    assert killed.returncode == KILLED
    assert (lab.sweeps(), len(lab.runs()), (lab.root / STAGE).exists()) == ([], runs, True)
    for run in lab.runs():
        assert run_status(run) == run_status(source.run(run.name))
    again = merged(lab, archive)
    assert again.runs == {name: count for name, count in ((KEPT, runs), (NEW, 4 - runs)) if count}
    unmarked = {k: v for k, v in records(lab).items() if not k.endswith("/imported.json")}
    assert unmarked == records(source)
    assert not (lab.root / STAGE).exists()


@pytest.mark.parametrize(
    ("state", "own", "brought", "became", "lost"),
    [
        ("partial", [3], [], HAS_WEIGHTS, "3"),
        ("partial", [2, 3], [], HAS_WEIGHTS, "2 and 3"),
        ("partial", [3], [1], HAS_WEIGHTS, "3"),
        ("partial", [2, 3], [400], HAS_WEIGHTS, "2"),  # which people have asked to keep
        ("partial", [3], [400], TAKEN, ""),
        ("partial", [2, 3], [2, 400], TAKEN, ""),
        ("partial", [], [], TAKEN, ""),
        ("completed", [400], [], KEPT, ""),
        ("completed", [], [400], KEPT, ""),
        ("failed", [], [], TAKEN, ""),
    ],
)
def test_of_a_run_in_both_the_further_one_stays_and_no_weights_go(
    state: str,
    own: list[int],
    brought: list[int],
    became: str,
    lost: str,
    source: Lab,
    lab: Lab,
    tmp_path: Path,
) -> None:
    theirs, run = source.runs()[0], interrupted(source, lab, 3)
    shutil.rmtree(theirs.checkpoints)
    for step in brought:
        checkpoint(theirs, step=step)
    run.keep_steps([2, 3], asked=[2])
    run.remarks.add_note("mine")
    for step in own:
        checkpoint(run, step=step)
    if state != "partial":
        run.finish(RunState(state), step=400, metrics={"own": 1})
    before = records(lab)
    packed(source, tmp_path / "a.zip")
    transfer = merged(lab, tmp_path / "a.zip")
    assert transfer.runs == {became: 1, NEW: 3}
    assert run.remarks.notes == ["mine"]
    if became == TAKEN:
        assert run_status(run) == run_status(theirs)
        assert (run.kept_steps(), run.asked_steps()) == ({2, 3, 5}, {2})
    else:
        here = f"runs/{run.name}/"
        assert {k: v for k, v in records(lab).items() if k.startswith(here)} == before
    line = (
        f"run {run.name} stays at step 3: the archive has it at step 400 without the weights of"
        f" step {lost}, which this lab has; export it with weights, or delete {run.checkpoints},"
        " then import again"
    )
    assert transfer.lines == ((line,) if became == HAS_WEIGHTS else ())
    theirs.remarks.add_note("theirs")
    packed(source, tmp_path / "b.zip")
    merged(lab, tmp_path / "b.zip")
    assert run.remarks.notes == ["mine", "theirs"]


def test_a_request_to_stop_is_no_progress(source: Lab, lab: Lab, tmp_path: Path) -> None:
    theirs = source.runs()[2]
    theirs.reopen()
    theirs.remarks.add("stop", "enough")
    assert theirs.state() == RunState.STOPPED and theirs.result() is None
    packed(source, tmp_path / "a.zip")
    mine = lab.run(theirs.name)
    mine.create(theirs.spec())
    with mine.log() as log:
        log(theirs.step() + 100, loss=1.0)
    assert merged(lab, tmp_path / "a.zip").runs[KEPT] == 1
    assert mine.step() == theirs.step() + 100


def test_the_last_word_on_a_run_counts_and_no_note_on_it_is_lost(
    source: Lab, lab: Lab, tmp_path: Path
) -> None:
    theirs, ended = source.runs()[2:]
    run, other = interrupted(source, lab, 3), source.runs()[0]
    for event in ("stop", "continue"):
        other.remarks.add(event)
    other.path.joinpath("result.json").unlink()
    run.remarks.add("stop", "for good")
    theirs.remarks.add_note("theirs")
    packed(source, tmp_path / "first.zip")
    assert merged(lab, tmp_path / "first.zip").runs == {TAKEN: 1, NEW: 3}
    assert run.step() == other.step() and run.state() is RunState.STOPPED
    ended.remarks.add_note("later")
    theirs.remarks.add("stop", "which is not about the lab")
    lab.run(theirs.name).path.joinpath("log.jsonl").open("a").write("\n")
    theirs.remarks.add_tags(["good"])
    packed(source, tmp_path / "second.zip")
    for what in ({ADDED: 2, KEPT: 2}, {KEPT: 4}):
        assert merged(lab, tmp_path / "second.zip").runs == what
        assert lab.run(ended.name).remarks.notes == ["later"]
        said = lab.run(theirs.name).remarks
        assert (said.notes, said.tags, said.stop) == (["theirs"], ["good"], "")


def test_a_run_that_is_at_work_in_the_lab_is_kept(source: Lab, archive: Path, lab: Lab) -> None:
    run = interrupted(source, lab, 3)
    with run.lock():
        assert merged(lab, archive).runs == {BUSY: 1, NEW: 3}
    assert run.step() == 3


def test_a_run_of_the_same_execution_gets_what_the_lab_lacks(
    source: Lab, archive: Path, lab: Lab, tmp_path: Path
) -> None:
    packed(source, tmp_path / "light.zip", weights=False)
    merged(lab, tmp_path / "light.zip")
    first, second, third, _ = lab.runs()
    shutil.rmtree(next(third.evaluations()).path)
    assert merged(lab, archive).runs == {ADDED: 3, KEPT: 1}
    assert len(list(third.evaluations())) == 3
    assert [run.lacks_weights for run in (first, second, third)] == [False, False, True]
    second_checkpoint = next(second.checkpoints.iterdir())
    second_checkpoint.unlink()
    checkpoint(second, step=300)
    assert merged(lab, archive).runs == {KEPT: 4} and not second_checkpoint.exists()


def test_another_sweep_of_the_same_name_is_refused_unless_it_gets_another_name(
    source: Lab, archive: Path, lab: Lab
) -> None:
    write_sweep(lab.root, small(routes=((1, 2),), seeds=(5,)))
    before = records(lab)
    with pytest.raises(UserError) as refusal:
        merged(lab, archive)
    assert "sweep placement of this lab has another plan: " in str(refusal.value)
    assert "--as NAME imports it under another name" in str(refusal.value)
    assert records(lab) == before
    with pytest.raises(UserError, match=r"'\.\./x' is not a name"):
        merged(lab, archive, "../x")
    assert merged(lab, archive, "theirs").sweep == "theirs"
    assert lab.sweeps() == ["placement", "theirs"]
    assert lab.sweep("theirs").plan().name == "theirs"
    theirs, ours = trials_frame(lab, "theirs"), trials_frame(source, "placement")
    assert theirs.drop(columns="sweep", errors="ignore").equals(
        ours.drop(columns="sweep", errors="ignore")
    )


def test_a_plan_that_goes_further_replaces_the_labs_and_never_the_other_way_round(
    lab: Lab, tmp_path: Path
) -> None:
    two = write_sweep(tmp_path / "two", small(routes=((0, 4),)))
    three = write_sweep(tmp_path / "three", small(routes=((0, 4), (2, 8))))
    three.sweep("placement").remarks.add_note("theirs")
    packed(two, tmp_path / "two.zip")
    packed(three, tmp_path / "three.zip")
    sweep = lab.sweep("placement")
    for name, runs in (("two", 2), ("three", 3), ("two", 3)):
        merged(lab, tmp_path / f"{name}.zip")
        assert len(sweep.plan().trials) == runs and not sweep.drawn_path.exists()
        sweep.remarks.add_note(f"after {name}")
        sweep.drawn_path.touch()
    assert sweep.remarks.notes == ["theirs", "after two", "after three", "after two"]
    own = {f"runs/{r.name}/imported.json" for r in lab.runs()}
    own |= {f"sweeps/placement/{name}" for name in ("plans/0001.json", "remarks.jsonl", "drawn")}
    assert records(lab).keys() == records(three).keys() | own


def test_a_plan_that_goes_further_comes_after_all_else(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, replace = write_sweep(tmp_path / "a", small(routes=((0, 4), (2, 8)))), Path.replace
    theirs.sweep("placement").remarks.add_note("theirs")
    packed(theirs, tmp_path / "a.zip")
    sweep = write_sweep(lab.root, small(routes=((0, 4),))).sweep("placement")

    def full(path: Path, target: Path) -> Path:
        if path.name == "remarks.jsonl":
            raise OSError(28, "No space left on device")
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(UserError, match="No space left on device"):
        patch.setattr(Path, "replace", full)
        merged(lab, tmp_path / "a.zip")
    assert (len(sweep.plan().trials), sweep.remarks.notes) == (2, [])
    assert merged(lab, tmp_path / "a.zip").runs == {KEPT: 3}
    assert (len(sweep.plan().trials), sweep.remarks.notes) == (3, ["theirs"])


def test_of_an_equal_plan_what_was_stopped_spent_and_said_arrives(lab: Lab, tmp_path: Path) -> None:
    theirs = write_sweep(tmp_path / "theirs", small(states={(2, 8): "interrupted"})).sweep(
        "placement"
    )
    run = theirs.plan().trials[2].run
    theirs.add_stopped(Stopped(run, 200, "worse"))
    theirs.remarks.add_note("both")
    write_text(theirs.spent_path, with_checksum({"session": "b", "seconds": 5.0}))
    mine = write_sweep(lab.root, small(states={(2, 8): "pending"})).sweep("placement")
    write_text(mine.remarks.path, theirs.remarks.path.read_text())
    mine.remarks.add_note("mine")
    theirs.remarks.add_note("theirs")
    packed(Lab(tmp_path / "theirs"), tmp_path / "a.zip")
    mine.drawn_path.touch()
    with mine.lock():  # whose driver takes the runs that arrive
        (line,) = merged(lab, tmp_path / "a.zip").lines
    assert line.startswith("sweep placement is in use by another process (pid")
    assert line.endswith("; what was stopped, spent and said: import again after it")
    assert not mine.stopped() and not mine.drawn_path.exists()
    for _ in range(2):
        assert merged(lab, tmp_path / "a.zip").runs == {KEPT: 4}
        assert run_status(lab.run(run), mine.stopped()).reason == "worse"
        assert mine.remarks.notes == ["both", "mine", "theirs"]
        assert seconds_spent(mine.spent_path) == 5.0
    with mine.lock():  # which has all of it
        again = merged(lab, tmp_path / "a.zip")
    assert again.runs == {KEPT: 4} and not again.lines
    assert not mine.earlier_plans
