"""The immutable plan of a sweep: its trials, what they cost, and what is done of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tread_lab.engine.cost import cost
from tread_lab.records.durable import write_json
from tread_lab.records.layout import Lab, SweepFolder
from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import UserError
from tread_lab.spec.evaluation import EvaluationSpec, decode_evaluations
from tread_lab.spec.expansion import Hole, Trial, expand
from tread_lab.spec.run import RunSpec
from tread_lab.spec.sweep import Experiment, SweepSpec
from tread_lab.sweep.family import with_ancestors
from tread_lab.sweep.trial import Task, is_complete

FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """Every trial of a sweep in order, baselines first."""

    name: str
    question: str
    experiment: str
    trials: tuple[Trial, ...]
    holes: tuple[Hole, ...]
    evaluations: tuple[EvaluationSpec, ...]
    tree: dict[str, Any]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Distinct runs in order, parents first: a run that several trials share, or that several
        runs start from, is carried out once."""
        specs = {trial.run: trial.spec for trial in self.trials}
        return with_ancestors(Task(spec, self.evaluations) for spec in specs.values())

    def open_tasks(self, lab: Lab) -> list[Task]:
        """Tasks with something left to do."""
        return [task for task in self.tasks if not is_complete(lab, task)]

    @property
    def train_flops(self) -> int:
        return sum(cost(task.spec).train_flops for task in self.tasks)

    @property
    def disk_bytes(self) -> int:
        """Checkpoints at their largest; records and pictures are small beside them."""
        specs = [task.spec for task in self.tasks]
        kept = [s.execution.keep_checkpoints + len(s.execution.keep_steps) + 1 for s in specs]
        return sum(count * cost(s).checkpoint_bytes for count, s in zip(kept, specs))


def make_plan(
    name: str, sweep: SweepSpec, experiment: Experiment, facts: Mapping[str, Any] | None = None
) -> Plan:
    """Expand a sweep into its plan; nothing is written.

    Args:
        facts: further names that the sweep's `where` may use.
    """
    found = expand(sweep, experiment, facts)
    return Plan(
        name=name,
        question=sweep.question,
        experiment=experiment.name,
        trials=found.trials,
        holes=found.holes,
        evaluations=found.evaluations,
        tree={"sweep": encode(sweep), "experiment": encode(experiment)},
    )


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write the plan, once."""
    check_plan(folder, plan)
    if not folder.plan_path.exists():
        write_json(folder.plan_path, {**to_tree(plan), "created": time.time()})


def check_plan(folder: SweepFolder, plan: Plan) -> None:
    """Refuse a different plan under the name of an earlier one.

    Raises:
        UserError: the sweep was planned before with other trials or evaluations.
    """
    before = folder.read_plan()
    if before is not None and _identity(before) != _identity(to_tree(plan)):
        raise UserError(
            f"sweep {plan.name!r} was planned with other trials or evaluations in {folder.path};"
            " give this one another --name"
        )


def load_plan(folder: SweepFolder) -> Plan:
    """The plan that was stored."""
    tree = folder.read_plan()
    if tree is None or tree.get("format") != FORMAT:
        raise UserError(f"{folder.plan_path} is not a plan of this version")
    trials = [
        Trial(t["role"], t["cell"], t["seed"], decode(RunSpec, t["spec"]), t["run"], t["baseline"])
        for t in tree["trials"]
    ]
    holes = [Hole(h["reason"], h["count"], tuple(h["examples"])) for h in tree["holes"]]
    asked = [{e["kind"]: {k: v for k, v in e.items() if k != "kind"}} for e in tree["evaluate"]]
    return Plan(
        name=tree["name"],
        question=tree["question"],
        experiment=tree["experiment"],
        trials=tuple(trials),
        holes=tuple(holes),
        evaluations=decode_evaluations(asked),
        tree=tree["sweep"],
    )


def to_tree(plan: Plan) -> dict[str, Any]:
    """The plan as `plan.json` holds it."""
    return {
        "format": FORMAT,
        "name": plan.name,
        "question": plan.question,
        "experiment": plan.experiment,
        "sweep": plan.tree,
        "holes": encode(plan.holes),
        "evaluate": encode(plan.evaluations),
        "trials": encode(plan.trials),
    }


def _identity(tree: dict[str, Any]) -> Any:
    """What must not change under one name: which runs, compared with what, measured how."""
    return tree["evaluate"], [(t["run"], t["baseline"]) for t in tree["trials"]]
