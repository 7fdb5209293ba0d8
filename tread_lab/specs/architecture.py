"""Architectures by name: published sizes, shorthands such as `LightningDiT-XL/1`, their options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tread_lab.specs.errors import UserError, lookup, suggest

if TYPE_CHECKING:
    from tread_lab.specs.run import ModelSpec

SIZES = {  # DiT paper, table 1: depth, width, heads
    "S": (12, 384, 6),
    "B": (12, 768, 12),
    "L": (24, 1024, 16),
    "XL": (28, 1152, 16),
}
FAMILIES = {"DiT": "dit", "LightningDiT": "dit", "RWKV": "rwkv", "Mamba": "mamba"}
# Whether a backbone reads its tokens in order (a scan), so that only whole rows may leave; the
# others have attention. Its keys are the backbones there are.
SCANS = {"dit": False, "rwkv": True, "mamba": True}
STATE = 16  # S of a published Mamba
# The block of LightningDiT's four published configurations; none of them normalises queries and
# keys (`use_qknorm: false`), which its code recommends where the loss becomes NaN.
LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True}
OPTIONS = {**LIGHTNING, "qk_norm": True}
# TREAD, table 2, gives the parameters of these two and for RWKV the 12 blocks; the widths are ours,
# chosen so that 12 blocks have those parameters within 1% (210.7M and 111.6M).
COUNTED = {"RWKV-210M": (12, 952), "Mamba-111M": (12, 960)}


def parse_name(value: Any) -> dict[str, Any]:
    """Return `DiT-XL/2`, `RWKV-210M/2`, `DiT-12x32x2/2`, `LightningDiT-B/1+qk_norm` as fields.

    A custom size is depth x width, then x heads where there is attention; a Mamba may say x state.
    `/2` is the patch; options of the modern block may follow.

    Raises:
        UserError: no such family or size; a near miss is suggested.
    """
    name, *added = value.split("+") if isinstance(value, str) else [""]
    match = re.fullmatch(r"(\w+)-(\w+)/(\d{1,9})", name)
    shape = _shape(match[1], match[2]) if match and match[1] in FAMILIES else None
    if match is None or shape is None:
        known = [f"{f}-{s}/{p}" for f in FAMILIES for s in SIZES for p in (1, 2, 4, 8)]
        known += [f"{name}/2" for name in COUNTED]
        raise UserError(f"unknown model {value!r}{_hint(value, known)}")
    options = dict(LIGHTNING) if match[1] == "LightningDiT" else {}
    options |= {option: lookup(OPTIONS, option, value) for option in added}
    return {"backbone": FAMILIES[match[1]], **shape, "patch": int(match[3]), **options}


def name_of(model: ModelSpec) -> str:
    """Return `DiT-S/2` for a published size, else `DiT-12x32/2` (depth x width / patch).

    Options of the modern block are appended (`DiT-S/2+rope`); RMSNorm, SwiGLU and rotary positions
    together make a LightningDiT.
    """
    chosen = [option for option, value in OPTIONS.items() if getattr(model, option) == value]
    backbones = {backbone: family for family, backbone in reversed(FAMILIES.items())}
    lightning = LIGHTNING.keys() <= set(chosen)
    family = "LightningDiT" if lightning else backbones[model.backbone]
    suffix = "".join(f"+{o}" for o in chosen if not (lightning and o in LIGHTNING))
    return f"{family}-{_size(model, family)}/{model.patch}{suffix}"


def depth_of(name: str) -> int:
    """Return B, the number of blocks, of a name that `name_of` gave.

    Raises:
        UserError: no such family or size.
    """
    size = re.fullmatch(r"(\w+-(\w+))/\d+(?:\+\w+)*", name)
    if size is None:
        raise UserError(f"unknown model {name!r}")
    custom = re.fullmatch(r"(\d+)x\d+", size[2])
    if custom is not None:
        return int(custom[1])
    depths = {**{size: shape[0] for size, shape in SIZES.items()}}
    depths |= {counted.partition("-")[2]: shape[0] for counted, shape in COUNTED.items()}
    return lookup(depths, size[2], "model")


def check_options(model: ModelSpec) -> None:
    """Refuse what the backbone does not have.

    Raises:
        UserError: an option of another backbone, or a head that cannot be rotated.
    """
    attention = not lookup(SCANS, model.backbone, "backbone")
    for option, value in OPTIONS.items():
        if not attention and getattr(model, option) == value:
            raise UserError(f"{option}: {value} is an option of dit; {model.backbone} has none")
    if model.backbone != "mamba" and model.state != STATE:
        raise UserError(f"state: {model.state} is an option of mamba; {model.backbone} has none")
    if attention and model.heads == 0:
        raise UserError("missing key 'heads': attention needs a number that divides the width")
    if attention and model.width % model.heads:
        raise UserError(f"heads: {model.heads} does not divide the width {model.width}")
    if model.rope and model.width // model.heads % 4:
        raise UserError(f"rope: a head of {model.width // model.heads} is not a multiple of 4")


def _shape(family: str, size: str) -> dict[str, int] | None:
    """Depth, width and, where there is attention, heads; nothing for an unknown size."""
    attention = not SCANS[FAMILIES[family]]
    if size in SIZES:
        depth, width, heads = SIZES[size]
        return {"depth": depth, "width": width, "heads": heads if attention else 0}
    if f"{family}-{size}" in COUNTED:
        depth, width = COUNTED[f"{family}-{size}"]
        return {"depth": depth, "width": width}
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})(?:x(\d{1,9}))?", size)
    third = {"dit": "heads", "mamba": "state"}.get(FAMILIES[family])
    if match is None or (attention and not match[3]) or (match[3] and third is None):
        return None
    shape = {"depth": int(match[1]), "width": int(match[2])}
    return {**shape, third: int(match[3])} if third and match[3] else shape


def _size(model: ModelSpec, family: str) -> str:
    shape = (model.depth, model.width)
    for size, known in SIZES.items():
        if known[:2] == shape and model.heads in (0, known[2]):
            return size
    for name, counted in COUNTED.items():
        if name.startswith(f"{family}-") and counted == shape:
            return name.removeprefix(f"{family}-")
    return f"{model.depth}x{model.width}"


def _hint(value: Any, known: list[str]) -> str:
    near = suggest(str(value), known)
    return near if "did you mean" in near else "; write e.g. DiT-B/2, RWKV-S/2 or Mamba-12x32/2"
