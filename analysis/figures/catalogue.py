"""All figures and tables that a sweep's records support, written beside its plan."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tread_lab.analysis.figures import (
    curves,
    effects,
    loss_gap,
    pareto,
    placements,
    samples,
    similarity,
    smooth,
)
from tread_lab.analysis.figures.points import Drawn, SweepRecords, named, sample_metrics, slug
from tread_lab.analysis.figures.style import save
from tread_lab.analysis.paper_tables import sweep_table
from tread_lab.records.caveats import mixtures
from tread_lab.records.durable import write_text, writing
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import HELDOUT_LOSS, TRAIN_LOSS
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.results import history_frame, ranking_key
from tread_lab.results.runs import SweepReader

KINDS = (
    placements.grids,
    placements.spans,
    smooth.maps,
    effects.cells,
    effects.ways,
    curves.selection_rates,
    pareto.guidances,
    pareto.costs,
    curves.times_to_equal,
    curves.growths,
    loss_gap.over_steps,
    loss_gap.by_length,
    loss_gap.with_quality,
    similarity.pair,
    samples.equal_seeds,
)
EACH_PANEL = {  # drawn for each panel of a sweep instead of once
    placements.grids,
    placements.spans,
    loss_gap.over_steps,
    loss_gap.by_length,
    loss_gap.with_quality,
    similarity.pair,
}
COMPARES = {  # differences to dense, whose captions say at equal what
    placements.grids,
    placements.spans,
    smooth.maps,
    effects.cells,
    effects.ways,
    curves.selection_rates,
    loss_gap.by_length,
    loss_gap.with_quality,
}


def write_figures(lab: Lab, sweep: str) -> list[Path]:
    """Write every figure as PNG and PDF, tables as Markdown and LaTeX, and return their paths.

    Figures without numbers are omitted. A sweep with further axes has one set of figures per value
    of these axes. The new files replace the folder.

    Raises:
        UserError: unknown sweep, or its folder cannot be written.
    """
    folder = lab.known_sweep(sweep)
    records, made = sweep_records(lab, folder), folder.path / ".figures"
    shutil.rmtree(made, ignore_errors=True)
    with writing(made):
        made.mkdir()
    paths = _write_tables(records, made)
    for drawn in all_figures(records):
        paths += save(drawn.figure, made, drawn.name)
    folder.remove_figures()
    made.rename(folder.figures)
    return [folder.figures / path.name for path in paths]


def sweep_records(lab: Lab, folder: SweepFolder) -> SweepRecords:
    """Return the records from which all figures of a sweep are drawn."""
    reader = SweepReader.of(lab, folder.name)
    history = history_frame(lab, folder.name, [TRAIN_LOSS])
    return SweepRecords(lab, reader.trials(), history, reader.training(), reader.equal_steps())


def all_figures(records: SweepRecords) -> Iterator[Drawn]:
    """Yield every figure that the records support, in the order of `KINDS`."""
    other, question = records.equal_steps, records.frame.attrs.get("comparison", "")
    parts = []
    for name, frame in placements.panels(records.frame):
        equal_steps = None if other is None else other.loc[frame.index]
        parts.append((name, replace(records, frame=frame, equal_steps=equal_steps)))
    for kind in KINDS:
        for name, part in parts if kind in EACH_PANEL else [("", records)]:
            for drawn in kind(part):
                caption = drawn.caption
                if kind in COMPARES and question and question not in caption.lower():
                    caption += f" Compared {question}."
                suffix = slug(f"-{name}") if name else ""
                yield replace(drawn, name=drawn.name + suffix, caption=caption)


def _write_tables(records: SweepRecords, folder: Path) -> list[Path]:
    """Write the ranking, and the same by every other metric of quality, in both formats."""
    frame, key = records.frame, ranking_key(records.frame)
    if key is None:
        return []
    note, paths = " ".join(mixtures(records.lab, frame["run"].unique())), []
    for metric in dict.fromkeys([key, HELDOUT_LOSS, *sample_metrics(frame)]):
        if metric in frame:
            table = sweep_table(frame, metric, note)
            name = "ranking" if metric == key else named("ranking", metric)
            for ending, text in {"md": table.markdown, "tex": table.latex}.items():
                paths.append(folder / f"{name}.{ending}")
                write_text(paths[-1], text)
    return paths
