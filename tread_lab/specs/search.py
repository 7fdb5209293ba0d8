"""What a search is: which cells of a sweep are tried next is decided from those tried before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tread_lab.specs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """The `search:` block of a sweep file; without it every cell is run.

    Attributes:
        sampler: how cells are chosen: `tpe` (tree-structured Parzen estimator), `gp` (Gaussian
            process), `random`, or `nsgaii` (genetic, for several objectives).
        trials: how many cells are tried, each with all seeds.
        objectives: what is to become good: metrics as tables name them. Each counts as the
            difference to the baseline, mean over seeds. `gap/heldout` where absent, `heldout/loss`
            in a sweep without baseline.
        seed: of the search itself; the same seed asks for the same trials.
        startup: random trials before the sampler learns (`nsgaii`: the size of a generation).
        parallel: trials in flight at most. Trial n is chosen from the results of the trials up to
            n - parallel alone, so that the same ones come however long each takes.
        in_order: false uses every result as soon as it is there, which keeps more places busy
            where trials differ much in length, and gives up that the same trials come again.
    """

    sampler: Literal["tpe", "gp", "random", "nsgaii"] = "tpe"
    trials: int = 20
    objectives: tuple[str, ...] = ()
    seed: int = 0
    startup: int = 8
    parallel: int = 2
    in_order: bool = True

    def __post_init__(self) -> None:
        for name in ("trials", "startup", "parallel"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: must be positive, got {getattr(self, name)}")
        if len(set(self.objectives)) != len(self.objectives):
            raise UserError(f"objectives: {list(self.objectives)} must be distinct")
        if self.sampler == "nsgaii" and len(self.objectives) < 2:
            raise UserError(
                "objectives: nsgaii weighs several, e.g. [gap/heldout, cost/train_flops]"
            )
