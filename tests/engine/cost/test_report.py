"""What `tread-lab cost` prints of runs of many parts, whole, as a table and as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.runs import imagenet
from tests.four_sweeps import said, same_as_stored
from tread_lab.engine.cost.report import report, table
from tread_lab.specs import RunSpec, decode, encode

STORED = Path(__file__).parent / "stored"


def with_parts(**parts: Any) -> RunSpec:
    """A run of S/2 in bf16 on ImageNet's latents with other parts."""
    return decode(RunSpec, {**encode(imagenet("S")), "precision": "bf16", **parts})


def test_runs_of_many_parts_are_told_whole() -> None:
    half = {"routes": [{"start": 2, "end": 6, "rate": 0.3}], "routes_until": 0.25}
    runs = {
        "fp32 block, steps without routes": with_parts(**half, fp32_block="j+1"),
        "MDT beside REPA": with_parts(
            routes=["0->B-3"], bypass="mdt", loss="both", repa={"block": 5}, fp32_block="j+1"
        ),
        "SD-DiT": with_parts(
            routes=["0->B-1"], bypass={"kind": "mask", "fill": "entry"}, loss="discrimination"
        ),
    }
    lines = []
    for name, spec in runs.items():
        lines += [f"===== {name}", *(": ".join(row) for row in table(spec)), *said(report(spec))]
    same_as_stored(STORED / "reports.txt", "\n".join(lines) + "\n")


def test_memory_of_compiled_blocks_is_told_where_more_than_a_bound_is_known() -> None:
    told = [dict(table(with_parts(model=name))) for name in ("DiT-S/2", "RWKV-12x384/2")]
    assert ["with compiled blocks" in rows for rows in told] == [True, False]
