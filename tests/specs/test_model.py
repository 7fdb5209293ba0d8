"""Names of architectures: there and back, near misses, and options that a backbone lacks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tread_lab.specs import ModelSpec, RunSpec, UserError, decode, encode, signature
from tread_lab.specs.model import COUNTED, FAMILIES, SIZES, depth_of

NAMES = [
    *(f"{family}-{size}/{patch}" for family in FAMILIES for size in SIZES for patch in (1, 2)),
    *(f"{name}/2" for name in COUNTED),
]


CUSTOM = ["RWKV-12x32/2", "Mamba-3x64/1", "Mamba-3x64x4/1", "DiT-12x32/2", "DiT-12x32x4/2"]


@pytest.mark.parametrize("name", [*NAMES, *CUSTOM])
def test_a_name_is_the_name_of_what_it_means(name: str) -> None:
    model = decode(ModelSpec, name)
    assert model.name == name
    assert decode(ModelSpec, encode(model)) == model


@pytest.mark.parametrize(
    ("written", "fields", "name"),
    [
        ("DiT-12x32x2/2", {"depth": 12, "width": 32, "heads": 2, "patch": 2}, "DiT-12x32/2"),
        ("DiT-3x320/2", {"depth": 3, "width": 320, "heads": 5}, "DiT-3x320/2"),  # the usual heads
        ("Mamba-12x32x4/2", {"state": 4, "heads": 0}, "Mamba-12x32x4/2"),
        ("Mamba-12x32/2", {"state": 16}, "Mamba-12x32/2"),
        ({"depth": 12, "width": 384, "heads": 6}, {"patch": 2}, "DiT-S/2"),
        ({"depth": 12, "width": 384, "heads": 12}, {"patch": 2}, "DiT-12x384x12/2"),
        ({"backbone": "rwkv", "depth": 12, "width": 384}, {}, "RWKV-S/2"),
        ({"backbone": "mamba", "depth": 12, "width": 960}, {}, "Mamba-111M/2"),
        ({"backbone": "rwkv", "depth": 12, "width": 960}, {}, "RWKV-12x960/2"),
        (
            "LightningDiT-XL/1",
            {"norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": False, "heads": 16},
            "LightningDiT-XL/1",
        ),
        ("LightningDiT-B/1+qk_norm", {"qk_norm": True, "rope": True}, "LightningDiT-B/1+qk_norm"),
        ("DiT-XL/1+rope+norm", {"norm": "rms", "rope": True}, "DiT-XL/1+norm+rope"),
    ],
)
def test_a_model_in_other_words_has_these_fields_and_its_own_name(
    written: Any, fields: dict[str, Any], name: str
) -> None:
    model = decode(ModelSpec, written)
    assert model.name == name and decode(ModelSpec, name) == model
    assert {field: getattr(model, field) for field in fields} == fields


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LightningDiT-XXL/1", "did you mean 'LightningDiT-XL/1'"),
        ("RWKV-210/2", "did you mean 'RWKV-210M/2'"),
        ("DIT-B/2", "did you mean 'DiT-B/2'"),
        ("DiT-s/8", "did you mean 'DiT-S/8'"),
        ("LightningDiT-B/1+qknorm", "did you mean 'qk_norm'"),
        ("RWKV-12x32x2/2", "unknown model 'RWKV-12x32x2/2'"),
        ("transformer", r"write e\.g\. DiT-B/2, RWKV-S/2 or Mamba-12x32/2"),
    ],
)
def test_a_near_miss_is_suggested_else_how_to_write_one(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        decode(ModelSpec, name)


@pytest.mark.parametrize(
    "option", [{"norm": "rms"}, {"mlp": "swiglu"}, {"rope": True}, {"qk_norm": True}]
)
@pytest.mark.parametrize("backbone", ["rwkv", "mamba"])
def test_options_of_another_backbone_are_refused(backbone: str, option: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"is an option of dit; {backbone} has none"):
        decode(ModelSpec, {"backbone": backbone, "depth": 2, "width": 32, **option})


def test_what_a_scan_does_not_read_is_not_in_its_name() -> None:
    """An axis over backbones may leave `heads` in place; equal runs share a signature."""

    def named(**fields: Any) -> str:
        model = decode(ModelSpec, {"depth": 2, "width": 32, **fields})
        return signature(RunSpec(model=model))

    assert named(backbone="rwkv", heads=2) == named(backbone="rwkv")
    assert named(backbone="mamba", heads=2, mlp_ratio=2) == named(backbone="mamba")
    assert named(backbone="rwkv", mlp_ratio=2) != named(backbone="rwkv")


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("DiT-S/2", 12),
        ("DiT-XL/2", 28),
        ("DiT-12x32/2", 12),
        ("LightningDiT-L/1+qk_norm", 24),
        ("RWKV-210M/2", 12),
    ],
)
def test_the_depth_is_read_from_a_name(name: str, depth: int) -> None:
    assert depth_of(name) == depth
    for wrong in ("DiT", "DiT-Q/2"):
        with pytest.raises(UserError):
            depth_of(wrong)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("DiT-S/2", True),
        ("DiT-S/2+qk_norm", True),
        ("DiT-S/2+rope", False),
        ("MDT-S/2", False),
        ("RWKV-S/2", False),
        ("Mamba-S/2", False),
    ],
)
def test_text_stands_where_no_place_is_needed(name: str, takes: bool) -> None:
    assert decode(ModelSpec, name).takes_text == takes


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"width": 30, "heads": 2}, "width: 30 is not a multiple of 4"),
        ({"heads": None}, "missing key 'heads'"),
        ({"heads": 3}, "3 does not divide the width 32"),
        ({"heads": -1}, "heads: must be positive, got -1"),
        ({"depth": 10_001}, "depth: 10001 blocks are more than 10,000"),
        ({"depth": 0}, "depth: must be positive, got 0"),
        ({"patch": 0}, "patch: must be positive, got 0"),
        ({"mlp_ratio": 0}, "mlp_ratio: must be positive, got 0"),
        ({"state": 0}, "state: must be positive, got 0"),
        ({"heads": 16, "rope": True}, "rope: a head of 2 is not a multiple of 4"),
        ({"width": 36, "heads": 6, "rope": True}, "rope: a head of 6 is not a multiple of 4"),
        ({"rope": True, "relative_bias": True}, "relative_bias: attention with rotary positions"),
        ({"state": 8}, "state: 8 is an option of mamba; dit has none"),
    ],
)
def test_a_network_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    usual = {"depth": 2, "width": 32, "heads": 2}
    tree = {k: v for k, v in {**usual, **fields}.items() if v is not None}
    with pytest.raises(UserError, match=said):
        decode(ModelSpec, tree)
    assert decode(ModelSpec, {**usual, "depth": 10_000, "rope": True}).depth == 10_000


def test_options_that_make_no_family_are_told_one_by_one() -> None:
    dit = decode(ModelSpec, "DiT-S/2")
    mdt = {"relative_bias": True, "trained_positions": True}
    assert dataclasses.replace(dit, **mdt).name == "MDT-S/2"
    for option in mdt:
        assert dataclasses.replace(dit, **{option: True}).name == f"DiT-S/2+{option}"
    both = decode(ModelSpec, "MDT-S/2+qk_norm+norm")
    assert (both.norm, both.qk_norm, both.relative_bias, both.trained_positions) == (
        "rms", True, True, True
    )  # fmt: skip
    assert both.name == "MDT-S/2+norm+qk_norm"


@pytest.mark.parametrize(
    ("width", "ratio", "mlp", "hidden"),
    [
        (1152, 4.0, "gelu", 4608), (1152, 4.0, "swiglu", 3072), (384, 4.0, "gelu", 1536),
        (384, 4.0, "swiglu", 1024), (36, 2.6, "gelu", 93), (36, 2.6, "swiglu", 62),
        (20, 3.33, "swiglu", 44), (44, 2.15, "swiglu", 62),
    ],
)  # fmt: skip
def test_hidden_widths_are_rounded_down(width: int, ratio: float, mlp: Any, hidden: int) -> None:
    model = ModelSpec(depth=2, width=width, heads=1, mlp_ratio=ratio, mlp=mlp)
    assert model.hidden == hidden
