"""The ranking of a sweep's cells, best first, and the places of its figures and records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from tread_lab.cli.console import ROWS, answers, say, table
from tread_lab.config.sweep import ema_notices
from tread_lab.records.caveats import left_note, mixtures
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT, GAP_TRAIN, HELDOUT_LOSS
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.results import (
    KEPT,
    own_metrics,
    ranked_cells,
    ranking_caption,
    ranking_key,
    trials_frame,
    without_baseline,
)
from tread_lab.results.ranking import SAMPLES, formatted, ranking
from tread_lab.tracking.store import shown as without_password

LONGEST = 80  # characters of a reason


def show_ranking(lab: Lab, name: str, *, as_json: bool) -> pd.DataFrame:
    """Print the sweep's cells, best first, each with its gap to the baseline and its interval."""
    frame = trials_frame(lab, name)
    if frame.empty:
        say(f"no run of {name} has begun")
        return frame
    if as_json:
        print(frame.to_json(orient="records", indent=1))
        return frame
    shown = list(filter(_ranked, own_metrics(frame)))
    key = ranking_key(frame)
    if key is None:
        cells = ranked_cells(frame, None)
        _show_cells(pd.DataFrame({name: cells[name] for name in ("cell", "state", "reason")}))
    else:
        numbers = ranking(frame, key, beside=[c for c in shown if c not in (key, GAP_HELDOUT)])
        texts = formatted(numbers, key).drop(columns="state")
        overs = [over for over in dict.fromkeys(texts.get("interval over", ())) if over]
        if len(overs) < 2:  # a line says it
            texts = texts.drop(columns="interval over", errors="ignore")
        _show_cells(texts.assign(state=numbers["state"], reason=numbers["reason"]))
        print(ranking_caption(key, frame.attrs.get("comparison", "")))
        for line in _meanings(frame, overs, samples=any(SAMPLES in str(head) for head in texts)):
            print(line)
    for line in without_baseline(frame):
        print(line)
    return _marked(frame, lab)


def _marked(frame: pd.DataFrame, lab: Lab) -> pd.DataFrame:
    """Say below a table what keeps its numbers from one comparison; return the frame."""
    runs = frame["run"].unique()
    specs = [run.spec() for run in map(lab.run, runs) if run.spec_tree() is not None]
    left = left_note(frame.attrs.get("left", []))
    for line in (*left, *mixtures(lab, runs), *ema_notices(specs)):
        print(line)
    return frame


def _show_cells(texts: pd.DataFrame) -> None:
    """Print the first rows of a ranking."""
    texts = texts.assign(reason=texts["reason"].str.slice(0, LONGEST))
    if not any(texts["reason"]):
        texts = texts.drop(columns="reason")
    answers.print(table(list(map(str, texts)), texts.head(ROWS).to_numpy().tolist()))
    if len(texts) > ROWS:
        print(f"... and {len(texts) - ROWS} more")


def _meanings(frame: pd.DataFrame, overs: Sequence[str], *, samples: bool) -> Iterator[str]:
    """Say what the gap is, what pairing was worth, and what the intervals are over."""
    if GAP_HELDOUT in frame:
        kept = frame.loc[frame["run"] != frame["baseline"], GAP_HELDOUT + KEPT].median()
        removed = f"; using equal images and noise removed {1 - kept:.1%} of the variance"
        paired = removed if math.isfinite(kept) else ""
        yield f"gap: difference to the baseline, paired{paired}"
    if overs:
        over = f" over {overs[0]}" if len(overs) == 1 else ""
        alone = "; seeds vary more" * any("1 seed" in over for over in overs)
        yield f"±: 95% interval{over}{alone}"
    if samples:
        yield "± of samples: 95% as these networks draw other images; seeds vary more"


def _ranked(column: str) -> bool:
    """Return whether a column is ranked: held-out loss, a gap, or a metric of samples."""
    named = column in (HELDOUT_LOSS, GAP_HELDOUT, GAP_TRAIN) or "@" in column
    return named and ":" not in column


def show_places(lab: Lab, folder: SweepFolder, *, mlflow: bool) -> None:
    """Print the paths of figures, records and the MLflow store."""
    say(f"figures: {folder.figures}", f"records: {lab.root / 'runs'}")
    if mlflow:
        uri = without_password(lab.mlflow_uri)
        say(f"MLflow:  {uri} (`tread-lab ui --root {lab.root}` opens it)")
