"""A recommendation in words, as a tree for scripts, and as an experiment that uses its rule."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tread_lab.analysis.recommend.recommendation import (
    FEWEST_SEEDS,
    Evidence,
    Place,
    Recommendation,
)
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.specs.errors import UserError
from tread_lab.specs.trials import QUESTIONS
from tread_lab.specs.units import with_interval
from tread_lab.specs.yaml_text import dump_yaml

_MOST_SHOWN = 6


def as_lines(found: Recommendation) -> list[str]:
    """Return the recommendation for people, the verdict first."""
    route = f"route {found.rule}"
    lines = [_VERDICTS[found.verdict].format(route)]
    lines += [f"  asked {found.comparison}"] if found.comparison else []
    for e in found.evidence:
        lines += [f"  depth {e.depth}: {text}" for text in _about(e)]
    if len(found.evidence) == 1:
        lines.append(
            "  Only one depth was tried, so B-k and a fixed fraction of the depth fit equally;"
            " written as in the paper"
        )
    return lines


_VERDICTS = {
    "dense": "dense: the best placement, {}, is worse at 95%, so no experiment is written for it",
    "established": "{}: established, no other placement is as good at 95%",
    "undecided": "{}: undecided, other placements may be as good or better",
    "insufficient": f"{{}}: not established, that takes {FEWEST_SEEDS} seeds or more",
}


def _about(e: Evidence) -> Iterator[str]:
    """Give the sentences about one depth."""
    gap = with_interval(e.gap.mean, e.gap.low, e.gap.high, signed=True)
    one_seed = e.gap.unit == "images"
    over = f"{e.gap.n} {e.gap.unit}{' of one pair of runs' * one_seed}"
    yield f"{GAP_HELDOUT} {gap} against the baseline (95% over {over})"
    members = _best_set(e)
    basis = "the images of one seed (other seeds may differ)" if one_seed else f"{e.gap.n} seeds"
    more = len(members) - _MOST_SHOWN
    shown = ", ".join(members[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    yield f"best set of {len(e.cells)} placements over {basis}: {shown}"
    if e.ranks is not None:
        first, last = e.ranks.low_K[e.chosen], e.ranks.high_K[e.chosen]
        yield (
            f"rank {first}" + (f" to {last}" if last > first else "") + f", first in"
            f" {e.ranks.first_K[e.chosen]:.0%} of resamples"
        )
        seeds, rival = e.seeds_needed or "more than 200", _show(e.places[e.runner_up])
        yield f"{seeds} seeds would distinguish it from {rival} (80% power)"
    if e.unfinished:
        yield f"{e.unfinished} placements are left out because a seed has no number"


def _best_set(e: Evidence) -> list[str]:
    """Return the placements of the best set, the best one first."""
    return [_show(place) for place, best in zip(e.places, e.cells["best"]) if best]


def _show(place: Place) -> str:
    return f"{place[0]}->{place[1]} at {place[2]:g}"


def as_tree(found: Recommendation) -> dict[str, Any]:
    """Return the recommendation for scripts."""
    route = {"start": found.rule.start, "end": found.rule.end, "rate": found.rule.rate}
    return {
        "sweep": found.sweep,
        "metric": GAP_HELDOUT,
        "comparison": found.comparison,
        "verdict": found.verdict,
        "rule": None if found.verdict == "dense" else route,
        "best_placement": route,
        "evidence": [
            {
                "depth": e.depth,
                "seeds": len(e.values_SK),
                "unit": e.gap.unit,
                "chosen": _show(e.places[e.chosen]),
                "gap": [e.gap.mean, e.gap.low, e.gap.high],
                "best_set": _best_set(e),
                "placements": len(e.cells),
                "seeds_needed": e.seeds_needed,
                "first_share": None if e.ranks is None else float(e.ranks.first_K[e.chosen]),
            }
            for e in found.evidence
        ],
    }


def write_experiment(lab: Lab, found: Recommendation, path: Path) -> None:
    """Write an experiment that uses the rule: the sweep's own run with these routes.

    It has the steps of that run, or those of its baseline where cells were compared at equal steps.

    Raises:
        UserError: the file exists and was not written by a recommendation.
    """
    mark = f"recommended by the sweep {found.sweep}"
    if path.exists() and mark not in path.read_text(encoding="utf-8"):
        raise UserError(f"{path} was not written by a recommendation; choose another --out")
    plan = lab.known_sweep(found.sweep).plan()
    first = found.evidence[0]
    run = first.cells["run"].iloc[first.chosen]
    trials = {trial.run: trial for trial in plan.trials}
    tree = dict(trials[run].spec)
    baseline = trials[run].baseline
    if baseline is not None and found.comparison == QUESTIONS[None]:
        tree["train"] = {**tree["train"], "steps": trials[baseline].steps}
    rule = found.rule
    own = {"start": rule.start, "end": rule.end, "rate": rule.rate}
    tree["routes"] = [{**tree["routes"][0], **own}]
    stem = path.stem
    head = [
        f"# What does the route {rule} do, {mark}?",
        f"#   tread-lab train {stem}",
        *(f"# {line}" for line in as_lines(found)),
    ]
    body = {
        "question": f"What does the route {rule} do?",
        **{key: value for key, value in tree.items() if key != "seed"},
        **({"sampler": plan.base["sampler"]} if plan.base.get("sampler") else {}),
        "evaluate": plan.evaluations_as_written,
    }
    body = json.loads(json.dumps(body))  # YAML would name the parts that a stored plan shares
    write_text(path, "\n".join(head) + "\n" + dump_yaml(body))
