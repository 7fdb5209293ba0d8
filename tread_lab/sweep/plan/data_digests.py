"""Digests of the data of planned runs, by which their names differ where the data do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from tread_lab.data.content import content_digest
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.data import DataSpec
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.trials import OtherData


class DataDigests:
    """Fills in what the data of a run hold, before the run is signed.

    Args:
        sweep: what is planned now, whose stored plan counts; `None` for a single run.
        say: hears of data that are read.
    """

    def __init__(
        self,
        lab: Lab,
        sweep: SweepFolder | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._lab, self._sweep, self._say = lab, sweep, say

    def named(self, spec: RunSpec) -> RunSpec:
        """Return a run with the digests of its data and of those of its parents.

        Raises:
            OtherData: which of the data of the stored plan these are cannot be told.
        """
        if spec.init_from is not None and spec.parent is not None:
            spec = replace(spec, init_from=replace(spec.init_from, run=self.named(spec.parent)))
        return self._with_digest(spec)

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
    def _stored(self) -> list[DataSpec]:
        """The data of the stored plan."""
        stored = None if self._sweep is None else self._sweep.stored_plan()
        trees = [] if stored is None else stored.runs().values()
        return list(dict.fromkeys(decode(DataSpec, tree.get("data", {})) for tree in trees))

    def _alike(self, data: DataSpec) -> list[DataSpec]:
        """Return the data of the stored plan of the same settings, wherever they lie."""
        return [stored for stored in self._stored if _anywhere(stored) == _anywhere(data)]


def _anywhere(data: DataSpec) -> DataSpec:
    """Return what of a spec says what the data are, whatever their path."""
    return replace(data, path=None, deviation=None, digest=None)
