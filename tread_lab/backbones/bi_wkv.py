"""Bi-WKV, the bidirectional attention of RWKV in linear time: chunks by matrix products."""

# B batch, N tokens, D channels, C chunks, L tokens of a chunk, E numerators and denominators (2 B)

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def bi_wkv(
    decay_D: Tensor, first_D: Tensor, k_BND: Tensor, v_BND: Tensor, *, chunk: int = CHUNK
) -> Tensor:
    """Vision-RWKV's eq. 4 (Duan et al. 2024), in fp32 whatever the inputs are:

        wkv_t = sum_i e^{f(t, i) + k_i} v_i / sum_i e^{f(t, i) + k_i},
        f(t, i) = -(|t - i| - 1) w / N,  f(t, t) = u / N

    It is stable for any keys: they enter as e^{k - max k}, and distances over N stay below 1, so
    every kernel value lies between e^{-|w|} and e^{|w|} and no denominator falls under e^{-|w|}.

    Args:
        decay_D, first_D: w and u of each channel, before their division by N.

    Returns:
        wkv_BND in the dtype of `v_BND`.
    """
    B, N, D = k_BND.shape
    with torch.autocast(k_BND.device.type, enabled=False):
        k_BND = k_BND.float()
        weight_BND = (k_BND - k_BND.amax(dim=1, keepdim=True).detach()).exp()
        sums_DNE = torch.stack([weight_BND * v_BND.float(), weight_BND]).permute(3, 2, 0, 1)
        decay_D, first_D = decay_D.float() / N, first_D.float() / N
        out_DNE = _decayed(decay_D, first_D, sums_DNE.reshape(D, N, 2 * B), min(chunk, N))
        top_DNB, bottom_DNB = out_DNE.chunk(2, dim=2)
        return (top_DNB / bottom_DNB).permute(2, 1, 0).to(v_BND.dtype)


def _decayed(a_D: Tensor, u_D: Tensor, x_DNE: Tensor, L: int) -> Tensor:
    """sum_{i != t} e^{-(|t-i|-1) a} x_i + e^u x_t, by chunks of L tokens."""
    D, N, E = x_DNE.shape
    C = -(-N // L)
    place_L = torch.arange(L, device=x_DNE.device)
    x_DCLE = F.pad(x_DNE, (0, 0, 0, C * L - N)).view(D, C, L, E)
    between_LL = (place_L[:, None] - place_L).abs() - 1
    near_DLL = (-between_LL * a_D[:, None, None]).exp()  # e^a on the diagonal, where e^u belongs
    out_DCLE = torch.einsum("dts,dcse->dcte", near_DLL, x_DCLE)
    out_DCLE = torch.addcmul(out_DCLE, (u_D.exp() - a_D.exp())[:, None, None, None], x_DCLE)
    if C > 1:
        out_DCLE = out_DCLE + _far(a_D, x_DCLE, place_L)
    return out_DCLE.reshape(D, C * L, E)[:, :N]


def _far(a_D: Tensor, x_DCLE: Tensor, place_L: Tensor) -> Tensor:
    """Return what a token receives from other chunks: through one sum per chunk and direction."""
    C, L = x_DCLE.shape[1:3]
    after_DL = (-place_L * a_D[:, None]).exp()  # from the start of a chunk; reversed: to its end
    before_DL = after_DL.flip(1)
    chunk_C = torch.arange(C, device=a_D.device)
    apart_CC = chunk_C[:, None] - chunk_C
    chunks_DCC = (-(apart_CC.abs() - 1) * L * a_D[:, None, None]).exp()
    out_DCLE = torch.zeros_like(x_DCLE)
    for earlier, leave_DL, enter_DL in (
        (apart_CC > 0, before_DL, after_DL),
        (apart_CC < 0, after_DL, before_DL),
    ):
        sums_DCE = torch.einsum("dl,dcle->dce", leave_DL, x_DCLE)
        enters_DCE = torch.where(earlier, chunks_DCC, 0) @ sums_DCE
        out_DCLE = out_DCLE + enter_DL[:, None, :, None] * enters_DCE[:, :, None]
    return out_DCLE
