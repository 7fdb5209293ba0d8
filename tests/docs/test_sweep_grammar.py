"""The page on sweep files tells the truth: every example makes what its first line says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, Block, blocks
from tread_lab.config.load import load_sweep
from tread_lab.sweep.plan.plan import make_plan

EXAMPLES = [b for b in blocks(DOCS / "sweep_grammar.md") if "experiment: tiny" in b.text]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda b: b.text.splitlines()[0].strip("# "))
def test_an_example_makes_what_its_first_line_says(block: Block, in_folder: Path) -> None:
    Path("example.yaml").write_text(block.text)
    _, sweep, experiment = load_sweep("example.yaml")
    found = make_plan("example", sweep, experiment)
    roles = Counter(trial.role for trial in found.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "holes": sum(hole.count for hole in found.excluded),
        "duplicates": sum(s.count for s in found.duplicates if s.reason == "written again"),
        "evaluations": len(found.evaluations),
    }
    said = re.findall(r"(\d+) (\w+)", block.text.splitlines()[0])
    assert said and {name: counts[name] for _, name in said} == {n: int(k) for k, n in said}
    assert counts["holes"] == 0 or "holes" in {name for _, name in said}


def test_there_is_an_example_for_every_key() -> None:
    keys = {line.split(":")[0] for block in EXAMPLES for line in block.text.splitlines()}
    assert keys >= {
        "axes",
        "variants",
        "trials",
        "where",
        "baseline",
        "match",
        "seeds",
        "sampler_axes",
    }
