"""The recommend command writes the experiment beside the plan, or where it is told."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.commands import recommend


@pytest.mark.parametrize("out", [None, "there.yaml"])
def test_the_rule_is_said_and_its_experiment_written(
    out: str | None,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[Any] = []
    rule = SimpleNamespace(sweep="s", verdict="undecided")

    def found(lab: Any, name: str, **how: Any) -> Any:
        calls.append((lab.root, name, how))
        return rule

    monkeypatch.setattr(recommend, "recommend", found)
    wording = SimpleNamespace(
        write_experiment=lambda lab, made, path: calls.append((lab.root, made, path)),
        as_tree=lambda made: {"rule": made.sweep},
        as_lines=lambda made: ["first", "second"],
    )
    monkeypatch.setattr(recommend, "wording", wording)
    root = in_folder / "lab"
    root.mkdir()
    how: Any = {
        "root": str(root),
        "name": "n",
        "metric": "m",
        "cheapest": True,
        "equal_steps": False,
        "out": out,
    }
    path = root / "sweeps" / "s" / "recommended.yaml" if out is None else in_folder / out
    assert recommend.run(**how, as_json=False) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first", "second", f"experiment: {path} (`tread-lab train {path}`)"
    ]  # fmt: skip
    assert recommend.run(**how, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"rule": "s", "experiment": str(path)}
    asked = [
        (root, "n", {"metric": "m", "cheapest": True, "equal_steps": False}),
        (root, rule, path),
    ]
    assert calls == asked * 2
