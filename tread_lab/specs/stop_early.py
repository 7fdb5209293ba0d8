"""Early stopping: which trials end before their last step, judged by their loss at some steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tread_lab.specs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class StopEarlySpec:
    """The `stop_early:` block of a sweep file; `stop_early: asha` is enough.

    Trials are judged by their training loss less that of their baseline over the same steps;
    baselines run first and are never stopped.

    Attributes:
        kind: `asha` (asynchronous successive halving) lets the best 1/reduction of those that
            reached a rung go on; `median` stops a trial whose best gap is worse than the median of
            the others' means.
        grace: the first step at which a trial is judged; a ninth of its steps where absent.
        reduction: ASHA's rungs lie at grace x reduction^k, the median rule's at grace x k.
        least: trials that must have come as far before the median rule judges.
    """

    kind: Literal["asha", "median"] = "asha"
    grace: int | None = None
    reduction: int = 3
    least: int = 3

    def __post_init__(self) -> None:
        if self.reduction < 2:
            raise UserError(f"reduction: at least 2, got {self.reduction}")
        if self.least < 1 or (self.grace is not None and self.grace < 1):
            raise UserError("grace and least: at least 1")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        return {"kind": value}

    def first_rung(self, steps: int) -> int:
        """The first step at which a run of so many steps is judged."""
        return self.grace or max(steps // 9, 1)

    def rungs(self, steps: int) -> tuple[int, ...]:
        """All steps at which a run of so many steps is judged."""
        first = self.first_rung(steps)
        if self.kind == "median":
            return tuple(range(first, steps, first))
        found, rung = [], first
        while rung < steps:
            found.append(rung)
            rung *= self.reduction
        return tuple(found)
