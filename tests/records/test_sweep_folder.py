"""Claims about the folder of a sweep: what was suggested, stopped and spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tread_lab.config.cell import Trial
from tread_lab.records.sweep_folder import (
    Judgement,
    Stopwatch,
    Suggestion,
    SweepFolder,
    hours_text,
)

TRIAL = Trial("trial", {"start": 1}, 0, {"seed": 0}, "a", "dense")
LINE = (
    '"number": 1, "cell": {"start": 1}, "trials": [{"role": "trial", "cell": {"start": 1},'
    ' "seed": 0, "spec": {"seed": 0}, "run": "a", "baseline": "dense"}]'
)


def test_suggestions_are_in_order_of_their_numbers(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    sweep.add_suggestion(Suggestion(1, {}, (TRIAL,)))
    for number in (0, 2):
        sweep.add_suggestion(Suggestion(number, {"start": number}, (TRIAL,)))
    assert [entry.number for entry in sweep.suggestions()] == [0, 1, 2]


def test_suggestion_is_one_line(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    suggestion = Suggestion(1, {"start": 1}, (TRIAL,))
    sweep.add_suggestion(suggestion)
    path = tmp_path / "asked.jsonl"
    assert LINE in path.read_text()
    assert sweep.suggestions() == [suggestion]


def test_judgements_are_kept_for_each_run(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path)
    made = [Judgement("a", 5, 0.25, stopped=False), Judgement("a", 9, 0.5), Judgement("b", 5, -0.5)]
    for judgement in made:
        sweep.add_judgement(judgement)
    assert sweep.judgements() == made
    sweep.add_judgement(made[1])  # passed again after a crash
    assert sweep.judgements() == made
    assert sweep.stopped() == {"a": made[1], "b": made[2]}


def test_sessions_add_up_and_are_recorded(tmp_path: Path, clock: Any) -> None:
    sweep = SweepFolder(tmp_path)
    for _ in range(2):
        watch = Stopwatch(sweep)
        clock.now += 10
        watch.note()  # too early
        watch.note(now=True)
        clock.now += 16
        watch.note()
    assert sweep.seconds_spent() == Stopwatch(sweep).seconds == 52.0
    assert hours_text(sweep, None) == "" and hours_text(sweep, 1) == "1 h (0.014 h spent)"
