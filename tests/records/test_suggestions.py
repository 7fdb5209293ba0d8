"""Claims about the suggestions of a search: in order, whole, damage passed over."""

from __future__ import annotations

from pathlib import Path

from tread_lab.records import suggestions
from tread_lab.records.plan import StoredTrial
from tread_lab.records.suggestions import Suggestion

TRIAL = StoredTrial("trial", {"start": 1}, 0, {"seed": 0}, "a", "dense")
LINE = (
    '"number": 1, "cell": {"start": 1}, "trials": [{"role": "trial", "cell": {"start": 1},'
    ' "seed": 0, "spec": {"seed": 0}, "run": "a", "baseline": "dense"}], "notes": {"round": 2}'
)


def test_suggestions_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    for number in (1, 0, 2):
        suggestions.append(path, Suggestion(number, {"start": number}, (TRIAL,), {}))
    assert [entry.number for entry in suggestions.read(path)] == [0, 1, 2]


def test_a_suggestion_is_one_line_with_the_names_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    suggestion = Suggestion(1, {"start": 1}, (TRIAL,), {"round": 2})
    suggestions.append(path, suggestion)
    assert LINE in path.read_text()
    assert suggestions.read(path) == [suggestion]


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    suggestions.append(path, Suggestion(0, {}, (), {}))
    with path.open("a") as file:
        file.write('{"number": 1, "cel\n')
    suggestions.append(path, Suggestion(2, {}, (), {}))
    assert [entry.number for entry in suggestions.read(path)] == [0, 2]
