"""Digests of the data of planned runs, by which their names differ where the data do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.records.lab import Lab


class DataDigests:
    """Fills in what the data of a run hold, before the run is signed.

    Args:
        say: hears of data that are read.
    """

    def __init__(self, lab: Lab, say: Callable[[str], None] = lambda line: None) -> None:
        self._lab, self._say = lab, say

    def named(self, spec: RunSpec) -> RunSpec:
        """Return a run with the digests of its data and of those of its parents."""
        if spec.init_from is not None and spec.parent is not None:
            spec = replace(spec, init_from=replace(spec.init_from, run=self.named(spec.parent)))
        if spec.data.is_embedded or spec.data.digest is not None:
            return spec
        return replace(spec, data=replace(spec.data, digest=self._digest(spec.data)))

    @functools.cache  # noqa: B019
    def _digest(self, data: DataSpec) -> str | None:
        """Return the digest of data, `None` where they cannot be read: that is refused later."""
        from tread_lab.data.source import content_digest  # torch

        try:
            return content_digest(data, self._lab.root / "cache", self._say)
        except UserError:
            return None
