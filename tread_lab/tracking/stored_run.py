"""A run as the MLflow store has it: up to date or not, and what a person wrote on it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tread_lab.tracking.mlflow_client import Run
from tread_lab.tracking.projection import View
from tread_lab.tracking.sync_tags import FACTS, NAME, SHARED, Authored, Sent

_OWN_TAGS = ("sweep", "lab", "trial", "sent", "authored")
SWEEP, LAB, TRIAL, SENT, AUTHORED = (f"tread_lab.{name}" for name in _OWN_TAGS)
PARENT_RUN = "mlflow.parentRunId"


def is_up_to_date(stored: Run, parent_id: str, stamp: str) -> bool:
    """Return whether the run was sent with this stamp and lies under this parent."""
    tags = stored.data.tags
    return tags.get(PARENT_RUN) == parent_id and Sent.parse(tags.get(SENT, "")).stamp == stamp


def name_of(stored: Run, wanted: str) -> str:
    """Return the name that a run is to have: the one a person gave it, else `wanted`."""
    authored, name = Authored.parse(stored.data.tags.get(AUTHORED)), str(stored.info.run_name)
    return wanted if authored.is_ours(NAME, name, wanted) else name


def own_tags(stored: Run, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the tags of a run without what a person wrote where the sync writes too."""
    tags, wanted = stored.data.tags, wanted or {}
    authored = Authored.parse(tags.get(AUTHORED))
    ours = {k for k in tags if k not in SHARED or authored.is_ours(k, tags[k], wanted.get(k))}
    return {k: tags[k] for k in ours}


def typed_tags(stored: Run, view: View) -> dict[str, str]:
    """Return what a person wrote on a run that is made anew, with the digests that prove it."""
    tags, own = stored.data.tags, own_tags(stored, view.tags)
    made = {*FACTS, *view.tags} - set(SHARED)
    typed = {
        name: text
        for name, text in tags.items()
        if name not in own or not (name in made or name in SHARED or _is_reserved(name))
    }
    return typed | {AUTHORED: tags.get(AUTHORED, "")}


def _is_reserved(name: str) -> bool:
    return name.startswith(("mlflow.", "tread_lab."))


def contradicts(stored: Run, view: View) -> bool:
    """Return whether the store says something that cannot be taken back; the run is made anew."""
    sent = Sent.parse(stored.data.tags.get(SENT, ""))
    if any(stored.data.params.get(name, value) != value for name, value in view.params.items()):
        return True
    if sent.log >= 0 and (sent.born != view.born or sent.log > max(view.logged, default=-1)):
        return True  # the record was replaced by another one
    curves, numbers = {number.key for number in view.logged.values()}, stored.data.metrics
    if numbers.keys() - curves - view.measured.keys() - {number.key for number in view.during}:
        return True  # a number that the record no longer has, or that had another name
    return any(
        key not in curves and not _same(numbers.get(key, number.value), number.value)
        for key, number in view.measured.items()
    )


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
