"""Precision and recall of generated images by nearest neighbours (Kynkaanniemi et al. 2019)."""

# N samples, M references, A rows of one block, D features

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

NEIGHBOURS = 3  # k: the radius of an image's ball is the distance to its third neighbour
_DISTANCES = 1 << 24  # of one block: 128 MB


def precision_recall(samples_ND: Tensor, references_MD: Tensor) -> tuple[float, float]:
    """Return precision and recall as ADM's evaluator defines them, from squared distances.

    Precision is the share of samples inside the ball of any reference, recall the share of
    references inside the ball of any sample. A ball reaches to entry 3 of the sorted distances to
    its own set, of which entry 0 is the distance to itself. ADM's evaluator multiplies in fp16,
    which moves images at the rim of a ball; here the distances are float64.
    """
    samples_ND, references_MD = samples_ND.double(), references_MD.double()
    radius_N, radius_M = _radii(samples_ND), _radii(references_MD)
    inside_M = torch.zeros(len(references_MD), dtype=torch.bool, device=radius_M.device)
    precise = 0
    for rows, d_AM in _distances(samples_ND, references_MD):
        precise += int((d_AM <= radius_M).any(dim=1).sum())
        inside_M |= (d_AM <= radius_N[rows, None]).any(dim=0)
    return precise / len(samples_ND), float(inside_M.double().mean())


def _radii(x_ND: Tensor) -> Tensor:
    """Squared distance of each row to its third neighbour among the others."""
    parts = [d_AN.kthvalue(NEIGHBOURS + 1, dim=1).values for _, d_AN in _distances(x_ND, x_ND)]
    return torch.cat(parts)


def _distances(x_ND: Tensor, y_MD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of squared distances [A, M] with the rows that each is of."""
    norm_N, norm_M = x_ND.square().sum(dim=1), y_MD.square().sum(dim=1)
    size = max(1, _DISTANCES // len(y_MD))
    for start in range(0, len(x_ND), size):
        rows = slice(start, start + size)
        d_AM = norm_N[rows, None] - 2 * x_ND[rows] @ y_MD.T + norm_M
        yield rows, d_AM.clamp_(min=0)
