"""Assembles a run: network, process and data from their specs; nothing else does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.backbones import build_backbone
from tread_lab.backbones.dit import DiT
from tread_lab.diffusion import Process, build_process
from tread_lab.engine.alignment import Projector
from tread_lab.engine.blank import WithoutInit
from tread_lab.engine.captions import CaptionTokens
from tread_lab.engine.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    list_checkpoints,
    load_latest,
    load_step,
    load_weights,
)
from tread_lab.engine.device import use
from tread_lab.engine.discrimination import Head, Teacher
from tread_lab.records.lab import EXPORTED, RunFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.objective import DiscriminationLoss
from tread_lab.specs.run import RunSpec


@dataclass(frozen=True)
class Trained:
    """A trained network in evaluation mode and what belongs to it.

    Attributes:
        captions: text tokens of the held-out samples, for a network that sees captions.
    """

    spec: RunSpec
    step: int
    network: nn.Module
    process: Process
    device: torch.device
    captions: CaptionTokens | None = None


def fresh_network(spec: RunSpec) -> nn.Module:
    """Return a network initialised from the run's seed; equal shapes and seeds, equal weights."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(draws.generator(spec.seed, "init").get_state())
        return build_backbone(spec)


def fresh_projector(spec: RunSpec) -> nn.Module:
    """Return REPA's projector initialised from the run's seed; without REPA an identity."""
    if spec.repa is None:
        return nn.Identity()
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(draws.generator(spec.seed, "projector").get_state())
        return Projector(spec.model.width, spec.repa.hidden, spec.repa.features)


def fresh_head(spec: RunSpec) -> nn.Module:
    """Return SD-DiT's head initialised from the run's seed; without its loss an identity."""
    if not isinstance(spec.loss, DiscriminationLoss):
        return nn.Identity()
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(draws.generator(spec.seed, "head").get_state())
        return Head(spec.model.width, spec.loss)


def blank_teacher(spec: RunSpec) -> Teacher:
    """Return a teacher without weights yet: a network of the run's kind without its bypass."""
    assert isinstance(spec.loss, DiscriminationLoss)
    with WithoutInit():
        encoder = build_backbone(dataclasses.replace(spec, routes=(), init_from=None))
        assert isinstance(encoder, DiT)
        return Teacher(encoder, Head(spec.model.width, spec.loss))


def trained(
    folder: RunFolder, device: torch.device, *, step: int | None = None, weights: str = "ema"
) -> Trained:
    """Return the network of a run with EMA or raw weights, at its last step if `step` is `None`.

    Raises:
        UserError: the run has no usable checkpoint.
    """
    spec, checkpoint = folder.spec(), _checkpoint(folder, step)
    with WithoutInit():
        network = build_backbone(spec)
    try:
        network.load_state_dict({**checkpoint.part("model"), **checkpoint.part(weights)})
    except RuntimeError as error:
        wrong = str(error).splitlines()[-1].strip()
        raise UserError(f"weights in {folder.path} do not fit its spec: {wrong}") from None
    use(device)
    network.requires_grad_(False).eval().to(device)
    return Trained(spec, checkpoint.step, network, build_process(spec.process), device)


def weights_of(folder: RunFolder, weights: str) -> dict[str, Tensor]:
    """Return the state dict of a run's last checkpoint, with EMA or raw weights.

    Raises:
        UserError: the run has no usable checkpoint.
    """
    checkpoint = _checkpoint(folder, None)
    return {**checkpoint.part("model"), **checkpoint.part(weights)}


def _checkpoint(folder: RunFolder, step: int | None) -> Checkpoint:
    if folder.exported:
        return load_weights(folder.path / EXPORTED)
    if step is not None:
        return load_step(folder.checkpoints, step)
    newest, ended = load_latest(folder.checkpoints), int((folder.result() or {}).get("step", 0))
    if has_lost_its_end(folder, newest.step if newest else 0):
        remedy = "`tread-lab sweep` or `tread-lab train` makes it again"
        raise DamagedCheckpoint(
            f"no usable checkpoint of step {ended} in {folder.checkpoints}: damaged; {remedy}"
        )
    if newest is None:
        raise UserError(f"run {folder.name} has no usable checkpoint in {folder.checkpoints}")
    return newest


def has_lost_its_end(folder: RunFolder, last: int) -> bool:
    """Return whether the last weights of a finished run are damaged, so that it must train again.

    Args:
        last: the step of its newest undamaged checkpoint, 0 without any.
    """
    ended = int((folder.result() or {}).get("step", 0))
    return bool(list_checkpoints(folder.checkpoints)) and last < ended
