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


def test_a_custom_size_that_names_no_heads_has_the_usual_ones() -> None:
    model = decode(ModelSpec, "DiT-12x32x2/2")
    assert (model.depth, model.width, model.heads, model.patch) == (12, 32, 2, 2)
    assert model.name == "DiT-12x32/2" and decode(ModelSpec, "DiT-12x32/2") == model
    assert decode(ModelSpec, "DiT-3x320/2").heads == 5
    with pytest.raises(UserError, match="unknown model"):
        decode(ModelSpec, "RWKV-12x32x2/2")


def test_a_custom_mamba_may_name_its_state() -> None:
    assert decode(ModelSpec, "Mamba-12x32x4/2").state == 4
    assert decode(ModelSpec, "Mamba-12x32/2").state == 16


def test_lightning_is_dit_with_three_options_and_no_qk_norm() -> None:
    options: dict[str, Any] = {"norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": False}
    dit = decode(ModelSpec, "DiT-XL/1")
    assert dataclasses.replace(dit, **options) == decode(ModelSpec, "LightningDiT-XL/1")
    some = dataclasses.replace(dit, rope=True, norm="rms")
    assert some.name == "DiT-XL/1+norm+rope"


def test_qk_norm_is_switched_on_by_name_and_has_another_signature() -> None:
    plain, normed = (decode(ModelSpec, f"LightningDiT-B/1{o}") for o in ("", "+qk_norm"))
    assert normed == dataclasses.replace(plain, qk_norm=True)
    assert (plain.name, normed.name) == ("LightningDiT-B/1", "LightningDiT-B/1+qk_norm")
    assert signature(RunSpec(model=plain)) != signature(RunSpec(model=normed))
    with pytest.raises(UserError, match="did you mean 'qk_norm'"):
        decode(ModelSpec, "LightningDiT-B/1+qknorm")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LightningDiT-XXL/1", "LightningDiT-XL/1"),
        ("RWKV-210/2", "RWKV-210M/2"),
        ("DIT-B/2", "DiT-B/2"),
    ],
)
def test_a_near_miss_is_suggested(name: str, near: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{near}'"):
        decode(ModelSpec, name)


def test_a_far_miss_shows_how_to_write_one() -> None:
    with pytest.raises(UserError, match=r"write e\.g\. DiT-B/2, RWKV-S/2 or Mamba-12x32/2"):
        decode(ModelSpec, "transformer")


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


def test_the_hidden_width_of_swiglu_keeps_the_parameters() -> None:
    assert decode(ModelSpec, "DiT-XL/2").hidden == 4608
    assert decode(ModelSpec, "LightningDiT-XL/2").hidden == 3072


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


def test_a_published_size_with_other_heads_has_no_published_name() -> None:
    names = [ModelSpec(depth=12, width=384, heads=heads).name for heads in (6, 12)]
    assert names == ["DiT-S/2", "DiT-12x384x12/2"]


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
    [(384, 4.0, "gelu", 1536), (384, 4.0, "swiglu", 1024), (36, 2.6, "gelu", 93),
     (36, 2.6, "swiglu", 62), (20, 3.33, "swiglu", 44), (44, 2.15, "swiglu", 62)],
)  # fmt: skip
def test_hidden_widths_are_rounded_down(width: int, ratio: float, mlp: Any, hidden: int) -> None:
    model = ModelSpec(depth=2, width=width, heads=1, mlp_ratio=ratio, mlp=mlp)
    assert model.hidden == hidden


def test_a_scan_of_a_published_size_has_its_name_and_another_its_numbers() -> None:
    assert ModelSpec(backbone="rwkv", depth=12, width=384).name == "RWKV-S/2"
    assert ModelSpec(backbone="mamba", depth=12, width=960).name == "Mamba-111M/2"
    assert ModelSpec(backbone="rwkv", depth=12, width=960).name == "RWKV-12x960/2"
    with pytest.raises(UserError, match="did you mean 'DiT-S/8'"):
        decode(ModelSpec, "DiT-s/8")
