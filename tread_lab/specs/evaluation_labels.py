"""Labels of evaluations, `fd+kid@1k at 250`, and names of metrics: `fd@1k w=1.5 SG(0.5/0.9)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tread_lab.specs.decode import decode, encode
from tread_lab.specs.evaluation import KINDS, EvaluationSpec, count_label
from tread_lab.specs.evaluation_steps import AT, end_signature, without_step
from tread_lab.specs.fields import dotted
from tread_lab.specs.guidance import GuidanceSpec, in_short
from tread_lab.specs.labels import value_text
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.specs.references import HELDOUT

Tree = Mapping[str, Any]
_SCORE = "inception_score"  # a setting of the metric `is` alone


def evaluation_label(tree: Tree, source: str | None = None) -> str:
    """Return the label of an evaluation's tree: `heldout_loss`, `fd+kid@1k at 250`, or
    `fid[heldout]@10k` where the data's own held-out images stand in for a reference file.

    Args:
        source: of the data, which decides the features of metrics such as `kid`; where it is not
            known, these carry no `[heldout]`.
    """
    at = f" {AT} {tree['step']}" if tree.get("step") is not None else ""
    if tree["kind"] != "samples":
        return f"{tree['kind']}{at}"
    names = [f"{m}{_against(m, tree, source)}" for m in tree["metrics"]]
    return f"{'+'.join(names) or 'samples'}@{count_label(tree['count'])}{at}"


def _against(metric: str, tree: Tree, source: str | None) -> str:
    """Return `[heldout]` for a metric in features of a large network without a reference file."""
    if metric not in METRICS or not METRICS[metric].compares or tree.get("reference"):
        return ""
    features = METRICS[metric].features
    inception = features == "any" and source is not None and source not in OWN_FEATURES
    return f"[{HELDOUT}]" if features in ("inception", "dinov2") or inception else ""


def setting_names(specs: Sequence[EvaluationSpec]) -> list[str]:
    """Return what tells evaluations of one kind apart: `w=1`, `w=1.5 SG(0.5/0.9)`."""
    settings = [_settings(without_step(encode(spec))) for spec in specs]
    return [suffix.strip() for suffix in _suffixes(settings)]


class MetricNames:
    """Names of metrics in tables, figures and MLflow: `heldout/loss`, `fd@1k w=1.5 SG(0.5/0.9)`.

    A name belongs to its evaluation, whatever else is planned or measured: guidance is always
    said, and of the other settings of a sampler those that are not the experiment's. A probe says
    in what it departs from the first of its kind that was planned. Evaluations at several steps of
    a run share their names: a name does not say the step.

    Args:
        planned: the trees of the plan's evaluations.
        base: the tree of the plan's experiment, whose sampler and reference are usual.
    """

    def __init__(self, planned: Sequence[Tree], base: Tree | None = None) -> None:
        base = base or {}
        sampler = {k: v for k, v in (base.get("sampler") or {}).items() if k != "guidance"}
        self._usual: dict[str, Any] = {"sampler": sampler, "reference": base.get("reference")}
        self._probes = {tree["kind"]: without_step(tree) for tree in reversed(planned)}
        self._names: dict[tuple[str, str], str] = {}

    def name(self, metric: str, evaluation: str, tree: Tree) -> str:
        """Return the name of a metric of the evaluation with this signature and tree."""
        if tree.get("step") is not None:
            evaluation, tree = end_signature(tree), without_step(tree)
        key = evaluation, metric
        if key not in self._names:
            self._names[key] = metric + self._suffix(metric, tree)
        return self._names[key]

    def _suffix(self, metric: str, tree: Tree) -> str:
        if tree["kind"] not in KINDS:  # of a later version
            return ""
        own, usual = _settings(tree), _settings(self._usual_of(tree))
        fields = [f for f in _differing([usual, own]) if f != _SCORE or metric.startswith("is@")]
        return "".join(_setting(field, own.get(field), absent="none") for field in fields)

    def _usual_of(self, tree: Tree) -> Tree:
        """Return the evaluation that needs no settings in the name of its metrics."""
        if tree["kind"] != "samples":
            return self._probes.get(tree["kind"]) or _encoded(tree["kind"], {})
        reference = self._usual["reference"] if tree.get("reference") else None
        own = {"metrics": tree["metrics"], "count": tree["count"], "reference": reference}
        return _encoded("samples", {**self._usual, **own})


def _encoded(kind: str, options: Tree) -> Tree:
    tree: Tree = encode(decode(KINDS[kind], options))
    return tree


def _suffixes(settings: Sequence[Tree]) -> list[str]:
    """Return ` key=value ...` of the fields in which evaluations differ.

    The routes of guidance are said only where nothing else differs.
    """
    differing = _differing(settings)
    for fields in ([f for f in differing if not f.endswith(".routes")], differing):
        names = ["".join(_setting(field, own.get(field)) for field in fields) for own in settings]
        if len(set(names)) == len(names):
            break
    return names


def _differing(settings: Sequence[Tree]) -> list[str]:
    """Return the fields in which evaluations differ; the weight says whether there is CFG."""
    fields = dict.fromkeys(field for own in settings for field in own if field != "metrics")
    values = {field: {repr(own.get(field)) for own in settings} for field in fields}
    plain = {repr(""), repr("CFG")}
    return [f for f, texts in values.items() if len(texts) > 1 and not texts <= plain]


def _setting(field: str, value: Any, absent: str = "") -> str:
    """Return ` key=value`; the method of guidance needs no key."""
    name = field.rpartition(".")[2]
    if value is None:
        return f" {name}={absent}" if absent else ""
    if name == "method":
        return f" {value}" if value else ""
    return f" {name}={value_text(value)}"


def _settings(tree: Tree) -> dict[str, Any]:
    tree = _guidance_in_short(tree)
    if tree.get("reference"):
        tree["reference"] = tree["reference"]["name"]
    return dict(dotted(tree))


def _guidance_in_short(tree: Tree) -> dict[str, Any]:
    """Return the tree with every guidance as people tell it: w, method, interval, ..."""
    short: dict[str, Any] = {}
    for key, value in tree.items():
        if key == "guidance":
            short[key] = in_short(decode(GuidanceSpec, value))
        else:
            short[key] = _guidance_in_short(value) if isinstance(value, Mapping) else value
    return short
