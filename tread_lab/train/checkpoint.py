"""Checkpoints: tensors only, whole or absent, their checksum in their name."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tread_lab.config.errors import UserError
from tread_lab.records.durable import replacing
from tread_lab.records.run_folder import list_checkpoints, step_of


@dataclass(frozen=True)
class Checkpoint:
    """The state after `step` optimizer steps: flat named tensors and a few numbers.

    Attributes:
        digest: digest of its file.
    """

    step: int
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, str]
    digest: str = ""

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors under `prefix/`, without the prefix."""
        start = f"{prefix}/"
        return {n.removeprefix(start): x for n, x in self.tensors.items() if n.startswith(start)}

    def network(self, weights: str) -> dict[str, Tensor]:
        """Return the state of the network with EMA or raw weights."""
        return {**self.part("model"), **self.part(weights)}


def save(
    folder: Path, checkpoint: Checkpoint, *, keep: int, keep_steps: Collection[int] = ()
) -> Path:
    """Write a checkpoint, then remove all but the `keep` newest and those of `keep_steps`.

    An existing file of the same step is damaged and also removed.
    """
    path = _written(folder, checkpoint)
    others = [p for p in list_checkpoints(folder) if p != path]
    replaced = [p for p in others if step_of(p) == checkpoint.step]
    older = [p for p in others if p not in replaced and step_of(p) not in keep_steps]
    for old in (*replaced, *older[max(keep - 1, 0) :]):
        old.unlink(missing_ok=True)
    return path


def _written(folder: Path, checkpoint: Checkpoint) -> Path:
    tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
    staging = folder / "staging.safetensors"
    with replacing(staging) as temporary:
        save_file(tensors, temporary, metadata={**checkpoint.facts, "step": str(checkpoint.step)})
    path = folder / f"step-{checkpoint.step:08d}-{_digest(staging)}.safetensors"
    staging.replace(path)
    return path


def load_latest(folder: Path) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, or `None`; warn about damaged ones."""
    for path in list_checkpoints(folder):
        checkpoint = _read(path)
        if checkpoint is not None:
            return checkpoint
        warnings.warn(f"{path} is damaged; using the previous checkpoint", stacklevel=2)
    return None


def load_step(folder: Path, step: int) -> Checkpoint:
    """Return the checkpoint of exactly `step`.

    Raises:
        UserError: missing or damaged.
    """
    paths = [p for p in list_checkpoints(folder) if p.name.startswith(f"step-{step:08d}-")]
    for path in paths:
        checkpoint = _read(path)
        if checkpoint is not None:
            return checkpoint
    why = "is damaged (checksum)" if paths else "is not there"
    steps = sorted({step_of(path) for path in list_checkpoints(folder)})
    has = f"steps {', '.join(map(str, steps)) or 'none'}"
    raise UserError(
        f"checkpoint of step {step} {why} in {folder}, which has {has}; a run keeps only the steps"
        " of evaluations that were planned before training"
    )


def load_weights(path: Path) -> Checkpoint:
    """Return exported weights: tensors of the network, and the step from the header.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        tensors, facts = _tensors(path)
        tensors = {f"model/{name}": tensor for name, tensor in tensors.items()}
        return Checkpoint(int(facts.get("step", 0)), tensors, facts, _digest(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}. Try exporting the run again.") from None


def _read(path: Path) -> Checkpoint | None:
    """Return a checkpoint, `None` where its bytes are not those that were written."""
    try:
        digest = _digest(path)
        if digest == path.stem.rpartition("-")[2]:
            return Checkpoint(step_of(path), *_tensors(path), digest)
    except (OSError, SafetensorError):
        pass
    return None


def _tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {n: file.get_tensor(n) for n in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def flat_optimizers(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the state of all optimizers as named tensors: `<parameter>/<slot>`."""
    return {
        f"{name}/{slot}": value
        for optimizer in optimizers
        for name, slots in _slots(optimizer).items()
        for slot, value in slots.items()
    }


def load_optimizers(
    optimizers: Sequence[torch.optim.Optimizer], flat: Mapping[str, Tensor]
) -> None:
    """Put named tensors back into the optimizers; the inverse of `flat_optimizers`."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in flat.items():
        name, _, slot = key.rpartition("/")
        found.setdefault(name, {})[slot] = value
    for optimizer in optimizers:
        state = {k: found[name] for k, name in enumerate(_names(optimizer)) if name in found}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _slots(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Tensor]]:
    """Return the state of an optimizer by the names of its parameters."""
    names = _names(optimizer)
    return {names[k]: slots for k, slots in optimizer.state_dict()["state"].items()}


def _names(optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of an optimizer's parameters, group after group."""
    return [name for group in optimizer.param_groups for name in group["param_names"]]
