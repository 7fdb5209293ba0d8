"""What a sweep may spend: training FLOPs, hours, trials; what does not fit is not started."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tread_lab.specs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class BudgetSpec:
    """Limits of one sweep over all its sessions; a limit that is absent does not bind.

    Attributes:
        flops: training FLOPs that its runs may execute, baselines included.
        hours: hours that its command may run, all sessions together.
        trials: runs beside the baselines that may be started.
    """

    flops: float | None = None
    hours: float | None = None
    trials: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and not value > 0:
                raise UserError(f"{limit.name}: must be positive, got {value}")
