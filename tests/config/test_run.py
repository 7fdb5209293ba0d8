"""Equal runs are equal specs: what has no effect is not part of a run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.four_sweeps import same_as_stored
from tread_lab.config import RunSpec, decode, encode
from tread_lab.config.run import steps_alike

BASE = {"model": "DiT-S/2", "routes": ["2->8"], "train": {"steps": 100}}


def test_a_phase_of_routes_is_settled_in_steps_and_a_whole_one_is_not_signed() -> None:
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
    same_as_stored(Path(__file__).parent / "stored" / "phases.txt", "\n".join(lines) + "\n")
    dense, none = ({**BASE, **tree} for tree in ({"routes": []}, {"train": {"steps": 0}}))
    assert decode(RunSpec, dense).phases == ((range(100), ()),)
    assert decode(RunSpec, none).phases == ()


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
    of = {p: decode(RunSpec, {**tree, "precision": p}) for p in ("fp32", "tf32", "fp16")}
    assert {p: run.fp32_blocks for p, run in of.items()} == {
        "fp32": set(), "tf32": set(), "fp16": blocks
    }  # fmt: skip
    assert {of["fp32"].fp32_block, of["tf32"].fp32_block} == {"off"}  # nothing is rounded there


def test_a_dense_run_of_the_same_size_has_no_parent_and_the_eldest_is_first() -> None:
    eldest = {**BASE, "seed": 1}
    parent = {**BASE, "seed": 2, "init_from": {"run": eldest}}
    child = decode(RunSpec, {**BASE, "seed": 3, "init_from": {"run": parent}})
    assert [run.seed for run in child.ancestors] == [1, 2]
    dense = child.dense()
    assert (dense.routes, dense.init_from, dense.seed, dense.train.steps) == ((), None, 3, 100)
