"""The recommend command: the rule that a placement sweep supports, and an experiment with it."""

from __future__ import annotations

import json
from pathlib import Path

from tread_lab.analysis.recommend import wording
from tread_lab.analysis.recommend.recommendation import recommend
from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab


def run(
    *,
    root: str | None,
    name: str,
    metric: str,
    cheapest: bool,
    equal_steps: bool,
    out: str | None,
    as_json: bool,
) -> int:
    """Say the rule and how sure it is, and write the experiment; return the exit code."""
    lab = Lab.existing(root)
    rule = recommend(lab, name, metric=metric, cheapest=cheapest, equal_steps=equal_steps)
    path = None
    if rule.verdict != "dense":
        path = Path(out or lab.sweep(rule.sweep).path / "recommended.yaml").absolute()
        wording.write_experiment(lab, rule, path)
    if as_json:
        written = None if path is None else str(path)
        print(json.dumps({**wording.as_tree(rule), "experiment": written}, indent=1))
        return DONE
    lines = wording.as_lines(rule)
    for line in (
        lines if path is None else [*lines, f"experiment: {path} (`tread-lab train {path}`)"]
    ):
        print(line)
    return DONE
