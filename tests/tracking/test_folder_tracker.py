"""Folders of a tracker are those of the trials that have begun; what cannot be read is a line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.tracking.conftest import Sweeps
from tread_lab.records.durable import read_json, write_json
from tread_lab.tracking.folder_tracker import FolderTracker, numbers_of
from tread_lab.tracking.projection import Number, View


def write(folder: Path, sweep: str, view: View) -> None:
    """Write the name of what is shown into an empty folder."""
    assert list(folder.iterdir()) == []
    (folder / "shown").write_text(f"{sweep}: {view.name} {view.status}")


def shown(root: Path) -> list[str]:
    return sorted(path.read_text() for path in root.glob("*/shown"))


def test_folders_are_made_kept_renewed_and_removed_with_their_trials(sweeps: Sweeps) -> None:
    dense, first, _ = sweeps.plan()
    tracker, root = FolderTracker(sweeps.lab, "t", write), sweeps.lab.root / "t" / "placement"
    ended = FolderTracker(sweeps.lab, "e", write, ended=True)
    sweeps.finish(dense)
    sweeps.log(first, 5, 20)
    (root / ".new").mkdir(parents=True)
    (root / ".new" / "half").touch()  # of a sync that was killed
    report = tracker.sync("placement")
    assert (report.runs, report.created, report.updated, report.unchanged) == (2, 2, 0, 0)
    assert report.values == 16 + 8 + 4  # logged of both runs, measured of the first
    assert shown(root) == [
        "placement: 0->2 s=0.5 seed 0 KILLED", "placement: dense seed 0 FINISHED"
    ]  # fmt: skip
    assert ended.sync("placement").runs == 1
    assert shown(sweeps.lab.root / "e" / "placement") == ["placement: dense seed 0 FINISHED"]
    sweeps.log(first, 25, 40)
    report = tracker.sync("placement")
    assert (report.created, report.updated, report.unchanged, report.removed) == (0, 1, 1, 0)
    (other := root / "of-a-person").mkdir()
    sweeps.lab.run_of(dense).path.rename(sweeps.lab.root / "gone")
    report = tracker.sync("placement")
    assert (report.runs, report.removed) == (1, 1) and other.exists()
    assert shown(root) == ["placement: 0->2 s=0.5 seed 0 KILLED"]


def test_numbers_stand_in_the_order_of_their_steps() -> None:
    logged, (during, measured) = (
        {n: Number("a", 1.0, 5 * n, 9) for n in range(3)},
        [Number("b", 1.0, step, 9) for step in (5, 10)],
    )
    view: Any = SimpleNamespace(logged=logged, during=(during,), measured={"b": measured})
    assert [number.step for number in numbers_of(view)] == [0, 5, 5, 10, 10]


def test_a_trial_that_cannot_be_read_is_a_line_and_no_folder(sweeps: Sweeps) -> None:
    sweeps.complete()
    path = sweeps.lab.sweep("placement").plan_path
    plan = read_json(path)
    plan["trials"][1]["spec"]["precision"] = "fp4"
    write_json(path, plan)
    report = FolderTracker(sweeps.lab, "t", write).sync("placement")
    (line,) = report.problems
    assert line.startswith("placement/trial/") and "'fp4'" in line
    assert (report.created, len(shown(sweeps.lab.root / "t" / "placement"))) == (2, 2)
