"""Evaluation defaults: the sampler, reference and probes of evaluations that name none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tread_lab.specs.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.specs.metrics import ReferenceSpec


@dataclass(frozen=True, kw_only=True)
class EvaluationDefaults:
    """Settings of evaluations that name none: those of an experiment, kept with each of its runs.

    Names of metrics list only deviations from these settings.

    Attributes:
        sampler: the experiment's sampler as written; other fields have the defaults of the class.
        reference: statistics that images are compared with; `None` for held-out images.
        heldout_loss, layer_similarity: the first probe of each kind that is planned.
    """

    sampler: Mapping[str, Any] = field(default_factory=dict)
    reference: ReferenceSpec | None = None
    heldout_loss: HeldoutSpec = field(default_factory=HeldoutSpec)
    layer_similarity: SimilaritySpec = field(default_factory=SimilaritySpec)

    def with_probes(self, planned: Iterable[EvaluationSpec]) -> EvaluationDefaults:
        """Return the defaults with the first planned probe of each kind."""
        probes = [spec for spec in planned if not isinstance(spec, SamplesSpec)]
        first = {spec.kind: replace(spec, step=None) for spec in reversed(probes)}
        return replace(self, **first)  # type: ignore[arg-type]

    def without_folders(self) -> EvaluationDefaults:
        """Return the defaults with a reference that is found by its name."""
        named = None if self.reference is None else replace(self.reference, path=None)
        return replace(self, reference=named)
