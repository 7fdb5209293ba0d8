"""The JSON schemas are those of the dataclasses, and shipped files meet them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.readme_tree import ROOT
from tread_lab.config.load import load_experiment, load_sweep
from tread_lab.specs.run import BESIDE
from tread_lab.specs.schema import KINDS, schema_text
from tread_lab.specs.systems import Variants

SHIPPED = [*ROOT.glob("sweeps/*.yaml"), *ROOT.glob("experiments/*.yaml")]
CHECKS = {
    kind: jsonschema.Draft202012Validator(yaml.safe_load(schema_text(kind))) for kind in KINDS
}
LOADERS: dict[str, Callable[..., object]] = {"sweep": load_sweep, "experiment": load_experiment}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_meet_it(path: Path) -> None:
    kind = path.parent.name.removesuffix("s")
    LOADERS[kind](str(path), [])  # names a system that is not here
    check = CHECKS[kind]
    errors = check.iter_errors(_numbers(yaml.safe_load(path.read_text())))
    assert not [f"{error.json_path}: {error.message}" for error in errors]


def _numbers(tree: Any) -> Any:
    """`6e-3`, which plain PyYAML reads as a text, as the number that editors and we read."""
    if isinstance(tree, dict):
        return {str(key): _numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_numbers(item) for item in tree]
    try:
        return float(tree) if isinstance(tree, str) and "e-" in tree else tree
    except ValueError:
        return tree


@pytest.mark.parametrize("axes", [{"steps": [10, 20]}, [{"steps": 10}, {"solver": "euler"}]])
def test_axes_of_the_sampler_are_an_object_or_a_list(axes: Any) -> None:
    assert CHECKS["sweep"].is_valid({"experiment": "tiny", "sampler_axes": axes})


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        ("sweep", {"experiment": "tiny", "axis": {}}),
        ("sweep", {"experiment": "tiny", "fixed": {"tran": {"steps": 3}}}),
        ("sweep", {"experiment": "tiny", "fixed": {"train": {"step": 3}}}),
        ("sweep", {"experiment": "tiny", "seeds": [0.5]}),
        ("experiment", {"precision": "fp8"}),
        ("experiment", {"train": {"step": 3}}),
    ],
)
def test_an_unknown_key_or_name_does_not(kind: str, tree: dict[str, Any]) -> None:
    assert not CHECKS[kind].is_valid(tree)


def test_a_system_may_be_absent_and_a_kind_stand_alone() -> None:
    absent = {field: None for field in BESIDE if Variants(field).classes}
    written = {"model": "DiT-S/2", **absent, "bypass": "route", "process": "flow"}
    assert absent and CHECKS["experiment"].is_valid(written)


def test_what_the_fields_mean_is_said() -> None:
    sweep = yaml.safe_load(schema_text("sweep"))
    assert sweep["properties"]["seeds"]["description"].startswith("every cell and its baseline")
    assert "rounded" not in str(sweep["$defs"]["RouteSpec"]["properties"]["rate"])
    assert "fraction of the N tokens" in str(sweep["$defs"]["RouteSpec"]["properties"]["rate"])
