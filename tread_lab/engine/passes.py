"""Network calls of an evaluation and the FLOPs of all of them."""

from __future__ import annotations

import math

from tread_lab.engine.cost.sampling import call_macs
from tread_lab.engine.cost.training import FLOPS_PER_MAC, cost
from tread_lab.engine.probes import BATCH as PROBED
from tread_lab.sampling.generate import IMAGES_A_CALL
from tread_lab.specs.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec
from tread_lab.specs.run import RunSpec


def passes(spec: RunSpec, evaluation: EvaluationSpec) -> tuple[int, int]:
    """Network calls of an evaluation, and the FLOPs of all of them."""
    if isinstance(evaluation, SamplesSpec):
        macs, branches = call_macs(spec, evaluation.sampler), evaluation.sampler.guidance.branches
        calls = math.ceil(evaluation.count / IMAGES_A_CALL["cpu"]) * len(macs) * len(branches)
        return calls, evaluation.count * FLOPS_PER_MAC * sum(macs)
    price, images = cost(spec), evaluation.images * evaluation.levels
    macs_each = price.dense_macs
    twice = isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    if twice:
        macs_each += price.routed_macs
    calls = math.ceil(evaluation.images / PROBED) * evaluation.levels * (2 if twice else 1)
    return calls, images * FLOPS_PER_MAC * macs_each
