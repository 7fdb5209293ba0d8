"""The table that `tread-lab cost` prints."""

from __future__ import annotations

from typing import Any

from tests.train.runs import imagenet
from tread_lab.config import RunSpec, decode, encode
from tread_lab.cost.report import table


def with_parts(**parts: Any) -> RunSpec:
    """A run of S/2 in bf16 on ImageNet's latents with other parts."""
    return decode(RunSpec, {**encode(imagenet("S")), "precision": "bf16", **parts})


def test_memory_of_compiled_blocks_is_told_where_more_than_a_bound_is_known() -> None:
    told = [dict(table(with_parts(model=name))) for name in ("DiT-S/2", "RWKV-12x384/2")]
    assert ["with compiled blocks" in rows for rows in told] == [True, False]
