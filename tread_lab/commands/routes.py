"""The routes of `--route` and `--rate`, put into the run of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment
from tread_lab.specs.then import run_of


def run_spec(experiment: Experiment, routes: Sequence[str] | None, rate: float | None) -> RunSpec:
    """Return the run of an experiment with other routes.

    Args:
        routes: routes such as `2->B-4`; `None` keeps those of the experiment.
        rate: the selection rate of every route; `None` keeps each route's own.

    Raises:
        UserError: a rate is given, and the run has no route.
    """
    tree = dict(experiment.run)
    if routes:
        tree["routes"] = routes
    if rate is None:
        return run_of(tree)
    spec = run_of({**tree, "then": None})
    if not spec.routes:
        raise UserError('--rate: there is no route; add --route "2->B-4"')
    rated = [{**encode(route), "rate": rate} for route in spec.routes]
    return run_of({**tree, "routes": rated})
