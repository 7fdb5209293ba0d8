"""A name that no table holds is an error with a near miss, wherever a backbone is made."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from tread_lab.backbones import BACKBONES, build_backbone
from tread_lab.backbones.dit import ZEROED
from tread_lab.backbones.parts import MLPS, NORMS
from tread_lab.config import ModelSpec, RunSpec, UserError, decode
from tread_lab.config.model import BACKBONES as FACTS
from tread_lab.config.model import FAMILIES
from tread_lab.cost.blocks import BLOCK_COSTS, block_cost
from tread_lab.methods.maskdit.decoder import ADAPTERS
from tread_lab.methods.maskdit.spec import MaskBypass


def spec(**model: Any) -> RunSpec:
    run = decode(RunSpec, {"model": "DiT-4x32x2/2", "routes": ["1->2"], "precision": "bf16"})
    changed = run.model
    for name, value in model.items():
        object.__setattr__(changed, name, value)  # a spec from a file would be refused
    return run


@pytest.mark.parametrize(
    ("field", "wrong", "near"),
    [
        ("norm", "rmss", "rms"),
        ("init", "adaln_zeros", "adaln_zero"),
        ("backbone", "mambo", "mamba"),
    ],
)
def test_unknown_name_gets_a_near_miss(field: str, wrong: str, near: str) -> None:
    run = spec(**{field: wrong})
    says = f"model.{field}: unknown '{wrong}', did you mean '{near}'"
    with pytest.raises(UserError, match=says):
        build_backbone(run)
    if field == "backbone":
        with pytest.raises(UserError, match=says):
            block_cost(run.model)


def test_names_of_specs_have_code() -> None:
    names = {name: {*get_args(hint)} for name, hint in get_type_hints(ModelSpec).items()}
    backbones = {"dit", "rwkv", "mamba"}
    tables = (BACKBONES, BLOCK_COSTS, FACTS)
    assert [{*table} for table in tables] == [backbones] * 3
    assert {*FAMILIES.values()} == backbones
    assert names["norm"] == {*NORMS} and names["mlp"] == {*MLPS} and names["init"] == {*ZEROED}
    assert {*ADAPTERS} == {*get_args(get_type_hints(MaskBypass)["adapter"])}
