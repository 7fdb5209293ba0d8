"""Differences between sweeps: equal cells, each less the first sweep's, paired by seed."""

from __future__ import annotations

from tread_lab.analysis.report.page import Sheet, sheet
from tread_lab.analysis.tables.ranking import RATIOS, formatted, ranking
from tread_lab.frames import plan_frame
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.records.several_sweeps import SeveralSweeps
from tread_lab.records.sweep_folder import SweepFolder


def differences(lab: Lab, folder: SweepFolder) -> Sheet | None:
    """Return a row for each cell that another sweep has in common with the first, but for its run.

    The difference is that of held-out loss, with the interval that `gap/heldout` of a cell has;
    `None` for one sweep, and where nothing can be paired.
    """
    plan = folder.differences() if isinstance(folder, SeveralSweeps) else None
    if plan is None or not plan.trials:
        return None
    frame = plan_frame(lab, plan)
    if GAP_HELDOUT not in frame:
        return None
    numbers, first = ranking(frame, GAP_HELDOUT), plan.name.partition(",")[0]
    pairs = numbers.attrs.pop("cells")
    texts = formatted(numbers, GAP_HELDOUT)[[role == "trial" for role, _ in pairs]]
    spent = [head for name, head in RATIOS.items() if name != "flops"]
    texts = texts.drop(columns=["rank", *spent], errors="ignore")
    heads = {"gap": f"loss less {first}", "FLOPs / dense": f"FLOPs / {first}"}
    words = "|".join(f"^{head}" for head in heads)
    texts.columns = texts.columns.str.replace(words, lambda m: heads[m[0]], regex=True)
    return sheet(texts)
