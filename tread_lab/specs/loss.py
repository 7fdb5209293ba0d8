"""What is minimised: the plain denoising loss, or v1's ensemble over kept and routed tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tread_lab.specs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class PlainLoss:
    """The process's own loss over all tokens: what TREAD (ICCV 2025) and its code train."""

    kind: Literal["plain"] = "plain"

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True)
class EnsembleLoss:
    """TREAD v1: (1/N) sum_k [L_dsm^k + lambda L_mae^k] over N routes with masks m_k (1 = routed).

    Its paper (arXiv 2501.04765v1) and the first code disagree; both are here:
    `equation`: L_dsm = E ||(1 - m) (D(x0 + n) - x0)||^2, L_mae = E ||m (D(x0 + n) - x0)||^2, each a
        mean over **all** places, of which it has its own.
    `code`: L_dsm is averaged over the kept patches; the target of L_mae is the **noisy** sample
        x0 + n, every patch normalised to mean 0 and variance 1, averaged over the routed patches.

    Attributes:
        weight: lambda; 0 leaves the loss over kept tokens.
        noise_weight: which terms carry the process's weight of the noise level: `dsm` as the code
            does; `none` as the equation is printed; `both`, with which the equation at lambda 1 is
            the plain loss.
    """

    kind: Literal["ensemble"] = "ensemble"
    form: Literal["equation", "code"] = "equation"
    weight: float = 0.1
    noise_weight: Literal["dsm", "both", "none"] = "dsm"

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise UserError(f"weight: must not be negative, got {self.weight}")

    def __str__(self) -> str:
        return f"{self.form} {self.weight:g}"


LossSpec = PlainLoss | EnsembleLoss
