"""DiT (Peebles & Xie 2023) with the published parameter names and with routing."""

# B batch, N tokens, D width, C channels, H height, W width, p patch side, P position features
# T text tokens, E their width

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from tread_lab.backbones.parts import (
    MLPS,
    Attention,
    LabelEmbedder,
    LevelEmbedder,
    RelativeBias,
    SelfInitialised,
    TextEmbedder,
    block_positions,
    build_norm,
    modulate,
    sincos_positions,
)
from tread_lab.config.errors import lookup
from tread_lab.config.model import ModelSpec
from tread_lab.routing.rejoin import IDENTITY, Rejoin
from tread_lab.routing.run_blocks import Observer, run_blocks
from tread_lab.routing.select import Routing

# Whether modulations and output are zero after all else is initialised.
ZEROED = {"adaln_zero": True, "official_code": False}


class DiTBlock(nn.Module):
    """Attention and MLP, each shifted, scaled and gated by the conditioning (adaLN-zero).

    The defaults are DiT's. LightningDiT uses RMSNorm and SwiGLU and can normalize queries and keys;
    MDT adds a relative bias.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        norm: str = "layer",
        mlp: str = "gelu",
        qk_norm: bool = False,
        bias: RelativeBias | None = None,
    ) -> None:
        super().__init__()
        self.norm1 = build_norm(norm, width)
        self.attn = Attention(width, heads, qk_norm=qk_norm, norm=norm, bias=bias)
        self.norm2 = build_norm(norm, width)
        self.mlp = lookup(MLPS, mlp, "model.mlp")(width, hidden)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(
        self,
        x_BND: Tensor,
        c_BD: Tensor,
        positions_BNP: Tensor | None = None,
        real_BN: Tensor | None = None,
    ) -> Tensor:
        m = self.adaLN_modulation(c_BD).chunk(6, dim=1)
        h = modulate(self.norm1(x_BND), m[0], m[1])
        x_BND = torch.addcmul(x_BND, m[2][:, None], self.attn(h, positions_BNP, real_BN))
        h = modulate(self.norm2(x_BND), m[3], m[4])
        return torch.addcmul(x_BND, m[5][:, None], self.mlp(h))


def dit_block(spec: ModelSpec, side: int) -> DiTBlock:
    """Return a block of the network `spec` on a side x side grid of tokens."""
    return DiTBlock(
        spec.width,
        spec.heads,
        spec.hidden,
        norm=spec.norm,
        mlp=spec.mlp,
        qk_norm=spec.qk_norm,
        bias=RelativeBias(side, spec.heads) if spec.relative_bias else None,
    )


class FinalLayer(nn.Module):
    """Modulated norm and the linear map to pixels of a patch; conditioned by c of width `cond`."""

    def __init__(
        self,
        width: int,
        patch: int,
        channels: int,
        *,
        norm: str = "layer",
        cond: int | None = None,
    ) -> None:
        super().__init__()
        self.norm_final = build_norm(norm, width)
        self.linear = nn.Linear(width, patch * patch * channels)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(cond or width, 2 * width))

    def forward(self, x_BND: Tensor, c_BD: Tensor) -> Tensor:
        shift_BD, scale_BD = self.adaLN_modulation(c_BD).chunk(2, dim=1)
        return self.linear(modulate(self.norm_final(x_BND), shift_BD, scale_BD))


class PatchEmbedder(nn.Module):
    """Patches to tokens by a strided convolution, in raster order.

    Returns contiguous tokens: a transposed view would stay transposed through all blocks of a dense
    pass.
    """

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        out: Tensor = self.proj(x_BCHW)
        return out.flatten(2).transpose(1, 2).contiguous()


class DiT(nn.Module):
    """A class-conditional diffusion transformer over `size` x `size` samples.

    With `norm: rms, mlp: swiglu, rope: true` it is LightningDiT (Yao et al. 2025) in its published
    configuration and with its parameter names; rotary positions complement the fixed ones.
    `qk_norm: true` normalizes queries and keys, an option of its code. With `relative_bias` and
    `trained_positions` it is the network of MDT (Gao et al. 2023) without the side-interpolater.
    Routing is the argument `routing` of a forward pass and adds no parameters.

    Args:
        fp32_blocks: blocks that stay in fp32 under autocast.
        text_width: E of caption tokens, which replace the class: they join the image tokens in
            every block and are never routed.
        out_channels: channels of the output; published checkpoints have 2 C (learned variance).
        re_enter: module at the end of a route, possibly with parameters.
    """

    places_1NP: Tensor | None

    def __init__(
        self,
        spec: ModelSpec,
        *,
        channels: int,
        size: int,
        classes: int,
        text_width: int | None = None,
        fp32_blocks: Collection[int] = (),
        out_channels: int | None = None,
        re_enter: Rejoin = IDENTITY,
    ) -> None:
        super().__init__()
        self.spec, self.classes = spec, classes
        self.out_channels = out_channels or channels
        self.fp32_blocks = frozenset(fp32_blocks)
        self.side = size // spec.patch
        self.x_embedder = PatchEmbedder(channels, spec.width, spec.patch)
        self.t_embedder = LevelEmbedder(spec.width)
        self.y_embedder = (
            TextEmbedder(text_width, spec.width)
            if text_width
            else LabelEmbedder(classes, spec.width)
        )
        positions_1ND = sincos_positions(self.side, spec.width)[None]
        self.pos_embed = nn.Parameter(positions_1ND, requires_grad=spec.trained_positions)
        self.blocks = nn.ModuleList(self.block(l) for l in range(spec.depth))
        self.final_layer: nn.Module = FinalLayer(
            spec.width, spec.patch, self.out_channels, norm=spec.norm
        )
        self.register_buffer("places_1NP", block_positions(spec, self.side), persistent=False)
        self._initialise()
        self.re_enter = re_enter  # after the rest: it has initialised itself
        if re_enter.width is not None:
            with torch.random.fork_rng(devices=[]):  # the rest starts as without it
                last = FinalLayer(re_enter.width, spec.patch, self.out_channels, cond=spec.width)
                self.final_layer = last
                self._initialise_linears("final_layer")

    def block(self, l: int) -> nn.Module:
        """Build block l; overridden by other backbones."""
        return dit_block(self.spec, self.side)

    def forward(
        self,
        x_BCHW: Tensor,
        t_B: Tensor,
        y_B: Tensor,
        routing: Routing | None = None,
        observe: Observer | None = None,
    ) -> Tensor:
        """Return the raw output, B x out_channels x H x W, at embedded levels t and labels y.

        Args:
            y_B: class labels, of which `classes` is the null class, or text tokens [B, T, E].
        """
        x_BND, c_BD = self.encode(x_BCHW, t_B, y_B, routing, observe)
        return self._unpatchify(self.final_layer(x_BND, c_BD))

    def encode(
        self,
        x_BCHW: Tensor,
        t_B: Tensor,
        y_B: Tensor,
        routing: Routing | None = None,
        observe: Observer | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the image's tokens after all blocks, and the conditioning."""
        x_BND = self.x_embedder(x_BCHW) + self.pos_embed
        c_BD, N = self.t_embedder(t_B), x_BND.shape[1]
        if isinstance(self.y_embedder, TextEmbedder):
            text_BTD = self.y_embedder(y_B)
            x_BND, T = torch.cat([x_BND, text_BTD.to(x_BND.dtype)], dim=1), text_BTD.shape[1]
            routing = tuple(route.beside(N, T) for route in routing or ()) or None
            observe = _of_image(observe, T)
        else:
            c_BD = c_BD + self.y_embedder(y_B)
        places_1NP = self.places_1NP
        places_BNP = None if places_1NP is None else places_1NP.expand(len(x_BND), -1, -1)
        x_BND = run_blocks(
            self.blocks,
            x_BND,
            c_BD,
            places_BNP,
            routing=routing,
            fp32=self.fp32_blocks,
            observe=observe,
            re_enter=self.re_enter,
        )
        return x_BND if x_BND.shape[1] == N else x_BND[:, :N], c_BD

    def _unpatchify(self, x_BND: Tensor) -> Tensor:
        B, N, _ = x_BND.shape
        p, side = self.spec.patch, round(N**0.5)
        x = x_BND.view(B, side, side, p, p, self.out_channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(B, self.out_channels, side * p, side * p)

    def _initialise(self) -> None:
        """Xavier linears, zero biases, N(0, .02) tables; `adaln_zero` then zeroes modulations and
        output, `official_code` zeroes them before Xavier, which overwrites the zeros again."""
        self._initialise_linears()
        nn.init.xavier_uniform_(self.x_embedder.proj.weight.view(self.spec.width, -1))
        assert self.x_embedder.proj.bias is not None
        nn.init.zeros_(self.x_embedder.proj.bias)
        if isinstance(self.y_embedder, LabelEmbedder):
            nn.init.normal_(self.y_embedder.embedding_table.weight, std=0.02)
        for linear in self._linears("t_embedder"):
            nn.init.normal_(linear.weight, std=0.02)
        for module in self.modules():
            if isinstance(module, SelfInitialised):
                module.initialise()

    def _initialise_linears(self, *parts: str) -> None:
        """Initialise all linear maps, or those below a module called one of `parts`."""
        for linear in self._linears(*parts):
            nn.init.xavier_uniform_(linear.weight)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        if lookup(ZEROED, self.spec.init, "model.init"):
            for linear in self._linears("adaLN_modulation", "final_layer"):
                nn.init.zeros_(linear.weight)

    def _linears(self, *parts: str) -> list[nn.Linear]:
        """Return the linear maps below any module called one of `parts`, or all of them."""
        return [
            module
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear)
            and (not parts or not set(parts).isdisjoint(name.split(".")))
        ]


def _of_image(observe: Observer | None, T: int) -> Observer | None:
    """Return an observer that sees the stream without the T text tokens, which stand last."""
    return None if observe is None else lambda l, x_BND: observe(l, x_BND[:, :-T])
