"""Blocks without a formula cost what the formulas of the built-in ones say."""

from __future__ import annotations

import pytest

from tread_lab.config import ModelSpec, decode
from tread_lab.cost.blocks import block_cost
from tread_lab.train.counted import counted


@pytest.mark.parametrize("name", ["DiT-4x64x2/2", "LightningDiT-2x64x4/1"])
def test_counted_attention_equals_its_formula(name: str) -> None:
    model = decode(ModelSpec, name)
    formulas, passed = block_cost(model), counted(model, 0)
    assert passed.parameters(model) == formulas.parameters(model)
    for n in (64, 24):
        assert passed.macs(model, n) == formulas.macs(model, n)
        assert 1.0 <= passed.kept(model, n, 4) / formulas.kept(model, n, 4) < 1.15
