"""How tokens travel around blocks and rejoin the kept ones: as they entered, or as v1's sum."""

# B batch, N tokens, K kept tokens, D width

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from tread_lab.config.routes import ReEntrySpec
from tread_lab.routing.select import BatchRoute

Span = tuple[int, int]


def gather_tokens(x_BND: Tensor, keep_BK: Tensor) -> Tensor:
    """Return the kept tokens alone, x_BKD."""
    rows = _rows(keep_BK, x_BND.shape[1])
    return x_BND.flatten(0, 1).index_select(0, rows).view(*keep_BK.shape, x_BND.shape[2])


def scatter_tokens(
    entry_BND: Tensor, kept_BKD: Tensor, keep_BK: Tensor, real_BK: Tensor | None = None
) -> Tensor:
    """Return the stream with kept tokens at their places and routed tokens unchanged.

    Args:
        real_BK: mask of kept tokens; padding stays unchanged.
    """
    kept_BKD = kept_BKD.to(entry_BND.dtype)
    if real_BK is not None:
        kept_BKD = torch.where(real_BK[:, :, None], kept_BKD, gather_tokens(entry_BND, keep_BK))
    rows = _rows(keep_BK, entry_BND.shape[1])
    return entry_BND.flatten(0, 1).index_copy(0, rows, kept_BKD.flatten(0, 1)).view_as(entry_BND)


def _rows(keep_BK: Tensor, N: int) -> Tensor:
    """Return the rows of places in a stream whose samples follow each other: one index a token."""
    first_B1 = torch.arange(0, len(keep_BK) * N, N, device=keep_BK.device)[:, None]
    return (keep_BK + first_B1).flatten()


class Rejoin(Protocol):
    """Computes the stream after a route from routed and kept tokens.

    Attributes:
        spans: routes whose end has parameters, also in a dense pass.
        width: width of the stream after the route, if it changes.
    """

    spans: tuple[Span, ...]
    width: int | None

    def __call__(
        self,
        kept_BKD: Tensor,
        route: BatchRoute,
        *,
        entry_BND: Tensor,
        embedded_BND: Tensor,
        c_BD: Tensor,
    ) -> Tensor:
        """Return all tokens, made from the kept ones after block `route.end`.

        Args:
            entry_BND: all tokens as they entered block `route.start`.
            embedded_BND: all tokens as they entered block 0.
            c_BD: the conditioning.
        """
        ...


class Return:
    """Routed tokens are x_T and x_D_last, each as its flag says; no parameter."""

    spans: tuple[Span, ...] = ()
    width: int | None = None

    def __init__(self, spec: ReEntrySpec | None = None) -> None:
        self.spec = spec or ReEntrySpec()

    def __call__(
        self,
        kept_BKD: Tensor,
        route: BatchRoute,
        *,
        entry_BND: Tensor,
        embedded_BND: Tensor,
        c_BD: Tensor,
    ) -> Tensor:
        x_T, x_D_last = embedded_BND, entry_BND
        if not self.spec.x_T:
            returned_BND = x_D_last
        elif not self.spec.x_D_last or (route.start == 0 and self.spec.coinciding == "once"):
            returned_BND = x_T
        else:
            returned_BND = x_T + x_D_last
        return scatter_tokens(returned_BND, kept_BKD, route.keep_BK, route.real_BK)


IDENTITY = Return()
