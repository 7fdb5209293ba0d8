"""The protocol between a run and the published systems that join it."""

# B batch, N tokens, D width, E width of what a network sees in place of classes

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import Priced, priced_systems

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from tread_lab.data.source import Samples
    from tread_lab.diffusion import LossTerms, Process
    from tread_lab.records.run_folder import RunFolder
    from tread_lab.routing.select import Routing
    from tread_lab.train.batches import Batch, Batches


class System(Priced):
    """A published method and its additions to runs. The defaults add nothing.

    Each is the `SYSTEM` of a module `tread_lab.methods.<name>.<name>`, or of a package that adds it
    (`tread_lab.config.registry.JoinedBy`). Methods import torch and data packages lazily, so that
    plans and costs do not require torch.
    """

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        """Return network arguments: the module at the end of a route (`re_enter`), or the width of
        condition tokens (`text_width`)."""
        return {}

    def part(self, run: Joining) -> Part | None:
        """Return the part that joins the training of a run."""
        return None

    def condition(self, spec: RunSpec, folder: RunFolder, device: torch.device) -> Condition | None:
        """Return the condition of an evaluated run in place of classes.

        Raises:
            UserError: it would differ from the condition in training.
        """
        return None

    def files(self, spec: RunSpec) -> Hashable:
        """Return the settings that determine the files read by this system."""
        return None

    def network_folder(self, spec: RunSpec) -> Path | None:
        """Return the local folder of this system's frozen network, if any."""
        return None

    def check(self, spec: RunSpec, train: Samples | None, heldout: Samples) -> None:
        """Check that the files of this system exist and fit the run and its data.

        Args:
            train: training samples; `None` for evaluation only.

        Raises:
            UserError: names a remedy.
        """

    def provenance(
        self, spec: RunSpec, data: str, train: Samples, heldout: Samples
    ) -> Mapping[str, str]:
        """Return name -> digest of everything outside the spec that determines a run; `data` is the
        name of the data."""
        return {}

    def measured_with(self, spec: RunSpec) -> Mapping[str, str]:
        """Return the same for an evaluation."""
        return {}


@dataclass(frozen=True)
class Joining:
    """The parts of a run available to a joining system.

    Attributes:
        sum: sums a tensor over the processes of the run.
    """

    spec: RunSpec
    folder: RunFolder
    device: torch.device
    network: nn.Module
    process: Process
    batches: Batches
    sum: Callable[[Tensor], Tensor]


class Part:
    """A system in the training of one run. The defaults do nothing.

    Attributes:
        trained: modules trained beside the network, by their names in a checkpoint.
        averaged: modules in checkpoints without gradients.
        observes: whether the loss reads the residual stream after each block.
    """

    observes = False

    def __init__(
        self,
        trained: Mapping[str, nn.Module] | None = None,
        averaged: Mapping[str, nn.Module] | None = None,
    ) -> None:
        self.trained, self.averaged = trained or {}, averaged or {}

    def start(self) -> None:
        """React to the starting weights of the run."""

    def prepare(self) -> Iterator[object]:
        """Fill the caches for training, yielding progress."""
        yield from ()

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        """Return the loss of every sample including this system's term."""
        return loss_B

    def after_step(self, skipped: Tensor | None) -> None:
        """React to an optimizer step, unless fp16 has `skipped` it."""


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass of a step, for the losses of systems.

    Attributes:
        streams: residual stream after each block, if a part observes it.
        again: runs another pass of the same batch under other routes.
    """

    batch: Batch
    streams: Mapping[int, Tensor]
    again: Callable[[Routing | None], LossTerms]


class Condition(Protocol):
    """Condition of an evaluated network in place of classes: a row per held-out sample.

    Attributes:
        fingerprint: name -> digest of everything that determines the rows.
    """

    @property
    def fingerprint(self) -> Mapping[str, str]: ...

    def __len__(self) -> int: ...

    def of(self, ids_B: Tensor) -> Tensor:
        """Return rows [B, T, E] of samples; the index after the last is the empty condition."""
        ...

    def record(self) -> Mapping[str, Any]:
        """Return its entry in the record of an evaluation."""
        ...

    def write(self, folder: Path, ids_N: list[int]) -> None:
        """Write the conditions of N images into a folder."""
        ...


def systems_of(spec: RunSpec) -> tuple[System, ...]:
    """Return the systems of a run, in joining order."""
    return cast(tuple[System, ...], priced_systems(spec))


def network_arguments(spec: RunSpec) -> dict[str, Any]:
    """Return the network arguments added by the systems of a run."""
    return {k: v for system in systems_of(spec) for k, v in system.network(spec).items()}


def condition_of(spec: RunSpec, folder: RunFolder, device: torch.device) -> Condition | None:
    """Return the condition of an evaluated run in place of classes, if any.

    Raises:
        UserError: it would differ from the condition in training.
    """
    found = (system.condition(spec, folder, device) for system in systems_of(spec))
    return next((condition for condition in found if condition is not None), None)


def files_read(specs: Iterable[RunSpec]) -> Iterator[tuple[System, RunSpec]]:
    """Yield each system that reads files, with one run for each set of files and data."""
    found: dict[Hashable, tuple[System, RunSpec]] = {}
    for spec in dict.fromkeys(specs):
        for system in systems_of(spec):
            if (files := system.files(spec)) is not None:
                found.setdefault((system, files, spec.data, spec.tokens), (system, spec))
    yield from found.values()
