"""Each published system is one folder and one line: nothing outside names its parts."""

from __future__ import annotations

import ast
from pathlib import Path

import tread_lab
from tread_lab.config import RunSpec, decode
from tread_lab.config.registry import SYSTEMS
from tread_lab.train.joining import System, systems_of

ROOT = Path(tread_lab.__file__).parent
FOLDERS = {path.parent.name for path in ROOT.glob("methods/*/spec.py")}


def test_table_holds_folders_and_classes() -> None:
    assert set(SYSTEMS.built_in) == FOLDERS
    for name, joined_by in SYSTEMS.built_in.items():
        assert joined_by.package == f"tread_lab.methods.{name}"
        tree = ast.parse((ROOT / f"methods/{name}/spec.py").read_text())
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert defined == {*joined_by.classes.values()}, name


def test_run_is_joined_in_order() -> None:
    tree = {"model": "DiT-6x32x2/2", "routes": ["0->B-3"], "bypass": "mdt", "loss": "both"}
    run = decode(RunSpec, {**tree, "repa": {"encoder": "fashion16-v1", "block": 1}})
    assert [type(system).__name__ for system in systems_of(run)] == ["MDT", "Repa"]
    assert all(isinstance(system, System) for system in systems_of(run))
    assert systems_of(decode(RunSpec, {**tree, "bypass": "route", "loss": "plain"})) == ()
