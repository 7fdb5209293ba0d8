"""Evaluations as text: the list of a sweep file, labels, and the names of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tread_lab.config.cell import Tree
from tread_lab.config.decode import decode, encode, opened
from tread_lab.config.errors import UserError, placed, shown, suggest
from tread_lab.config.evaluation import (
    AT,
    KINDS,
    EvaluationDefaults,
    EvaluationSpec,
    SamplerSpec,
    SamplesSpec,
    end_signature,
    joined,
    steps_of,
    without_step,
)
from tread_lab.config.fields import dotted, merged
from tread_lab.config.guidance import in_short
from tread_lab.config.labels import value_text
from tread_lab.config.metrics import HELDOUT, METRICS, OWN_FEATURES
from tread_lab.config.units import short


def decode_evaluations(
    items: Any,
    defaults: EvaluationDefaults | None = None,
    cells: Sequence[Mapping[str, Any]] = ({},),
) -> tuple[EvaluationSpec, ...]:
    """Return the evaluations of a list such as `[heldout_loss, fd@1k, {samples: {count: 64}}]`.

    `fd@1k` is short for `{samples: {metrics: [fd], count: 1000}}`, and `fid[heldout]@1k` is that
    with `reference: heldout`; metrics that share count, sampler, step and reference become one
    evaluation, so that images are generated once.
    `fd@1k at 250, 50%, end` is one evaluation at each of these steps, and so is the key `at`.

    Args:
        defaults: what items leave unsaid; `None` for the defaults of their classes.
        cells: dotted fields of the sampler; every evaluation of samples is made once per cell.

    Raises:
        UserError: an unknown evaluation or a wrong option, with its dotted path.
    """
    if not isinstance(items, list | tuple):
        raise UserError(f"evaluate: must be a list, got {shown(items)}. Try [heldout_loss, fd@1k].")
    usual = defaults or EvaluationDefaults()
    decode(SamplerSpec, usual.sampler, "sampler")  # which no evaluation here may use
    places = [(item, f"evaluate[{k}]") for k, item in enumerate(joined(items))]
    return _merged(
        spec
        for item, place in places
        for cell in cells
        for spec in _evaluations(item, usual, cell, place)
    )


def _evaluations(
    item: Any, usual: EvaluationDefaults, cell: Mapping[str, Any], path: str
) -> list[EvaluationSpec]:
    """Return the evaluation of an item, once for each of its steps."""
    if isinstance(item, SamplesSpec) and cell:
        item = {"samples": {k: v for k, v in encode(item).items() if k != "kind"}}
    if isinstance(item, EvaluationSpec):
        return [item]
    kind, options = _kind_and_options(item, path)
    path = f"{path}.{kind}"
    with placed(path):
        if kind == "samples":
            own = opened(None, options.get("sampler") or {})
            options["sampler"] = merged(SamplerSpec, {**usual.sampler, **own}, cell)
            reference = options.get("reference", usual.reference)
            options["reference"] = None if reference == HELDOUT else reference
        else:
            options = {**without_step(encode(getattr(usual, kind))), **options}
        if {AT, "step"} <= {*options}:
            raise UserError(f"`{AT}` and `step` say the same; leave one")
        steps = steps_of(options.pop(AT)) if AT in options else (options.get("step"),)
    return [decode(KINDS[kind], {**options, "step": step}, path) for step in steps]


def _kind_and_options(item: Any, path: str) -> tuple[str, dict[str, Any]]:
    """Return `samples` and its options for `fd@1k`, `heldout_loss` and `{}` for that name alone.

    The steps after ` at ` are the option `at`.
    """
    if isinstance(item, str):
        name, said, steps = item.partition(f" {AT} ")
        at = {AT: steps} if said else {}
        pattern = r"(\w+)(\[heldout\])?@(\d{1,9})(k?)"
        if match := re.fullmatch(pattern, name.strip(), flags=re.IGNORECASE):
            count = int(match[3]) * (1000 if match[4] else 1)
            heldout = {"reference": HELDOUT} if match[2] else {}
            return "samples", {"metrics": [match[1].lower()], "count": count, **heldout, **at}
        item = {name.strip(): at}
    if not isinstance(item, Mapping) or len(item) != 1:
        raise UserError(f"must be a name or {{name: options}}, got {shown(item)}").at(path)
    ((kind, options),) = item.items()
    if kind not in KINDS:
        digits = re.search(r"\d+k?$", str(kind))
        names = [*KINDS, *(f"{name}@{digits[0] if digits else '1k'}" for name in METRICS)]
        raise UserError(f"unknown evaluation {kind!r}{suggest(str(kind), names)}").at(path)
    with placed(f"{path}.{kind}"):
        return kind, dict(opened(None, options or {}))


def _merged(specs: Iterable[EvaluationSpec]) -> tuple[EvaluationSpec, ...]:
    """Merge the evaluations of samples that share images; equal ones are one."""
    merged: dict[Any, EvaluationSpec] = {}
    for spec in specs:
        key: Any = spec
        if isinstance(spec, SamplesSpec):
            key = spec.count, spec.sampler, spec.step, spec.reference and spec.reference.name
        first = merged.get(key)
        if isinstance(spec, SamplesSpec) and isinstance(first, SamplesSpec):
            metrics = tuple(dict.fromkeys((*first.metrics, *spec.metrics)))
            spec = replace(spec, metrics=metrics)
        merged[key] = spec
    return tuple(
        replace(spec, reference=None)
        if isinstance(spec, SamplesSpec) and not any(METRICS[m].compares for m in spec.metrics)
        else spec
        for spec in merged.values()
    )


def count_label(count: int) -> str:
    """Return `10k` for 10000, `512` for 512: the sample size as metric names carry it."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


