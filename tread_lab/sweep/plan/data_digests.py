"""Digests of the data of planned runs; runs that are older than such digests keep their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from tread_lab.data.content import content_digest
from tread_lab.data.source import open_data
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.data import DataSpec
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.trials import OtherData
from tread_lab.specs.units import counted


class DataDigests:
    """Fills in what the data of a run hold, before the run is signed.

    Runs from before there were digests have names without them. A stored plan of such runs goes on
    under these names, and so does a single run or a parent that is on record, if the data of today
    agree with the samples of the training part that the attempts at them have recorded.

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
        self._filled: dict[DataSpec, DataSpec] = {}
        self._compared: set[DataSpec] = set()

    def planned(self, spec: RunSpec) -> RunSpec:
        """Return a run of the plan with the digests of its data and of those of its parents.

        Raises:
            OtherData: the runs of the stored plan have no digests, and saw other data; or which of
                its data these are cannot be told.
        """
        runs = [] if spec.data.is_embedded else self._runs_without_digest(spec.data)
        if not runs:
            return self._with_digest(self._with_parent(spec))
        if spec.data not in self._compared:
            agree = self._agree(spec.data, seen := self._seen(runs))
            if agree is False:
                raise OtherData(
                    f"data: the training part in {spec.data.path} has the fingerprint"
                    f" {_fingerprint(spec.data)}, and the runs of this sweep saw"
                    f" {' and '.join(sorted(seen))}; put the data back, or give another --name"
                )
            self._say_old(spec.data, agree, f"{counted(len(runs), 'run')} of this sweep")
        return spec

    def alone(self, spec: RunSpec) -> RunSpec:
        """Return a run with its digests, or as it is on record without them."""
        spec = self._with_parent(spec)
        if spec.data.is_embedded:
            return spec
        folder = self._lab.run_of(spec)
        if folder.readable_spec() is None:
            return self._with_digest(spec)
        agree = self._agree(spec.data, self._seen([folder.name]))
        if agree is False:
            return self._with_digest(spec)
        self._say_old(spec.data, agree, f"run {folder.name}")
        return spec

    def _with_parent(self, spec: RunSpec) -> RunSpec:
        if spec.init_from is None or spec.parent is None:
            return spec
        return replace(spec, init_from=replace(spec.init_from, run=self.alone(spec.parent)))

    def _with_digest(self, spec: RunSpec) -> RunSpec:
        if spec.data.digest is not None or spec.data.is_embedded:
            return spec
        if (data := spec.data) not in self._filled:
            try:
                digest = content_digest(data, self._lab.root / "cache", self._say)
            except UserError:  # said when they are used
                digest = self._stored_digest(data)
            self._filled[data] = replace(data, digest=digest)
        return replace(spec, data=self._filled[data])

    def _stored_digest(self, data: DataSpec) -> str | None:
        """Return the digest that the stored plan has of data that cannot be read here, by their
        path, else by their settings; `None` without any.

        Raises:
            OtherData: the plan has several sets of these settings.
        """
        alike = [d for d in self._stored_data if d.digest and _anywhere(d) == _anywhere(data)]
        named = [known for known in alike if known.path == data.path] or alike
        digests = list(dict.fromkeys(known.digest for known in named))
        if len(digests) > 1:
            held = " and ".join(f"{known.path} ({known.digest})" for known in named)
            raise OtherData(
                f"data: {data.path} cannot be read, and the runs of this sweep see several sets of"
                f" its settings, {held}; put the data there, or give one of these paths"
            )
        return digests[0] if digests else None

    @cached_property
    def _stored_data(self) -> dict[DataSpec, list[str]]:
        """The data of the stored plan, with the runs that see them."""
        found: dict[DataSpec, list[str]] = {}
        stored = None if self._sweep is None else self._sweep.stored_plan()
        for run, tree in ({} if stored is None else stored.runs()).items():
            found.setdefault(decode(DataSpec, tree.get("data", {})), []).append(run)
        return found

    def _runs_without_digest(self, data: DataSpec) -> list[str]:
        """Return the runs of the stored plan on data of these settings that have no digest."""
        older = (d for d in self._stored_data if d.digest is None)
        return [r for d in older if _anywhere(d) == _anywhere(data) for r in self._stored_data[d]]

    def _seen(self, runs: Iterable[str]) -> set[str]:
        """Return the fingerprints of training parts that attempts at the runs have recorded."""
        attempts = (made for run in runs for made in self._lab.run(run).attempts.read())
        facts = (item for attempt in attempts for item in attempt.fingerprint.items())
        return {fingerprint for name, fingerprint in facts if name.startswith("data ")}

    def _agree(self, data: DataSpec, seen: set[str]) -> bool | None:
        """Return whether data are those that were seen; `None` where that cannot be compared."""
        try:
            return _fingerprint(data) in seen if seen else None
        except UserError:
            return None

    def _say_old(self, data: DataSpec, agree: bool | None, runs: str) -> None:
        """Say once of data that agree what is not on record."""
        if agree and data not in self._compared:
            self._say(
                f"{data.path}: {runs} recorded samples of the training part alone, and these agree;"
                " whether the held-out part, labels or captions have changed since is not on record"
            )
        self._compared.add(data)


def _anywhere(data: DataSpec) -> DataSpec:
    """Return what of a spec says what the data are, whatever their path."""
    return replace(data, path=None, deviation=None, digest=None)


def _fingerprint(data: DataSpec) -> str:
    return open_data(data, "train").fingerprint
