"""Labels of evaluations: `fd+kid@1k`, and what tells several of one kind apart: `w=1.5 CFG`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tread_lab.specs.decode import decode, encode
from tread_lab.specs.dotted import dotted
from tread_lab.specs.evaluation import EvaluationSpec, count_label
from tread_lab.specs.guidance import GuidanceSpec, in_short
from tread_lab.specs.labels import value_text

Tree = Mapping[str, Any]


def evaluation_label(tree: Tree) -> str:
    """Return the label of an evaluation's tree: `heldout_loss`, or `fd+kid@1k` for samples."""
    if tree["kind"] != "samples":
        return str(tree["kind"])
    return f"{'+'.join(tree['metrics']) or 'samples'}@{count_label(tree['count'])}"


def setting_names(specs: Sequence[EvaluationSpec]) -> list[str]:
    """Return what tells evaluations of one kind apart: `w=1`, `w=1.5 SG(0.5/0.9)`."""
    trees = {str(number): encode(spec) for number, spec in enumerate(specs)}
    return [suffix.strip() for suffix in suffixes(trees, trees).values()]


def suffixes(trees: Mapping[str, Tree], planned: Collection[str]) -> dict[str, str]:
    """Return what a metric's name ends with for each evaluation by signature: ` w=1.5 CFG`.

    The planned evaluations are named as if they were alone, unless two names would then be one.
    """
    settings = {sig: dict(dotted(_guidance_in_short(tree))) for sig, tree in trees.items()}
    every = _differences(settings)
    short = every | _differences({sig: settings[sig] for sig in settings if sig in planned})
    return short if len(set(short.values())) == len(short) else every


def _differences(settings: Mapping[str, Tree]) -> dict[str, str]:
    """Return ` key=value ...` of the fields in which these evaluations differ.

    The method of guidance needs no key; where every method is CFG, the weight says enough. The
    routes are said only where nothing else differs.
    """
    fields = dict.fromkeys(field for tree in settings.values() for field in tree)
    fields.pop("metrics", None)
    values = {field: {repr(tree.get(field)) for tree in settings.values()} for field in fields}
    plain = {repr(""), repr("CFG")}
    differing = [f for f, texts in values.items() if len(texts) > 1 and not texts <= plain]
    short = _named(settings, [field for field in differing if not field.endswith(".routes")])
    return short if len(set(short.values())) == len(short) else _named(settings, differing)


def _named(settings: Mapping[str, Tree], fields: Sequence[str]) -> dict[str, str]:
    return {
        sig: "".join(_setting(field, tree.get(field)) for field in fields)
        for sig, tree in settings.items()
    }


def _setting(field: str, value: Any) -> str:
    name = field.rpartition(".")[2]
    if name == "method" or value is None:
        return f" {value}" if value else ""
    return f" {name}={value_text(value)}"


def _guidance_in_short(tree: Tree) -> dict[str, Any]:
    """Return the tree with every guidance as people tell it: w, method, interval, ..."""
    return {
        key: in_short(decode(GuidanceSpec, value))
        if key == "guidance"
        else _guidance_in_short(value)
        if isinstance(value, Mapping)
        else value
        for key, value in tree.items()
    }
