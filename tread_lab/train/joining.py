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
    """A published system: what it adds to the runs that ask for it. By default nothing.

    Each is the `SYSTEM` of a module `tread_lab.methods.<name>.<name>`, or of a package that adds it
    (`specs.systems.JoinedBy`). Methods that make networks or read data import what they need, so
    that a plan and its costs are known without torch.
    """

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        """Return arguments of the network: what stands at the end of a route (`re_enter`), or the
        width of tokens that it sees in place of classes (`text_width`)."""
        return {}

    def part(self, run: Joining) -> Part | None:
        """Return what joins the training of a run."""
        return None

    def condition(self, spec: RunSpec, folder: RunFolder, device: torch.device) -> Condition | None:
        """Return what the network of an evaluated run sees in place of classes.

        Raises:
            UserError: it would be made otherwise than when the run was trained.
        """
        return None

    def files(self, spec: RunSpec) -> Hashable:
        """Return what of a spec names the files that this system reads."""
        return None

    def network_folder(self, spec: RunSpec) -> Path | None:
        """Return the local folder of a frozen network that this system reads, if there is one."""
        return None

    def check(self, spec: RunSpec, train: Samples | None, heldout: Samples) -> None:
        """Check that the files of this system are here and fit the run and its data.

        Args:
            train: `None` where the run is evaluated alone.

        Raises:
            UserError: they do not; says what to do.
        """

    def provenance(
        self, spec: RunSpec, data: str, train: Samples, heldout: Samples
    ) -> Mapping[str, str]:
        """Return name -> digest of what decides a run and is in no spec; `data` names the data."""
        return {}

    def measured_with(self, spec: RunSpec) -> Mapping[str, str]:
        """Return the same of what decides an evaluation."""
        return {}


@dataclass(frozen=True)
class Joining:
    """What a system may touch of a run that it joins.

    Attributes:
        sum: adds a tensor of this process to those of the run's other processes.
    """

    spec: RunSpec
    folder: RunFolder
    device: torch.device
    network: nn.Module
    process: Process
    batches: Batches
    sum: Callable[[Tensor], Tensor]


class Part:
    """A system in the training of one run. By default it does nothing.

    Attributes:
        trained: modules trained beside the network, by their names in a checkpoint.
        averaged: modules that a checkpoint holds and no gradient reaches.
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
        """Follow the weights that the run has just started from."""

    def prepare(self) -> Iterator[object]:
        """Fill the caches that the steps read, yielding signs of life."""
        yield from ()

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        """Return the loss of every sample with this system's share in it."""
        return loss_B

    def after_step(self, skipped: Tensor | None) -> None:
        """Follow an optimizer step, unless fp16 has `skipped` it."""


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass of a step, as the loss of a system sees it.

    Attributes:
        streams: the residual stream after each block, where a part observes it.
        again: makes another pass of the same batch under other routes.
    """

    batch: Batch
    streams: Mapping[int, Tensor]
    again: Callable[[Routing | None], LossTerms]


class Condition(Protocol):
    """What an evaluated network sees in place of classes: a row for each held-out sample.

    Attributes:
        fingerprint: name -> digest of what decides the rows.
    """

    @property
    def fingerprint(self) -> Mapping[str, str]: ...

    def __len__(self) -> int: ...

    def of(self, ids_B: Tensor) -> Tensor:
        """Return rows [B, T, E] of samples; the number after the last is the empty condition."""
        ...

    def record(self) -> Mapping[str, Any]:
        """Return what the record of an evaluation says of it."""
        ...

    def write(self, folder: Path, ids_N: list[int]) -> None:
        """Write into a folder what each of N images was drawn from."""
        ...


def systems_of(spec: RunSpec) -> tuple[System, ...]:
    """Return the systems that a run asks for, in the order in which they join its steps."""
    return cast(tuple[System, ...], priced_systems(spec))


def network_arguments(spec: RunSpec) -> dict[str, Any]:
    """Return what the systems of a run add to the arguments of its network."""
    return {k: v for system in systems_of(spec) for k, v in system.network(spec).items()}


def condition_of(spec: RunSpec, folder: RunFolder, device: torch.device) -> Condition | None:
    """Return what the network of an evaluated run sees in place of classes, if it does.

    Raises:
        UserError: it would be made otherwise than when the run was trained.
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
