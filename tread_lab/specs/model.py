"""What a network is: backbones and their options, published sizes, names such as `DiT-XL/2`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tread_lab.specs.errors import UserError, check_positive, lookup, suggest
from tread_lab.specs.extensions import Kind

DEEPEST = 10_000  # blocks
SIZES = {  # DiT paper, table 1: depth, width, heads
    "S": (12, 384, 6),
    "B": (12, 768, 12),
    "L": (24, 1024, 16),
    "XL": (28, 1152, 16),
}
# The word before a size, as in `DiT-S/2`; that of an extension is its name.
FAMILIES = {"DiT": "dit", "LightningDiT": "dit", "RWKV": "rwkv", "Mamba": "mamba"}
STATE = 16  # S of a published Mamba


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """What specs need of a backbone, and where its code is.

    Attributes:
        scans: whether it reads its tokens in order, so that only whole rows may leave.
        options: the fields of a `ModelSpec` that it has beside depth, width, patch and init.
        code: reference to a class as in `backbones.table`, where an extension has it.
        cost: reference to a `BlockCost` of `engine.cost.blocks`, where an extension has it; without
            it a pass of a block is counted.
    """

    scans: bool = False
    options: tuple[str, ...] = ()
    code: str = ""
    cost: str = "tread_lab.engine.cost.counted:COUNTED"


BACKBONES = Kind(
    "backbone",
    {
        "dit": Backbone(options=("heads", "mlp_ratio", "norm", "mlp", "rope", "qk_norm")),
        "rwkv": Backbone(scans=True, options=("mlp_ratio",)),
        "mamba": Backbone(scans=True, options=("state",)),
    },
    Backbone,
)
# The block of LightningDiT's four published configurations; none of them normalises queries and
# keys (`use_qknorm: false`), which its code recommends where the loss becomes NaN.
LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True}
OPTIONS = {**LIGHTNING, "qk_norm": True}
# TREAD, table 2, gives the parameters of these two and for RWKV the 12 blocks; the widths are ours,
# chosen so that 12 blocks have those parameters within 1% (210.7M and 111.6M).
COUNTED = {"RWKV-210M": (12, 952), "Mamba-111M": (12, 960)}


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A denoising network of equal blocks; `DiT-S/2` is short for the published size, patch 2.

    Attributes:
        backbone: `dit` (attention), `rwkv` (Diffusion-RWKV) or `mamba` (bidirectional Mamba).
        depth: B, the number of blocks.
        width: d, the width of a token.
        heads: attention heads; must divide the width. Scans have none and forget it.
        patch: p, the side of a patch in latent pixels.
        mlp_ratio: hidden width of the MLP over d; SwiGLU has 2/3 of it. Mamba has no MLP.
        norm, mlp, rope, qk_norm: DiT's block as published, or the parts of LightningDiT's: RMSNorm,
            SwiGLU, rotary positions; its code can also normalise queries and keys, and no published
            configuration does.
        state: S, the state of a Mamba channel.
        init: `adaln_zero` zeroes the modulations and the output last (DiT); `official_code`
            follows the published TREAD code, whose Xavier pass overwrites those zeros.
    """

    backbone: Annotated[str, BACKBONES] = "dit"
    depth: int
    width: int
    heads: int = 0
    patch: int = 2
    mlp_ratio: float = 4.0
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "swiglu"] = "gelu"
    rope: bool = False
    qk_norm: bool = False
    state: int = STATE
    init: Literal["adaln_zero", "official_code"] = "adaln_zero"

    def __post_init__(self) -> None:
        check_positive(self, "depth", "width", "patch", "mlp_ratio", "state")
        if self.depth > DEEPEST:
            raise UserError(f"depth: {self.depth} blocks are more than {DEEPEST:,}")
        if self.heads < 0:
            raise UserError(f"heads: must be positive, got {self.heads}")
        options = check_options(self)
        if self.width % 4:
            raise UserError(f"width: {self.width} is not a multiple of 4 (2-D positions need it)")
        if "heads" not in options:
            object.__setattr__(self, "heads", 0)
        if "mlp_ratio" not in options:
            object.__setattr__(self, "mlp_ratio", 4.0)

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        """`LightningDiT-XL/1` -> depth, width, heads, patch and options."""
        return parse_name(value)

    @property
    def name(self) -> str:
        """`DiT-S/2` for a published size, else `DiT-12x32/2` (depth x width / patch)."""
        return name_of(self)

    @property
    def scans(self) -> bool:
        """Whether tokens are read in order, so that only whole rows may leave."""
        return lookup(BACKBONES, self.backbone, "backbone").scans

    @property
    def hidden(self) -> int:
        """h, the hidden width of the MLP."""
        hidden = int(self.width * self.mlp_ratio)
        return int(2 / 3 * hidden) if self.mlp == "swiglu" else hidden


