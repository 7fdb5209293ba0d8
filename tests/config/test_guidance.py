"""Guidance is written as methods are known, resolved to two branches, and signed by its effect."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.four_sweeps import same_as_stored
from tread_lab.config import (
    GuidanceSpec,
    RunSpec,
    SamplesSpec,
    UserError,
    decode,
    encode,
    signature,
)
from tread_lab.config.guidance import RateSpec, check_branches, check_guidance
from tread_lab.config.run import InitSpec

SG = {"weight": 1.5, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}}


def guidance(tree: Any) -> GuidanceSpec:
    return decode(GuidanceSpec, tree, "guidance")


def run(*routes: str, **changes: Any) -> RunSpec:
    model = {"depth": 12, "width": 8, "heads": 1}
    return decode(RunSpec, {"model": model, "routes": list(routes), **changes})


STRONG: tuple[dict[str, Any], ...] = (
    *({}, {"rate": 0.5}, {"rate": "0->0.6"}, {"step": 5}, {"label": "none", "step": 3}),
    {"path": "dropped"},
)
WEAK: tuple[dict[str, Any], ...] = (
    *({}, {"rate": 0.9}, {"rate": "0.6->0", "step": 50}, {"rate": 0.9, "label": "none"}),
    *({"step": 5}, {"step": 5, "label": "none"}),
    *({"path": "dropped"}, {"path": "dropped", "label": "class"}),
)


def test_method_is_what_weak_branch_lacks() -> None:
    lines = list[str]()
    for weight, strong, weak in [*itertools.product([1], STRONG, WEAK[:1]),
                                 *itertools.product([1.3], STRONG, WEAK)]:  # fmt: skip
        spec = guidance({"weight": weight, "strong": strong, "weak": weak})
        assert guidance(encode(spec)) == spec
        labels = [branch.label for branch in spec.branches]
        lines.append(f"{weight} of {strong} and {weak}: {spec.method!r} {labels}")
    assert guidance(2.0) == guidance({"weight": 2.0})
    same_as_stored(Path(__file__).parent / "stored" / "methods.txt", "\n".join(lines) + "\n")


def test_equal_sums_share_a_signature() -> None:
    def signed(tree: Any) -> str:
        return signature(decode(SamplesSpec, {"sampler": {"guidance": tree}}))

    weak = {"weight": 1, "weak": {"rate": 0.9, "step": 5}, "channels": "first3"}
    assert signed(1) == signed(weak) == signed({"interval": [0.1, 1]})
    assert guidance({**weak, "strong": {"rate": 0.5}, "routes": ["2->8"]}).routes != ()
    assert signed({"weight": 2, "routes": ["2->8"]}) == signed(2)
    changes: list[dict[str, Any]] = [
        {},
        {"weight": 1.6},
        {"strong": {"rate": 0.4}},
        {"weak": {"rate": 0.8}},
        {"weak": {"rate": 0.9, "label": "none"}},
        {"weak": {"rate": 0.9, "step": 5}},
        {"interval": [0.1, 1.0]},
        {"channels": "first3"},
        {"routes": ["2->8"]},
    ]
    assert len({signed({**SG, **change}) for change in changes}) == len(changes)


def test_rate_changes_over_sampling() -> None:
    cosine, inverse = decode(RateSpec, "0.6->0"), decode(RateSpec, "0->0.6")
    assert [cosine.at(p) for p in (0, 0.5, 1)] == pytest.approx([0.6, 0.3, 0])
    for p in (0.1, 0.4, 0.8):
        assert cosine.at(p) + inverse.at(p) == pytest.approx(0.6)
    assert decode(RateSpec, 0.5).at(0.3) == 0.5 and str(cosine) == "0.6->0"


def test_unkept_checkpoint_is_refused_before_training() -> None:
    for branch in ("strong", "weak"):
        spec = guidance({"weight": 2, branch: {"step": 50}})
        with pytest.raises(
            UserError, match=r"a kept checkpoint, got 50. Try execution.keep_steps=\[50\]"
        ):
            check_guidance(run(), spec)
        check_guidance(run(execution={"keep_steps": [50]}), spec)
        check_guidance(run(train={"steps": 50}), spec)
        with pytest.raises(UserError, match=r"at most 49 \(the last step\), got 50$"):
            check_guidance(run(train={"steps": 49}, execution={"keep_steps": [50]}), spec)


def test_guidance_by_equal_branches_is_refused() -> None:
    own, end = run(train={"steps": 50}), {"weight": 2, "weak": {"step": 50}}
    for tree, step in ((end, None), ({"weight": 2, "weak": {"step": 20}}, 20)):
        with pytest.raises(UserError, match=rf"got step {step or 50} for both"):
            check_branches(own, guidance(tree), step)
    for tree, step in ((end, 20), ({**end, "weak": {"step": 50, "rate": 0.5}}, None), (2, None)):
        check_branches(own, guidance(tree), step)


def test_guidance_by_unseen_labels_is_refused() -> None:
    seen, never, bare = (run(train={"label_drop": drop}) for drop in (0.1, 0, 1))
    child, null = replace(never, init_from=InitSpec(run=never)), {"strong": {"label": "none"}}
    for start in (InitSpec(run=seen), InitSpec(file="DiT.pt", digest="0")):
        for own, tree in ((never, 2), (bare, 1)):
            check_branches(replace(own, init_from=start), guidance(tree), None)
    for own, tree in ((seen, 2), (never, 1), (bare, null)):
        check_branches(own, guidance(tree), None)
    for own, tree, said in ((never, 2, "the null"), (child, 2, "the null"), (bare, 1, "classes")):
        with pytest.raises(UserError, match=rf"^guidance: must not use {said}.*label_drop"):
            check_branches(own, guidance(tree), None)
