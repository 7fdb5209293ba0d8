"""What has no effect is not part of a run; settings follow its length, or are refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import same_as_stored
from tests.sweep.plans import tiny
from tread_lab.config import RunSpec, TrainSpec, UserError, decode, encode
from tread_lab.config.labels import run_label
from tread_lab.config.recipe import EmaSpec
from tread_lab.config.run import steps_alike
from tread_lab.config.signature import signature
from tread_lab.config.sweep import check_treatments
from tread_lab.cost.training import cost
from tread_lab.methods.repa.spec import RepaSpec

STORED = Path(__file__).parent / "stored"
BASE = {"model": "DiT-S/2", "routes": ["2->8"], "train": {"steps": 100}}


def test_phase_of_routes_is_settled_in_steps() -> None:
    """Of each beginning and end the steps, whether a record says that they are alike, and what
    SPRINT drops of its paths in dense ones."""
    first, last = (0, 1, 5, 0.125, 0.127, 1.0, 500), (None, 0, 7, 50, 99, 100, 0.5, 0.509, 1.0, 500)
    lines = list[str]()
    for begin, end in itertools.product(first, last):
        run = decode(RunSpec, {**BASE, "routes_from": begin, "routes_until": end})
        drop = decode(RunSpec, {**encode(run), "bypass": "sprint"}).bypass.dense_path_drop  # type: ignore[union-attr]
        fields = f"from {run.routes_from} until {run.routes_until}"
        on = ["dense" if routes == () else str(*routes) for _, routes in run.phases]
        parts = [f"{part.start}..{part.stop} {how}" for (part, _), how in zip(run.phases, on)]
        alike = "alike" if steps_alike(encode(run)) else "of two kinds"
        lines.append(f"{begin} to {end}: {', '.join(parts)}, {alike}, {fields}, path-drop {drop}")
    same_as_stored(STORED / "phases.txt", "\n".join(lines) + "\n")
    assert decode(RunSpec, {**BASE, "train": {"steps": 0}}).phases == ()


def test_rate_changes_in_equal_stages_of_exact_cost() -> None:
    def run(rate: float, end: float | None = None, steps: int = 80) -> RunSpec:
        route = {"start": 2, "end": 8, "rate": rate, "rate_end": end}
        return decode(RunSpec, {**BASE, "routes": [route], "train": {"steps": steps}})

    annealed, rates = run(0.5, 0.0), [0.5 * (7 - k) / 7 for k in range(8)]
    assert [(part.start, part.stop) for part, _ in annealed.phases] == [
        (k, k + 10) for k in range(0, 80, 10)
    ]
    assert [route.rate for _, (route,) in annealed.phases] == pytest.approx(rates)
    stages = [run(rate, steps=10) for rate in rates]
    assert cost(annealed).train_flops == sum(cost(stage).train_flops for stage in stages)
    assert not steps_alike(encode(annealed)) and steps_alike(encode(run(0.5, 0.5)))
    assert signature(run(0.5, 0.5)) == signature(run(0.5))
    assert run_label(annealed).startswith("2->8 s=0.5->0")


@pytest.mark.parametrize(
    ("fp32_block", "blocks", "by"),
    [
        ("j", {8, 11}, "fused"),
        ("j+1", {9}, "fused"),
        ("j+1/math", {9}, "math"),
        ("off", set(), "fused"),
    ],
)
def test_fp32_blocks_follow_the_ends_of_routes(fp32_block: str, blocks: set[int], by: str) -> None:
    tree = {"model": "DiT-S/2", "routes": ["2->8 by rows", "10->11 by rows"]}
    tree["fp32_block"] = fp32_block
    run = decode(RunSpec, tree)
    assert run.fp32_blocks == blocks  # there is no block 12 behind the last
    assert run.fp32_attention == by
    scanning = decode(RunSpec, {**tree, "model": "RWKV-12x384/2"})  # it has no attention
    assert scanning.fp32_blocks == blocks and scanning.fp32_attention == "fused"


def test_aligned_block_follows_the_depth() -> None:
    written, depths = (None, 0, 2, "B-1", "1/2", 0.25), (3, 4, 5, 8, 12, 13, 24, 28)
    lines = [
        f"{block} of {depths}: {[RepaSpec(block=block).block_of(depth) for depth in depths]}"
        for block in written
    ]
    same_as_stored(STORED / "aligned.txt", "\n".join(lines) + "\n")


def test_shares_of_steps_become_steps() -> None:
    assert EmaSpec(halflife=0.5).at(10) ** 5 == pytest.approx(0.5)
    assert EmaSpec(halflife=0.5).at(0) == EmaSpec().decay == 0.9999
    assert EmaSpec(decay=0.99).at(10) == EmaSpec(decay=0.99).at(400_000) == 0.99
    assert EmaSpec(decay=0.97).initial(50) == pytest.approx(0.97**50)
    assert [TrainSpec(steps=7, warmup=share).warmup for share in (0.2, 0.25, 0.3)] == [1, 2, 2]


def run(**changes: Any) -> RunSpec:
    tree = encode(tiny(steps=60, routes=["0->1"]))
    train = {**tree["train"], **changes.pop("train", {})}
    return decode(RunSpec, {**tree, "train": train, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train": {"ema": 0.9999}}, "^train.ema: must be shorter, because 99% of the EMA"),
        ({"train": {"ema": {"halflife": 2.0}}}, "^train.ema: must be shorter, because 71%"),
        ({"train": {"warmup": 60}}, r"^train.warmup: must be below train.steps \(60\), got 60"),
        ({"routes_from": 60}, "^routes_from: must be below the last routed step 60"),
        (
            {"routes_from": 9, "routes_until": 9},
            "^routes_from: must be below the last routed",
        ),
    ],
)
def test_setting_without_effect_is_refused(changes: dict[str, Any], said: str) -> None:
    check_treatments([run(), run(routes_until=0), run(train={"steps": 0, "ema": 0.9999})])
    child = decode(RunSpec, {**encode(run()), "init_from": {"run": encode(run(**changes))}})
    for wrong in (run(**changes), child):
        with pytest.raises(UserError, match=said):
            check_treatments([run(), wrong])