def parse_name(value: Any) -> dict[str, Any]:
    """Return `DiT-XL/2`, `RWKV-210M/2`, `DiT-12x32x2/2`, `LightningDiT-B/1+qk_norm` as fields.

    A custom size is depth x width, then x heads where there is attention; a Mamba may say x state.
    `/2` is the patch; options of the modern block may follow.

    Raises:
        UserError: no such family or size; a near miss is suggested.
    """
    name, *added = value.split("+") if isinstance(value, str) else [""]
    match = re.fullmatch(r"(\w+)-(\w+)/(\d{1,9})", name)
    backbone = _backbone(match[1]) if match else None
    shape = _shape(backbone, match[1], match[2]) if match and backbone else None
    if match is None or backbone is None or shape is None:
        known = [f"{f}-{s}/{p}" for f in FAMILIES for s in SIZES for p in (1, 2, 4, 8)]
        known += [f"{name}/2" for name in COUNTED]
        raise UserError(f"unknown model {value!r}{_hint(value, known)}")
    options = dict(LIGHTNING) if match[1] == "LightningDiT" else {}
    options |= {option: lookup(OPTIONS, option, value) for option in added}
    return {"backbone": backbone, **shape, "patch": int(match[3]), **options}


def name_of(model: ModelSpec) -> str:
    """Return `DiT-S/2` for a published size, else `DiT-12x32/2` (depth x width / patch).

    Options of the modern block are appended (`DiT-S/2+rope`); RMSNorm, SwiGLU and rotary positions
    together make a LightningDiT.
    """
    chosen = [option for option, value in OPTIONS.items() if getattr(model, option) == value]
    backbones = {backbone: family for family, backbone in reversed(FAMILIES.items())}
    lightning = LIGHTNING.keys() <= set(chosen)
    family = "LightningDiT" if lightning else backbones.get(model.backbone, model.backbone)
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


def check_options(model: ModelSpec) -> tuple[str, ...]:
    """Refuse options that the backbone does not have; return those that it has.

    Raises:
        UserError: an option of another backbone, or a head that cannot be rotated.
    """
    options = lookup(BACKBONES, model.backbone, "backbone").options
    chosen = {name: value for name, value in OPTIONS.items() if getattr(model, name) == value}
    if model.state != STATE:
        chosen["state"] = model.state
    for name in [name for name in chosen if name not in options]:
        owners = [backbone for backbone, own in BACKBONES.built_in.items() if name in own.options]
        owner = " and ".join(owners)
        raise UserError(
            f"{name}: {chosen[name]} is an option of {owner}; {model.backbone} has none"
        )
    if "heads" in options:
        _check_heads(model)
    return options


def _check_heads(model: ModelSpec) -> None:
    if model.heads == 0:
        raise UserError("missing key 'heads': attention needs a number that divides the width")
    if model.width % model.heads:
        raise UserError(f"heads: {model.heads} does not divide the width {model.width}")
    if model.rope and model.width // model.heads % 4:
        raise UserError(f"rope: a head of {model.width // model.heads} is not a multiple of 4")


def _backbone(family: str) -> str | None:
    """Return the backbone of a family; `None` for an unknown one."""
    return FAMILIES.get(family) or (family if family in BACKBONES.extensions else None)


def _shape(backbone: str, family: str, size: str) -> dict[str, int] | None:
    """Return depth, width and, where there is attention, heads; `None` for an unknown size."""
    options = BACKBONES[backbone].options
    if size in SIZES:
        depth, width, heads = SIZES[size]
        return {"depth": depth, "width": width, "heads": heads if "heads" in options else 0}
    if f"{family}-{size}" in COUNTED:
        depth, width = COUNTED[f"{family}-{size}"]
        return {"depth": depth, "width": width}
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})(?:x(\d{1,9}))?", size)
    third = next((name for name in ("heads", "state") if name in options), None)
    if match is None or (third == "heads" and not match[3]) or (match[3] and third is None):
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
    examples = (
        "; write e.g. DiT-B/2, RWKV-S/2 or Mamba-12x32/2, or install the package that adds it"
    )
    return near if "did you mean" in near else examples
