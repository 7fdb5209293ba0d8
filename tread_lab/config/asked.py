"""A sweep that is asked without a file: settings of an experiment become a sweep file's tree."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from tread_lab.specs.axes import is_range
from tread_lab.specs.errors import UserError
from tread_lab.specs.fields import SHORT, check_field, near_field
from tread_lab.specs.sweep import SweepSpec

OWN = tuple(field.name for field in fields(SweepSpec))
_LISTS = ("seeds", "evaluate")  # keys of a sweep file whose value is a list
_SAMPLER = "sampler."
_LONGEST = 60  # characters of a name

Settings = Mapping[str, list[Any]]  # what was typed: key -> its values


def sweep_tree(experiment: str, settings: Settings) -> dict[str, Any]:
    """Return the sweep file that settings of an experiment stand for.

    A key of sweep files is itself; of any other, several values are an axis, and one is fixed.

    Raises:
        UserError: a key that neither a run nor a sweep file has.
    """
    own = {key: values for key, values in settings.items() if key.partition(".")[0] in OWN}
    of_run = {key: values for key, values in settings.items() if key not in own}
    for key in of_run:
        _check(key)
    several = {key: values for key, values in of_run.items() if _several(values)}
    varied = {key for key in of_run if key in several or key.startswith(_SAMPLER)}
    if any(map(_is_of_route, varied)):  # a part of a route alone is none, so it cannot be fixed
        varied.update(filter(_is_of_route, of_run))
    axes = {key: values for key, values in of_run.items() if key in varied}
    fixed = {key: of_run[key][0] for key in of_run if key not in axes}
    sampler = {key: axes.pop(key) for key in list(axes) if key.startswith(_SAMPLER)}
    tree: dict[str, Any] = {"question": _question(experiment, [*several])}
    tree |= {"experiment": experiment, "fixed": fixed, "axes": axes}
    tree["sampler_axes"] = {key.removeprefix(_SAMPLER): x for key, x in sampler.items()}
    for key, values in own.items():
        _insert(tree, key, values if len(values) > 1 else _alone(key, *values))
    return {key: value for key, value in tree.items() if value != {}}


def sweep_name(tree: Mapping[str, Any]) -> str:
    """Return the name of a sweep after its experiment and what it asks: `tiny-route-lr`."""
    parts = (tree.get("axes", {}), tree.get("sampler_axes", {}), tree.get("variants", {}))
    axes = {key: x for part in parts if isinstance(part, dict) for key, x in part.items()}
    several = [key for key, x in axes.items() if not isinstance(x, list) or _several(x)]
    asked = several or [*axes, *tree.get("fixed", {})]
    name = "-".join([Path(tree["experiment"]).stem, *dict.fromkeys(map(_leaf, asked))])
    return re.sub(r"[^\w.+-]+", "_", name)[:_LONGEST]


def sweep_text(tree: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the sweep file of a tree as YAML, below the command that it stands for."""
    body = yaml.safe_dump(dict(tree), sort_keys=False, default_flow_style=None, width=96)
    return f"# tread-lab sweep {shlex.join(words)}\n{body}"


def _leaf(key: str) -> str:
    return str(key).rpartition(".")[2]


def _check(key: str) -> None:
    """Refuse a key that nothing has; the sampler's are checked where they are decoded."""
    if key == "seed":
        raise UserError("seed: write seeds=0,1 or seeds=0..4, which baselines have, too")
    if key.startswith(_SAMPLER):
        return
    try:
        check_field(key)
    except UserError:
        near = near_field(key, (*OWN, *SHORT))
        raise UserError(f"{key}: neither a run nor a sweep has it{near}") from None


def _several(values: list[Any]) -> bool:
    return len(values) != 1 or is_range(values[0])


def _is_of_route(key: str) -> bool:
    return key.partition(".")[0] in SHORT


def _alone(key: str, value: Any) -> Any:
    is_list = isinstance(value, list) or is_range(value)
    return [value] if key in _LISTS and not is_list else value


def _insert(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key of a sweep file beside what the other settings have made."""
    head, _, rest = key.partition(".")
    if not rest:
        if isinstance(tree.get(head), dict) and tree[head]:
            raise UserError(f"{key}: {next(iter(tree[head]))} stands in it already; write one")
        tree[head] = value
        return
    below = tree.setdefault(head, {})
    if not isinstance(below, dict):
        raise UserError(f"{key}: {head} is given whole already; write one of both")
    if head in ("axes", "fixed", "sampler_axes"):
        if rest in below:
            raise UserError(f"{key}: {rest} is given already; write one of both")
        below[rest] = value
    else:
        _insert(below, rest, value)


def _question(experiment: str, axes: list[str]) -> str:
    what = " and ".join([", ".join(axes[:-1]), axes[-1]] if axes[1:] else axes)
    verb = "do" if axes[1:] else "does"
    return f"What {verb} {what or 'routing'} change in {Path(experiment).stem}?"
