"""Assembles a run: network, process and data from their specs; nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.backbones import build_backbone
from tread_lab.backbones.published_weights import check_fit, from_sit, read_tensors
from tread_lab.config.errors import UserError
from tread_lab.config.run import InitSpec, RunSpec
from tread_lab.config.signature import signature
from tread_lab.diffusion import Process, build_process
from tread_lab.records.lab import digest_of
from tread_lab.records.run_folder import EXPORTED, RunFolder
from tread_lab.train.checkpoint import Checkpoint, load_latest, load_step, load_weights
from tread_lab.train.device import use
from tread_lab.train.joining import Condition, network_arguments
from tread_lab.train.posthoc_ema import reconstructed


@dataclass(frozen=True)
class Trained:
    """A trained network in evaluation mode with its metadata.

    Attributes:
        weights: digest of its weights file.
        condition: condition of the held-out samples in place of classes, if any.
    """

    spec: RunSpec
    step: int
    network: nn.Module
    process: Process
    device: torch.device
    weights: str = ""
    condition: Condition | None = None


@contextmanager
def initialised(seed: int, part: str) -> Iterator[None]:
    """Within the block, draw initial weights from a seed and the name of a part."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(draws.generator(seed, part).get_state())
        yield


def build_network(spec: RunSpec) -> nn.Module:
    """Return the initialized network of a run, including its systems.

    Modules at the end of a route do not advance the generator, so the rest of the network starts
    equal under every bypass.
    """
    with torch.random.fork_rng(devices=[]):
        added = network_arguments(spec)
    return build_backbone(spec, **added)


def fresh_network(spec: RunSpec) -> nn.Module:
    """Return a network initialized from the run's seed, equal for equal shapes and seeds."""
    with initialised(spec.seed, "init"):
        return build_network(spec)


def trained(
    folder: RunFolder,
    device: torch.device,
    *,
    step: int | None = None,
    weights: str = "ema",
    ema: float | None = None,
) -> Trained:
    """Return the network of a run with EMA or raw weights, at its last step if `step` is `None`.

    Args:
        ema: length of an EMA to reconstruct from snapshots.

    Raises:
        UserError: the run has no usable checkpoint, or no snapshot of the step.
    """
    spec, checkpoint = folder.spec(), _checkpoint(folder, step)
    network, state = fresh_network(spec), checkpoint.network(weights)
    if ema is not None:
        state |= reconstructed(folder, checkpoint.step, ema)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        wrong = str(error).splitlines()[-1].strip().removesuffix(".")
        raise UserError(
            f"{folder.path}: must hold weights that fit its spec, got {wrong}. Try the code"
            " that trained it."
        ) from None
    use(device)
    network.requires_grad_(False).eval().to(device)
    process = build_process(spec.process)
    return Trained(spec, checkpoint.step, network, process, device, checkpoint.digest)


def _checkpoint(folder: RunFolder, step: int | None) -> Checkpoint:
    if folder.exported:
        exported = load_weights(folder.path / EXPORTED)
        if step not in (None, exported.step):
            raise UserError(
                f"{folder.path}: step must be {exported.step}, the only one of this folder, got "
                f"{step}. Try evaluating the run, or sampler.guidance=1."
            )
        return exported
    if step is not None:
        return load_step(folder.checkpoints, step)
    newest, ended = load_latest(folder.checkpoints), int((folder.result() or {}).get("step", 0))
    if newest is None or newest.step < ended:  # earlier weights are another result
        raise UserError(
            f"run {folder.name}: must have a usable checkpoint of step {ended}, got none. Try"
            f" deleting {folder.path} and training it again."
        )
    return newest


def starting_weights(spec: RunSpec, folder: RunFolder) -> dict[str, Tensor] | None:
    """Return the weights of `init_from`, or `None`.

    Args:
        folder: folder of the run, beside its parent's.

    Raises:
        UserError: no usable checkpoint of the parent, or a changed or incompatible file.
    """
    start = spec.init_from
    if start is None:
        return None
    if start.run is not None:
        return _checkpoint(folder.sibling(signature(start.run)), None).network(start.weights)
    return _of_file(spec, start)


def check_start(spec: RunSpec) -> None:
    """Refuse incompatible starting files; parents are not checked.

    Raises:
        UserError: a changed, unreadable or incompatible file, or neither steps nor starting
            weights.
    """
    if spec.train.steps == 0 and spec.init_from is None:
        raise UserError("train.steps: must be positive without init_from, got 0")
    if spec.init_from is not None and spec.init_from.file is not None:
        _of_file(spec, spec.init_from)


def _of_file(spec: RunSpec, start: InitSpec) -> dict[str, Tensor]:
    path = Path(str(start.file))
    if start.digest is None:
        raise UserError(
            "init_from: must name a file, so that its digest is recorded. Try `init_from: "
            "{file: PATH}`."
        )
    if digest_of(path) != start.digest:
        raise UserError(
            f"init_from.file: {path} must be unchanged since planning. Try restoring it."
        )
    export = RunFolder(path.parent)
    made = export.readable_spec() if export.exported and path.name == EXPORTED else None
    if made is not None and made.process.kind != spec.process.kind:
        raise UserError(
            f"init_from.file: must be weights of process={spec.process.kind}, got those of"
            f" {made.process.kind}. Try process={made.process.kind}."
        )
    state = read_tensors(path, start.weights)
    if start.published_as is not None and getattr(spec.process, "prediction", "x") != "v":
        raise UserError(
            f"init_from.published_as: sit requires process=flow, got {spec.process.kind}"
        )
    with torch.device("meta"):
        network = build_network(spec)
    try:
        if start.published_as is not None:
            state = from_sit(state)
        check_fit(state, network)
    except UserError as error:
        raise UserError(f"init_from.file: {path} is not a {spec.model.name}: {error}") from None
    return state
