"""The formulas of image metrics: Frechet distance, inception score, precision and recall."""

# N images, B of a batch, M references, A rows of one block, D features, K classes

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor]  # mean [D], covariance [D, D]
SPLIT = 5_000  # images of a split of the inception score; the last one may have fewer
RANK = 1e-6  # of the largest root, below which a direction has no variance
ROWS = 4096  # of features in float64 at once
NEIGHBOURS = 3  # k: the radius of an image's ball is the distance to its third neighbour
_DISTANCES = 1 << 24  # of one block: 128 MB


class RunningMoments:
    """The mean and the centred sum of products of all features so far, on their device.

    Each batch is centred and merged by the update of Chan, Golub and LeVeque (1983), which avoids
    differences of large sums:

        delta = mean_B - mean,  mean += delta B / (N + B),  M2 += M2_B + delta delta' N B / (N + B)
    """

    def __init__(self) -> None:
        self.count, self.mean_D, self.products_DD = 0, torch.zeros(()), torch.zeros(())

    def add(self, x_BD: Tensor) -> None:
        """Add features of any float type, summed in float64."""
        x_BD = x_BD.double()
        mean_D, count = x_BD.mean(dim=0), len(x_BD)
        centred_BD = x_BD - mean_D
        total, delta_D = self.count + count, mean_D - self.mean_D.to(mean_D)
        self.products_DD = self.products_DD.to(mean_D) + centred_BD.T @ centred_BD
        self.products_DD.addr_(delta_D, delta_D, alpha=self.count * count / total)
        self.mean_D = self.mean_D.to(mean_D) + delta_D * (count / total)
        self.count = total

    @property
    def covariance_DD(self) -> Tensor:
        """The covariance with N - 1 in the denominator, as `numpy.cov` has it."""
        return self.products_DD / (self.count - 1)


def frechet_distance(reference: Moments, own: Moments) -> tuple[float, Tensor]:
    """Return the Frechet distance of two sets of features and its gradient in `own`'s covariance.

    It is |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)) (Heusel et al. 2017, eq. 6). The trace of the
    root is the sum of the roots of the eigenvalues of S'^(1/2) S S'^(1/2), which is symmetric: also
    exact with fewer images than features, where the root of S S' is singular, and several times
    faster. The gradient is I - S'^(1/2) (S'^(1/2) S S'^(1/2))^(-1/2) S'^(1/2), [D, D]. Moments are
    float64 and on one device.
    """
    (other_mean_D, other_DD), (mean_D, covariance_DD) = reference, own
    values_D, vectors_DD = torch.linalg.eigh(_symmetric(other_DD))
    root_DD = vectors_DD * values_D.clamp(min=0).sqrt() @ vectors_DD.T
    product_DD = root_DD @ _symmetric(covariance_DD) @ root_DD
    values_D, vectors_DD = torch.linalg.eigh(_symmetric(product_DD))
    roots_D = values_D.clamp(min=0).sqrt()
    known_D = roots_D > roots_D.max() * RANK
    side_DD = root_DD @ vectors_DD[:, known_D] / roots_D[known_D].sqrt()
    gradient_DD = torch.eye(len(mean_D)).to(side_DD) - side_DD @ side_DD.T
    means = (mean_D - other_mean_D).square().sum()
    distance = means + covariance_DD.trace() + other_DD.trace() - 2 * roots_D.sum()
    return float(distance), gradient_DD


def frechet_influences(
    reference: Moments, own: Moments, gradient_DD: Tensor, x_ND: Tensor
) -> Tensor:
    """Return the influence [N] of each image on the Frechet distance, with mean 0 up to 1/N.

    Their standard deviation over sqrt(N) is the infinitesimal jackknife's standard error of the
    distance over new images, with a fixed reference (Efron 1982, chapter 6):
    2 d (x - mu) + (x - mu)' G (x - mu) - tr(G S) for the gradient G and d = mu - mu'.
    """
    (other_mean_D, _), (mean_D, covariance_DD) = reference, own
    found = []
    for start in range(0, len(x_ND), ROWS):
        x_BD = x_ND[start : start + ROWS].to(mean_D) - mean_D
        quadratic_B = ((x_BD @ gradient_DD) * x_BD).sum(dim=1)
        found.append(2 * x_BD @ (mean_D - other_mean_D) + quadratic_B)
    return torch.cat(found) - (gradient_DD * covariance_DD).sum()


def _symmetric(x_DD: Tensor) -> Tensor:
    return (x_DD + x_DD.T) / 2


class SplitSums:
    """Mean over splits of exp(E_x KL(p(y|x) || p(y))), from batches of logits.

    As in ADM's evaluator (openai/guided-diffusion) the splits are 5,000 images each in the order of
    the file, a last shorter one counts like the others, and logits have no bias. torch-fidelity
    shuffles and splits N images into ten parts, which gives lower scores: 188.8 instead of 253.4
    for one set of 10,000. The log of a split's score is the mean of sum_k p log p over its
    images less sum_k m log m, where m is the mean of p: sums of each split are enough, in float64.
    """

    def __init__(self) -> None:
        self._done: list[float] = []
        self._count, self._p_K, self._negentropy = 0, torch.zeros(()), torch.zeros(())

    def add(self, logits_BK: Tensor) -> None:
        """Add the logits of the next images, in file order."""
        while len(logits_BK):
            room = SPLIT - self._count
            part_BK, logits_BK = logits_BK[:room], logits_BK[room:]
            log_p_BK = part_BK.double().log_softmax(dim=1)
            p_BK = log_p_BK.exp()
            self._count += len(part_BK)
            self._p_K = self._p_K.to(p_BK) + p_BK.sum(dim=0)
            self._negentropy = self._negentropy.to(p_BK) + (p_BK * log_p_BK).sum()
            if self._count == SPLIT:
                self._done = self.scores
                self._count, self._p_K, self._negentropy = 0, torch.zeros(()), torch.zeros(())

    @property
    def scores(self) -> list[float]:
        """The score of each split."""
        if not self._count:
            return self._done
        mean_K = self._p_K / self._count
        of_mean = torch.special.xlogy(mean_K, mean_K).sum()
        return [*self._done, float((self._negentropy / self._count - of_mean).exp())]

    @property
    def score(self) -> float:
        """The mean over splits; a shorter last split counts like the others."""
        return sum(self.scores) / len(self.scores)


def precision_recall(samples_ND: Tensor, references_MD: Tensor) -> tuple[float, float]:
    """Return precision and recall as ADM's evaluator defines them, from squared distances.

    Precision is the share of samples inside the ball of any reference, recall the share of
    references inside the ball of any sample. A ball reaches to entry 3 of the sorted distances to
    its own set, of which entry 0 is the distance to itself. ADM's evaluator multiplies in fp16,
    which changes images near the boundary of a ball; here distances are float64.
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
