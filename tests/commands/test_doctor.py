"""The doctor command: a table for people, JSON for scripts, an exit code by the worst."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tread_lab.cli import main
from tread_lab.prepare.required_files import REQUIRED
from tread_lab.records.lab import Lab
from tread_lab.sweep.execution.health import CHECKS, of_driver


def test_a_machine_without_a_lab_is_examined_and_nothing_is_left(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in REQUIRED.values():
        monkeypatch.delenv(file.named_by, raising=False)
    code = main(["doctor", "--json"])
    tree = json.loads(capsys.readouterr().out)
    assert code == tree["exit_code"] == max([one["code"] for one in tree["findings"]], default=0)
    ((node, cells),) = tree["nodes"].items()
    assert node.startswith("driver (") and list(cells) == list(CHECKS)
    assert tree["files"]["Inception-2015"]["sha256"].startswith("6726825d")
    assert tree["files"]["reference"]["sha256"] is None  # not known
    assert tree["files"]["latents"]["here"] is None and not tree["files"]["autoencoder"]["here"]
    assert list(in_folder.iterdir()) == []
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setattr(
        "tread_lab.sweep.execution.ray_probe.nodes_health",
        lambda asked: {"far": of_driver(asked)[1]},
    )
    assert main(["doctor", "--json"]) == code
    assert list(json.loads(capsys.readouterr().out)["nodes"]) == [node, "far"]


def test_a_plan_that_cannot_be_read_and_no_compiler_are_two_lines(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.engine.compiled import no_compiler

    monkeypatch.setenv("CC", "/no/compiler")
    no_compiler.cache_clear()
    folder = lab.sweep("broken").path
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text("{")
    assert main(["doctor", "--root", str(lab.root)]) == 2
    no_compiler.cache_clear()
    out = capsys.readouterr().out
    wrong, warned = (line for line in out.splitlines() if line.startswith(("wrong:", "warning:")))
    assert "): sweep broken: " in wrong
    assert "): /no/compiler compiles nothing" in warned and "gcc" in warned
    assert "Inception-2015" in out and "6726825d0af5" in out and "not known" in out
