"""What a network is: backbones and their options, published sizes, names such as `DiT-XL/2`."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tread_lab.config.decode import Count, Natural, Positive, decode, settle, within
from tread_lab.config.errors import UserError, lookup, near
from tread_lab.config.registry import Registry

# DiT paper, table 1: depth, width, heads
SIZES = {"S": (12, 384, 6), "B": (12, 768, 12), "L": (24, 1024, 16), "XL": (28, 1152, 16)}
# The word before a size, as in `DiT-S/2`; that of a plugin is its name.
FAMILIES = {"DiT": "dit", "LightningDiT": "dit", "MDT": "dit", "RWKV": "rwkv", "Mamba": "mamba"}
STATE = 16  # S of a published Mamba
MLP_SHARE = {"gelu": 1.0, "swiglu": 2 / 3}  # of d mlp_ratio, so that both have the same parameters


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """Properties of a backbone that specs use.

    Attributes:
        scans: whether it reads tokens in order, so that only whole rows can be routed.
        compiles: whether a block compiles to one graph; Mamba's scan, a loop over tokens, would be
            unrolled.
        alike: whether all blocks have equal cost; otherwise each is counted.
        texts: whether a block accepts text tokens beside image tokens.
        options: the fields of a `ModelSpec` that it has beside depth, width, patch and init.
    """

    scans: bool = False
    compiles: bool = True
    alike: bool = True
    texts: bool = False
    options: tuple[str, ...] = ()


BACKBONES = Registry(
    "backbone",
    {
        "dit": Backbone(
            texts=True,
            options=(
                *("heads", "mlp_ratio", "norm", "mlp", "rope", "qk_norm"),
                *("relative_bias", "trained_positions"),
            ),
        ),
        "rwkv": Backbone(scans=True, options=("mlp_ratio",)),
        "mamba": Backbone(scans=True, compiles=False, options=("state",)),
    },
)
# The block of LightningDiT's four published configurations; none of them normalises queries and
# keys (`use_qknorm: false`), which its code recommends where the loss becomes NaN.
LIGHTNING = {"norm": "rms", "mlp": "swiglu", "rope": True}
# The block and the positions of MDT (Gao et al. 2023); what it trains beside them is a bypass.
MDT = {"relative_bias": True, "trained_positions": True}
OPTIONS = {**LIGHTNING, "qk_norm": True, **MDT}
# Families of DiT blocks, the more special first: those options make this name.
BLOCKS: dict[str, dict[str, Any]] = {"LightningDiT": LIGHTNING, "MDT": MDT}
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
        heads: attention heads; must divide the width. Ignored by scans.
        patch: p, the side of a patch in latent pixels.
        mlp_ratio: hidden width of the MLP over d; SwiGLU has 2/3 of it. Mamba has no MLP.
        norm, mlp, rope, qk_norm: DiT's block as published, or the parts of LightningDiT's: RMSNorm,
            SwiGLU, rotary positions; `qk_norm` (normalised queries and keys) is in its code, but in
            no published configuration.
        state: S, the state of a Mamba channel.
        relative_bias: attention has a trained bias for each difference of two places and each head
            (MDT).
        trained_positions: positions start as the fixed ones and are trained (MDT).
        init: `adaln_zero` zeroes the modulations and the output last (DiT); `official_code`
            follows the published TREAD code, whose Xavier pass overwrites those zeros.
    """

    backbone: Annotated[str, BACKBONES] = "dit"
    depth: Annotated[int, within("[1, 10000]")]
    width: Count
    heads: Natural = 0
    patch: Count = 2
    mlp_ratio: Positive = 4.0
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "swiglu"] = "gelu"
    rope: bool = False
    qk_norm: bool = False
    state: Count = STATE
    init: Literal["adaln_zero", "official_code"] = "adaln_zero"
    relative_bias: bool = False
    trained_positions: bool = False

    def __post_init__(self) -> None:
        options, usual = BACKBONES[self.backbone].options, {f.name: f.default for f in fields(self)}
        for name in (*OPTIONS, "state"):
            if name not in options and getattr(self, name) != usual[name]:
                owner = next(b for b, own in BACKBONES.items() if name in own.options)
                raise UserError(f"{name}: requires the backbone {owner}, got {self.backbone}")
        if "heads" in options:
            self._check_heads()
        if self.width % 4:
            raise UserError(f"width: must be a multiple of 4, for 2-D positions, got {self.width}")
        scanned = ("heads", "mlp_ratio")
        settle(self, **{name: usual[name] for name in scanned if name not in options})

    def _check_heads(self) -> None:
        if not self.heads or self.width % self.heads:
            usual = f"Try heads={usual_heads(self.width)}."
            raise UserError(f"heads: must divide the width {self.width}, got {self.heads}. {usual}")
        if self.rope and (each := self.width // self.heads) % 4:
            raise UserError(
                f"rope: head width must be a multiple of 4, got {each}. Try rope=false."
            )
        if self.rope and self.relative_bias:
            raise UserError("relative_bias: must be false with rotary positions. Try rope=false.")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        """Return `DiT-XL/2`, `RWKV-210M/2` or `LightningDiT-B/1+qk_norm` as fields.

        A custom size is depth x width, then heads if not `usual_heads` (`DiT-12x32x4/2`), for Mamba
        the state. `/2` is the patch size; block options can follow.

        Raises:
            UserError: unknown family or size; suggests a near miss.
        """
        name, *added = value.split("+") if isinstance(value, str) else [""]
        match = re.fullmatch(r"(\w+)-(\w+)/(\d{1,9})", name)
        family, size, patch = match.groups() if match else ("", "", "")
        backbone = FAMILIES.get(family, family)
        shape = _shape(backbone, family, size) if backbone in BACKBONES else None
        if shape is None:
            raise UserError(f"unknown model {value!r}{_hint(str(value))}")
        options = BLOCKS.get(family, {}) | {name: lookup(OPTIONS, name, value) for name in added}
        return {"backbone": backbone, **shape, "patch": int(patch), **options}

    @functools.cached_property
    def name(self) -> str:
        """`DiT-S/2` for a published size, else `DiT-12x32/2` (depth x width / patch); unusual
        heads, or an unusual state, are appended as in `DiT-12x32x4/2`.

        Options of the modern block are appended (`DiT-S/2+rope`); RMSNorm, SwiGLU and rotary
        positions together make a LightningDiT, a relative bias and trained positions an MDT.
        """
        families = {backbone: family for family, backbone in reversed(FAMILIES.items())}
        chosen = [option for option, value in OPTIONS.items() if getattr(self, option) == value]
        special = (name for name, own in BLOCKS.items() if own.keys() <= {*chosen})
        family = next(special, families.get(self.backbone, self.backbone))
        chosen = [option for option in chosen if option not in BLOCKS.get(family, ())]
        return "+".join([f"{family}-{_size(self, family)}/{self.patch}", *chosen])

    @property
    def scans(self) -> bool:
        """Whether tokens are read in order, so that only whole rows can be routed."""
        return BACKBONES[self.backbone].scans

    @property
    def takes_text(self) -> bool:
        """Whether its blocks accept text tokens, which have no position in the image."""
        return BACKBONES[self.backbone].texts and not (self.rope or self.relative_bias)

    @property
    def hidden(self) -> int:
        """h, the hidden width of the MLP."""
        return int(MLP_SHARE[self.mlp] * int(self.width * self.mlp_ratio))


def depth_of(name: str) -> int:
    """Return B, the number of blocks, of a `ModelSpec.name`."""
    return decode(ModelSpec, name).depth


def _shape(backbone: str, family: str, size: str) -> dict[str, int] | None:
    """Return depth, width and, where the backbone has such, heads or state; `None` for no size."""
    names = ["depth", "width", *(n for n in BACKBONES[backbone].options if n in ("heads", "state"))]
    third = r"(?:x(\d{1,9}))?" if len(names) > 2 else ""
    custom = re.fullmatch(rf"(\d{{1,9}})x(\d{{1,9}}){third}", size)
    shape = dict(zip(("depth", "width", "heads"), SIZES.get(size, ())))
    shape = shape or dict(zip(names, COUNTED.get(f"{family}-{size}", ())))
    if custom is not None:
        shape = {name: int(number) for name, number in zip(names, custom.groups()) if number}
    if not shape:
        return None
    usual = {"heads": usual_heads(shape["width"]), "state": STATE}
    return {name: shape.get(name, usual.get(name, 0)) for name in names}


def usual_heads(width: int) -> int:
    """Return the default number of heads of a custom size: 64 wide, at least two."""
    return max(2, width // 64)


def _size(model: ModelSpec, family: str) -> str:
    """Return `S` of a published size, `210M` of a counted one, else `12x32` or `12x32x4`."""
    custom = f"{model.depth}x{model.width}"
    counted = (name.removeprefix(f"{family}-") for name in COUNTED)
    for size in (*SIZES, *counted, custom):
        shape = _shape(model.backbone, family, size) or {}
        if shape and all(getattr(model, name) == number for name, number in shape.items()):
            return size
    return "x".join([custom, *(str(getattr(model, name)) for name in [*shape][2:])])


def _hint(name: str) -> str:
    families = (*FAMILIES, *(name for name in BACKBONES if name not in BACKBONES.built_in))
    names = [f"{family}-{size}/{p}" for family in families for size in SIZES for p in (1, 2, 4, 8)]
    names += [f"{name}/2" for name in COUNTED]
    meant = near(name, [known for known in names if known.lower() == name.lower()] or names)
    examples = "DiT-B/2, RWKV-S/2, Mamba-12x32/2, or the module that adds it in plugins"
    return f", did you mean {meant!r}?" if meant else f". Try {examples}."