def _against(metric: str, tree: Tree, source: str | None) -> str:
    """Return `[heldout]` for a metric in features of a large network without a reference file."""
    if metric not in METRICS or not METRICS[metric].compares or tree.get("reference"):
        return ""
    features = METRICS[metric].features
    inception = features == "any" and source is not None and source not in OWN_FEATURES
    return f"[{HELDOUT}]" if features in ("inception", "dinov2") or inception else ""


class MetricNames:
    """Names of metrics in tables, figures and MLflow: `heldout/loss`, `fd@1k w=1.5 SG(0.5/0.9)`.

    A name belongs to its evaluation, whatever else is planned or measured: guidance is always
    said, and of the other settings those that differ from the defaults of the sweep or the run.
    Evaluations at several steps of a run share their names: a name does not say the step.
    """

    def __init__(self, defaults: EvaluationDefaults) -> None:
        self._defaults = defaults
        self._names: dict[tuple[str, str], str] = {}

    def label(self, tree: Tree, source: str | None = None) -> str:
        """Return the label of an evaluation's tree: `heldout_loss`, `fd+kid@1k steps=8 at 250`, or
        `fid[heldout]@10k` where the data's own held-out images stand in for a reference file.

        Args:
            source: of the data, which decides the features of metrics such as `kid`; where it is
                not known, these carry no `[heldout]`.
        """
        at = f" {AT} {tree['step']}" if tree.get("step") is not None else ""
        name = tree["kind"]
        if name == "samples":
            metrics = [f"{m}{_against(m, tree, source)}" for m in tree["metrics"]]
            name = f"{'+'.join(metrics) or name}@{count_label(tree['count'])}"
        return f"{name}{self._suffix(without_step(tree))}{at}"

    def name(self, metric: str, evaluation: str, tree: Tree) -> str:
        """Return the name of a metric of the evaluation with this signature and tree."""
        if tree.get("step") is not None:
            evaluation, tree = end_signature(tree), without_step(tree)
        key = evaluation, metric
        if key not in self._names:
            self._names[key] = metric + self._suffix(tree)
        return self._names[key]

    def _suffix(self, tree: Tree) -> str:
        own, usual = _settings(tree), _settings(self._usual_of(tree))
        return "".join(_setting(field, own.get(field)) for field in _differing(usual, own))

    def _usual_of(self, tree: Tree) -> Tree:
        """Return the evaluation that needs no settings in the name of its metrics."""
        if tree["kind"] != "samples":
            probe: Tree = encode(getattr(self._defaults, tree["kind"]))
            return without_step(probe)
        usual = self._defaults
        sampler = {name: x for name, x in usual.sampler.items() if name != "guidance"}
        reference = usual.reference if tree.get("reference") else None
        own = {"metrics": tree["metrics"], "count": tree["count"], "reference": reference}
        samples: Tree = encode(decode(SamplesSpec, {"sampler": sampler, **own}))
        return samples


def _differing(one: Tree, other: Tree) -> list[str]:
    """Return the fields in which evaluations differ; the weight says whether there is CFG."""
    fields = dict.fromkeys(field for field in [*one, *other] if field != "metrics")
    values = {field: {repr(one.get(field)), repr(other.get(field))} for field in fields}
    return [f for f, texts in values.items() if len(texts) > 1 and not texts <= {"''", "'CFG'"}]


def _setting(field: str, value: Any) -> str:
    """Return ` key=value`; the method of guidance needs no key."""
    name = field.rpartition(".")[2]
    if value is None:
        return f" {name}=none"
    if name == "method":
        return f" {value}" if value else ""
    return f" {name}={short(value) if isinstance(value, float) else value_text(value)}"


def _settings(tree: Tree) -> dict[str, Any]:
    """Return the dotted settings of an evaluation, guidance as people tell it: w, method, ..."""
    own = dict(tree)
    if own.get("reference"):
        own["reference"] = own["reference"]["name"]
    if sampler := own.get("sampler"):
        own["sampler"] = {**sampler, "guidance": in_short(sampler["guidance"])}
    return dict(dotted(own))
