"""JSON of `sweep --plan --json`: the plan with its counts and the costs of each run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tread_lab.engine.cost.training import cost
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import to_stored


def plan_with_costs(plan: Plan) -> dict[str, Any]:
    """Return `plan.json` with counts and costs, the same bytes on every machine at any time."""
    specs = {task.run: task.spec for task in plan.tasks}
    roles = Counter(trial.role for trial in plan.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "parents": plan.parents,
        "runs": len(specs),
        "evaluations": len(plan.evaluations),
        "holes": sum(hole.count for hole in plan.excluded),
        "duplicates": sum(same.count for same in plan.duplicates),
    }
    costs = {"train_flops": plan.train_flops, "disk_bytes": plan.disk_bytes}
    runs = {run: _price(spec) for run, spec in specs.items()}
    return {**to_stored(plan).tree(), "counts": counts, "cost": costs, "runs": runs}


def _price(spec: RunSpec) -> dict[str, float]:
    price = cost(spec)
    return {
        "parameters": price.parameters,
        "train_flops": price.train_flops,
        "speedup": round(price.speedup, 4),
        "speedup_on_gpu": round(price.speedup_on_gpu, 4),
        "checkpoint_bytes": price.checkpoint_bytes,
    }
