"""Digests of the data of planned runs; runs that are older than such digests keep their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from tread_lab.data.content import content_digest
from tread_lab.data.source import open_data
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.data import DataSpec
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.trials import OtherData


class DataDigests:
    """Fills in what the data of a run hold, before the run is signed.

    Runs from before there were digests have names without them. A stored plan of such runs goes on
    under these names, and so does a single run or a parent that is on record, unless the attempts
    at them have recorded other samples of the training part.

    Args:
        sweep: what is planned now, whose stored plan counts; `None` for a single run.
        say: hears of data that are read, and of what old records do not hold.
    """

    def __init__(
        self,
        lab: Lab,
        sweep: SweepFolder | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._lab, self._sweep, self._say = lab, sweep, say

    def planned(self, spec: RunSpec) -> RunSpec:
        """Return a run of the plan with the digests of its data and of those of its parents.

        Raises:
            OtherData: the runs of the stored plan have no digests, and saw other data; or which of
                its data these are cannot be told.
        """
        alike = [] if spec.data.is_embedded else self._alike(spec.data)
        older = tuple(run for d in alike if d.digest is None for run in self._stored[d])
        if not older:
            return self._with_digest(self._with_parent(spec))
        if not self._may_have_seen(older, spec.data):
            raise OtherData(
                f"data: {spec.data.path} holds other samples than the runs of this sweep saw; put"
                " the data back, or give another --name"
            )
        return spec

    def alone(self, spec: RunSpec) -> RunSpec:
        """Return a run with its digests, or as it is on record without them."""
        spec = self._with_parent(spec)
        folder = self._lab.run_of(spec)
        on_record = not spec.data.is_embedded and folder.readable_spec() is not None
        if on_record and self._may_have_seen((folder.name,), spec.data):
            return spec
        return self._with_digest(spec)

    def _with_parent(self, spec: RunSpec) -> RunSpec:
        if spec.init_from is None or spec.parent is None:
            return spec
        return replace(spec, init_from=replace(spec.init_from, run=self.alone(spec.parent)))

    def _with_digest(self, spec: RunSpec) -> RunSpec:
        if spec.data.digest is not None:
            return spec
        return replace(spec, data=replace(spec.data, digest=self._digest(spec.data)))

    @functools.cache  # noqa: B019
    def _digest(self, data: DataSpec) -> str | None:
        """Return the digest of data; of those that cannot be read here what the stored plan has by
        their path, else by their settings, `None` without any.

        Raises:
            OtherData: the plan has several sets of these settings.
        """
        try:
            return content_digest(data, self._lab.root / "cache", self._say)
        except UserError:  # said when they are used
            alike = [d for d in self._alike(data) if d.digest]
        named = {d.digest: d.path for d in alike if d.path == data.path} or {
            d.digest: d.path for d in alike
        }
        if len(named) > 1:
            held = " and ".join(f"{path} ({digest})" for digest, path in named.items())
            raise OtherData(
                f"data: {data.path} cannot be read, and the runs of this sweep see several sets of"
                f" its settings, {held}; put the data there, or give one of these paths"
            )
        return next(iter(named), None)

    @functools.cached_property
    def _stored(self) -> dict[DataSpec, list[str]]:
        """The data of the stored plan, with the runs that see them."""
        held: dict[DataSpec, list[str]] = {}
        stored = None if self._sweep is None else self._sweep.stored_plan()
        for run, tree in ({} if stored is None else stored.runs()).items():
            held.setdefault(decode(DataSpec, tree.get("data", {})), []).append(run)
        return held

    def _alike(self, data: DataSpec) -> list[DataSpec]:
        """Return the data of the stored plan of the same settings, wherever they lie."""
        return [stored for stored in self._stored if _anywhere(stored) == _anywhere(data)]

    @functools.cache  # noqa: B019
    def _may_have_seen(self, runs: Sequence[str], data: DataSpec) -> bool:
        """Return whether no attempt at runs without digests has recorded other data; say of what
        agrees what is not on record."""
        attempts = (made for run in runs for made in self._lab.run(run).attempts.read())
        facts = (item for attempt in attempts for item in attempt.fingerprint.items())
        seen = {fingerprint for name, fingerprint in facts if name.startswith("data ")}
        try:
            now = open_data(data, "train").fingerprint if seen else None
        except UserError:
            return True
        if now in seen:
            who = f"run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs"
            self._say(
                f"{data.path}: {who} recorded samples of the training part"
                " alone, and these agree; whether the held-out part, labels or captions have"
                " changed since is not on record"
            )
        return not seen or now in seen


def _anywhere(data: DataSpec) -> DataSpec:
    """Return what of a spec says what the data are, whatever their path."""
    return replace(data, path=None, deviation=None, digest=None)
