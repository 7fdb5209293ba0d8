"""Claims about the folder of a sweep: what was suggested, stopped and spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tread_lab.records.log import append_line, read_lines
from tread_lab.records.sweep_folder import (
    Stopped,
    Stopwatch,
    Suggestion,
    SweepFolder,
    seconds_spent,
)
from tread_lab.specs.cell import Trial

TRIAL = Trial("trial", {"start": 1}, 0, {"seed": 0}, "a", "dense")
LINE = (
    '"number": 1, "cell": {"start": 1}, "trials": [{"role": "trial", "cell": {"start": 1},'
    ' "seed": 0, "spec": {"seed": 0}, "run": "a", "baseline": "dense"}]'
)


def test_suggestions_are_in_the_order_of_their_numbers_and_a_damaged_one_is_passed_over(
    tmp_path: Path,
) -> None:
    sweep = SweepFolder(tmp_path)
    sweep.add_suggestion(Suggestion(1, {}, (TRIAL,)))
    with sweep.suggestions_path.open("a") as file:
        file.write('{"number": 3, "cel\n')
    for number in (0, 2):
        sweep.add_suggestion(Suggestion(number, {"start": number}, (TRIAL,)))
    assert [entry.number for entry in sweep.suggestions()] == [0, 1, 2]


def test_a_suggestion_is_one_line_with_the_names_of_earlier_versions(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    suggestion = Suggestion(1, {"start": 1}, (TRIAL,))
    sweep.add_suggestion(suggestion)
    path = tmp_path / "asked.jsonl"
    assert LINE in path.read_text()
    assert sweep.suggestions() == [suggestion]
    path.unlink()  # what earlier versions wrote down beside it is passed over
    append_line(path, {**vars(suggestion), "trials": [TRIAL.tree()], "notes": {"round": 2}})
    assert sweep.suggestions() == [suggestion]


def test_a_line_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    sweep.add_stopped(Stopped("a", 1, "worse"))
    for tree in ({"run": "b", "step": 2}, {"run": "c", "reason": "x"}, {"step": 3, "reason": "x"}):
        append_line(tmp_path / "stopped.jsonl", tree)
    for step in (9, 5):
        sweep.add_stopped(Stopped("a", step, f"at {step}"))
    assert sweep.stopped() == {"a": Stopped("a", 5, "at 5")}  # when it was stopped last


def test_sessions_add_up_and_each_counts_its_longest_entry(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    for session, seconds in (("a", 10.0), ("a", 25.0), ("b", 5.0), ("a", 20.0)):
        append_line(path, {"session": session, "seconds": seconds})
    assert seconds_spent(path) == 30.0
    assert 30.0 <= Stopwatch(path).seconds < 40.0


def test_an_entry_is_written_every_quarter_of_a_minute(tmp_path: Path, clock: Any) -> None:
    watch = Stopwatch(tmp_path / "spent.jsonl")
    for clock.now in (115.0, 116.0, 120.0, 131.0, 132.0):
        watch.note()
    watch.note(now=True)
    assert [line["seconds"] for line in read_lines(watch.path)] == [16.0, 32.0, 32.0]
