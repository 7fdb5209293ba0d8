"""Claims about the suggestions of a search: in order, each run once, damage passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tread_lab.records import suggestions
from tread_lab.records.suggestions import Asked, with_asked


def trial(run: str) -> dict[str, Any]:
    return {"run": run}


def test_suggestions_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    for number in (1, 0, 2):
        suggestions.append(path, Asked(number, {"start": number}, (trial("a"),), {}))
    assert [entry.number for entry in suggestions.read(path)] == [0, 1, 2]


def test_a_run_that_several_suggestions_share_stands_once_in_the_plan() -> None:
    plan = {"name": "s", "trials": [trial("dense")]}
    both = [
        Asked(0, {}, (trial("dense"), trial("a")), {}),
        Asked(1, {}, (trial("a"), trial("b")), {}),
    ]
    assert [t["run"] for t in with_asked(plan, both)["trials"]] == ["dense", "a", "b"]
    assert plan["trials"] == [trial("dense")]
