"""Shorthands of a command become whole specs: parents by signature, `--route` and `--rate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tread_lab.records.lab import Lab
from tread_lab.records.parents import with_parents
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.fields import run_of
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment, SweepSpec

T = TypeVar("T", SweepSpec, Experiment)


def with_whole_parents(part: T, lab: Lab) -> T:
    """Return a sweep or experiment in which the spec of each parent replaces its signature.

    Raises:
        UserError: the lab has no such run, or several.
    """
    return decode(type(part), with_parents(vars(part), lab))


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
