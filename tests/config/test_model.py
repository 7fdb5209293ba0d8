"""Names of architectures: there and back, and options that a backbone lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.four_sweeps import same_as_stored
from tread_lab.config import ModelSpec, decode, encode, signature
from tread_lab.config.model import COUNTED, FAMILIES, SIZES, depth_of

NAMES = [
    *(f"{family}-{size}/{patch}" for family in FAMILIES for size in SIZES for patch in (1, 2)),
    *(f"{name}/2" for name in COUNTED),
]
USUAL, RATIOS = {"depth": 2, "width": 36, "heads": 1}, {36: 2.6, 20: 3.33, 44: 2.15}
CUSTOM = ["RWKV-12x32/2", "Mamba-3x64/1", "Mamba-3x64x4/1", "DiT-12x32/2", "DiT-12x32x4/2"]
WRITTEN = (
    *("DiT-12x32x2/2", "DiT-3x320/2", "Mamba-12x32x4/2", "LightningDiT-B/1+qk_norm"),
    *("DiT-XL/1+rope+norm", "MDT-S/2+qk_norm+norm"),
    *({"depth": 12, "width": 384, "heads": heads} for heads in (6, 12)),
    *({"backbone": "rwkv", "depth": 12, "width": width} for width in (384, 960)),
    {"backbone": "mamba", "depth": 12, "width": 960},
    *(
        {**USUAL, "width": width, "mlp_ratio": ratio, "mlp": mlp}
        for width, ratio in RATIOS.items()
        for mlp in ("gelu", "swiglu")
    ),
    *({**USUAL, option: True} for option in ("relative_bias", "trained_positions", "rope")),
)


def test_names_of_models_decode_to_themselves() -> None:
    """Of every family, size and spelling the name and all that follows from it."""
    lines = list[str]()
    for written in (*NAMES, *CUSTOM, *WRITTEN):
        model = decode(ModelSpec, written)
        assert decode(ModelSpec, encode(model)) == model
        if model.mlp_ratio == 4:  # else no name tells it whole
            assert decode(ModelSpec, model.name) == model and depth_of(model.name) == model.depth
        if isinstance(written, str) and written not in WRITTEN:
            assert model.name == written
        more = f"hidden {model.hidden}, text {model.takes_text}, scans {model.scans}"
        lines.append(f"{written} is {model.name}: {model!r}, {more}")
    same_as_stored(Path(__file__).parent / "stored" / "models.txt", "\n".join(lines) + "\n")


def test_scan_forgets_what_it_lacks() -> None:
    """An axis over backbones may leave `heads` in place; equal runs share a signature."""

    def named(**fields: Any) -> str:
        return signature(decode(ModelSpec, {"depth": 2, "width": 32, **fields}))

    assert named(backbone="rwkv", heads=2) == named(backbone="rwkv")
    assert named(backbone="mamba", heads=2, mlp_ratio=2) == named(backbone="mamba")
    assert named(backbone="rwkv", mlp_ratio=2) != named(backbone="rwkv")
