"""Nothing in a lab can run code or leave it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pretender import ended_run
from tests.sweep.plans import tiny
from tread_lab.cli.main import main
from tread_lab.config import UserError
from tread_lab.records.durable import read_entries
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame

SOURCES = sorted(
    path
    for package in ("tread_lab", "analysis", "dashboards")
    for path in Path(package).rglob("*.py")
)
# Weights that others publish, read by torch's own unpickler for tensors alone.
TENSORS_ONLY = {"tread_lab/backbones/published_weights.py", "tread_lab/data/statistics.py"}


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield every call of a name, such as `torch.load`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            names, called = [], node.func
            while isinstance(called, ast.Attribute):
                names, called = [called.attr, *names], called.value
            yield ".".join([getattr(called, "id", ""), *names]), node


def given(call: ast.Call, name: str) -> Any:
    """The constant that a call gives a keyword."""
    values = [k.value for k in call.keywords if k.arg == name]
    return values[0].value if values and isinstance(values[0], ast.Constant) else None


FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "os.system", "marshal.loads", "joblib.load"),
    *("pickle.load", "pickle.loads", "yaml.load", "yaml.unsafe_load", "yaml.full_load"),
}


def test_no_module_can_be_made_to_run_what_it_reads() -> None:
    assert len(SOURCES) > 150
    for path in SOURCES:
        for name, call in calls(path):
            assert name not in FORBIDDEN, f"{path}: {name}"
            assert given(call, "shell") is not True, path
            assert given(call, "allow_pickle") is not True, path
            if name == "torch.load":
                assert str(path) in TENSORS_ONLY and given(call, "weights_only") is True, path


def test_planted_files_run_nothing(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark, spec = tmp_path / "ran", tiny(steps=2)
    run, bomb = ended_run(lab, spec, step=2), pickle.dumps(Bomb(tmp_path / "ran"))
    run.checkpoints.mkdir()
    losses = run.path / "evaluations/0123456789abcdef/losses.npz"
    losses.parent.mkdir(parents=True)
    np.savez(losses, dense=np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    for place in ("log.jsonl", "checkpoints/step-00000002-0123456789abcdef.safetensors"):
        (run.path / place).write_bytes(bomb)
    (losses.parent / "metrics.json").write_text(json.dumps({"spec": {}, "metrics": {}}))
    with contextlib.suppress(UserError):
        assert list(read_entries(run.log_path)) == []
    with pytest.warns(UserWarning, match="damaged"):
        assert main(["evaluate", run.name, "heldout_loss", "--root", str(lab.root)]) == 2
    (run.path / "spec.yaml").write_text(f"!!python/object/apply:os.mkdir ['{mark}']")
    assert main(["status", run.name, "--root", str(lab.root)]) == 2
    assert "spec.yaml" in capsys.readouterr().err
    assert not mark.exists()


def test_a_sweep_file_with_a_tag_runs_nothing(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.yaml").write_text("experiment: !!python/object/apply:os.mkdir ['ran']\n")
    assert main(["sweep", "s.yaml", "--plan"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "name",
    ["../../etc", "/etc/passwd", "..", ".", "a/b", "a\0b", "", "a\n", ".x", "-x", "a b"],
)
def test_names_cannot_leave_the_lab(lab: Lab, name: str) -> None:
    for place in (lab.run, lab.sweep):
        with pytest.raises(UserError, match="name: must be letters"):
            place(name)


def test_a_plan_cannot_point_outside(lab: Lab) -> None:
    folder = lab.sweep("bent")
    folder.path.mkdir(parents=True)
    trial = {"role": "trial", "cell": {}, "seed": 0, "spec": {}, "run": "../../x", "baseline": None}
    plan = {"format": 2, "name": "bent", "question": "", "experiment": "tiny", "sources": {}}
    folder.plan_path.write_text(json.dumps({**plan, "evaluate": [], "trials": [trial]}))
    with pytest.raises(UserError, match="name: must be letters"):
        trials_frame(lab, "bent")
