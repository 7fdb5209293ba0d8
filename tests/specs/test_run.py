"""Equal runs are equal specs: what has no effect is not part of a run."""

from __future__ import annotations

import pytest

from tread_lab.specs import RunSpec, decode, signature

BASE = {"model": "DiT-S/2", "routes": ["2->8"], "train": {"steps": 100}}


@pytest.mark.parametrize(("written", "until"), [(100, None), (1.0, None), (99, 99), (0.5, 50)])
def test_routes_that_last_to_the_end_are_never_switched_off(
    written: float, until: int | None
) -> None:
    run = decode(RunSpec, {**BASE, "routes_until": written})
    assert run.routes_until == until
    assert (signature(run) == signature(decode(RunSpec, BASE))) == (until is None)
    assert run.routed_steps == range(until or 100)


def test_how_a_parent_was_initialised_is_none_of_its_childs_concern() -> None:
    model = {"depth": 4, "width": 16, "heads": 2}
    parent = {"model": {**model, "init": "official_code"}}
    child = decode(RunSpec, {"model": model, "init_from": {"run": parent}})
    assert child.ancestors == (decode(RunSpec, parent),)


@pytest.mark.parametrize(("fp32_block", "blocks"), [("j", {8, 11}), ("j+1", {9}), ("off", set())])
def test_the_blocks_in_fp32_are_those_at_the_ends_of_routes(
    fp32_block: str, blocks: set[int]
) -> None:
    tree = {"model": "DiT-S/2", "routes": ["2->8", "10->11"], "fp32_block": fp32_block}
    assert decode(RunSpec, tree).fp32_blocks == blocks  # there is no block 12 behind the last
    assert decode(RunSpec, {**tree, "precision": "fp32"}).fp32_blocks == set()
