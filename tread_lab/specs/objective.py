"""What is trained: the process (EDM, flow matching or DDPM) and the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from tread_lab.specs.decode import added
from tread_lab.specs.errors import UserError, check_positive
from tread_lab.specs.systems import SystemSpec, Variants

DDPM_LEVELS = 1_000


@dataclass(frozen=True, kw_only=True)
class EDMSpec:
    """EDM's preconditioning and noise distribution (Karras et al. 2022, table 1)."""

    kind: Literal["edm"] = "edm"
    p_mean: float = -1.2
    p_std: float = 1.2
    sigma_data: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self, "p_std", "sigma_data")


@dataclass(frozen=True, kw_only=True)
class FlowSpec:
    """Flow matching on straight paths, as SiT trains (z_t = (1 - t) x + t eps, target eps - x).

    Attributes:
        time: training distribution of t: `logit_normal` is sigmoid(N(0, 1)), or `uniform`.
        direction: weight of the mean of 1 - cos(v, target) over the channels of each place, which
            the loss has beside the squared error; LightningDiT's is 1.
    """

    kind: Literal["flow"] = "flow"
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    direction: float = added(0.0)

    def __post_init__(self) -> None:
        if self.direction < 0:
            raise UserError(f"direction: must not be negative, got {self.direction}")


@dataclass(frozen=True, kw_only=True)
class DDPMSpec:
    """DDPM as DiT trains it: 1,000 levels, betas from 1e-4 to 2e-2 in even steps, noise as target.

    Attributes:
        learned_variance: the network has twice the channels, and its second half is trained by the
            variational bound (Nichol & Dhariwal 2021); the published checkpoints of DiT have it.
    """

    kind: Literal["ddpm"] = "ddpm"
    learned_variance: bool = True


ProcessSpec = EDMSpec | FlowSpec | DDPMSpec


def outputs(process: ProcessSpec) -> int:
    """Return the channels of the network's output for each channel of a sample."""
    return 2 if isinstance(process, DDPMSpec) and process.learned_variance else 1


@dataclass(frozen=True, kw_only=True)
class Loss(SystemSpec):
    """What every loss is; `kind` is its name.

    Attributes:
        dense: whether it means something in a run without routes, too.
    """

    dense: ClassVar[bool] = False

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class PlainLoss(Loss):
    """The process's own loss over all tokens: what TREAD (ICCV 2025) and its code train."""

    kind: Literal["plain"] = "plain"

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True)
class EnsembleLoss(Loss):
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


LOSSES = Variants("loss", PlainLoss, EnsembleLoss)
