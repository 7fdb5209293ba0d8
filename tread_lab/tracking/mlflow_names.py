"""Metric names as MLflow accepts them, and what tells two evaluations of one kind apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tread_lab.specs.decode import decode, encode
from tread_lab.specs.dotted import dotted
from tread_lab.specs.evaluation import KINDS, EvaluationSpec, SamplesSpec, count_label
from tread_lab.specs.guidance import in_short

_APART = ("kind", "metrics", "count", "guidance", "inception_score")  # told in other words
OURS = re.compile(r"(?P<metric>[\w/]+)(?:\[(?P<extractor>[\w.-]+)\])?@(?P<count>\d+k?)(?P<rest>.*)")
THEIRS = re.compile(r"(?P<metric>[\w/]+)(?::(?P<extractor>[\w.-]+))?:(?P<count>\d+k?)(?P<rest>.*)")


def to_mlflow(name: str) -> str:
    """`fd[fashion16-v1]@1k` -> `fd:fashion16-v1:1k`, `fid@10k` -> `fid:10k`, others unchanged.

    MLflow accepts letters, digits and `_ - . : /` and the space. Every name of
    tread_lab.records.metric_names comes back through `from_mlflow`; in any other name a character
    that is not accepted becomes `_`, which does not.
    """
    found = OURS.fullmatch(name)
    if found:
        extractor = f":{found['extractor']}" if found["extractor"] else ""
        name = f"{found['metric']}{extractor}:{found['count']}{found['rest']}"
    return re.sub(r"[^\w/.\- :]", "_", name)


def from_mlflow(name: str) -> str:
    """The name in the records of a metric in MLflow."""
    found = THEIRS.fullmatch(name)
    if not found:
        return name
    extractor = f"[{found['extractor']}]" if found["extractor"] else ""
    return f"{found['metric']}{extractor}@{found['count']}{found['rest']}"


def evaluation_spec(tree: Mapping[str, Any]) -> EvaluationSpec:
    """The evaluation of a record or a plan."""
    spec: EvaluationSpec = decode(KINDS[tree["kind"]], tree, "evaluation")
    return spec


def difference(spec: EvaluationSpec, planned: Iterable[EvaluationSpec]) -> str:
    """` guidance 2 steps 20`: where `spec` departs from the first planned evaluation of its kind.

    Metric names carry the number of samples, not the sampler: this keeps a guidance sweep over one
    run apart. Empty for the planned evaluation itself.
    """
    reference = next((p for p in planned if p.kind == spec.kind), None) or KINDS[spec.kind]()
    usual = _fields(reference)
    differing = {name: value for name, value in _fields(spec).items() if value != usual.get(name)}
    return "".join(f" {name} {_plain(value)}" for name, value in differing.items())


def _fields(spec: EvaluationSpec) -> dict[str, Any]:
    """Dotted fields, the guidance in short: ` guidance 1.5 by SG 0.5/0.9`."""
    fields = {name.removeprefix("sampler."): value for name, value in dotted(encode(spec))}
    kept = {n: v for n, v in fields.items() if n.split(".")[0] not in _APART}
    if not isinstance(spec, SamplesSpec):
        return kept
    short = in_short(spec.sampler.guidance)
    weight, method = short.pop("w"), short.pop("method")
    method = re.sub(r"[()+]+", " ", method).strip()
    where = {f"guidance.{name}": value for name, value in short.items()}
    return {**kept, "guidance": weight, "by": method or "CFG", **where}


def folder_name(spec: EvaluationSpec, planned: Iterable[EvaluationSpec]) -> str:
    """The folder of an evaluation's pictures: `samples_64`, `samples_1k_guidance_2`."""
    count = f"_{count_label(spec.count)}" if spec.kind == "samples" else ""
    return re.sub(r"[^\w.-]", "_", f"{spec.kind}{count}{difference(spec, planned)}")


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "-".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value or "none").replace("->", "-")
