"""Published DiT checkpoints: the tensors of the original file, and whether a network fits them."""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tread_lab.specs.errors import UserError

# Training checkpoints hold the weights below one of these; the averaged ones come first.
_NESTED = ("ema", "ema_state_dict", "model", "state_dict")
# What data parallelism, torch.compile and TREAD's preconditioning put before the names.
_WRAPPED = re.compile(r"^(?:(?:module|model|_orig_mod)\.)+|(?<=\.)_orig_mod\.")
_OWN = ("model/", "ema/")  # prefixes of the names in a checkpoint of this package
# Buffers that are computed here and stored elsewhere (LightningDiT's rotary tables).
_DEEPEST = 8  # trees inside one another
_COMPUTED = ("feat_rope.",)
_UNREADABLE = (
    *(OSError, EOFError, LookupError, RuntimeError, ValueError),
    *(SafetensorError, pickle.UnpicklingError),
)


def read_tensors(path: Path, weights: str = "ema") -> dict[str, Tensor]:
    """Return the tensors of a file by the names of the network; what is computed is left out.

    Args:
        path: a `.pt` file of tensors, bare or below `ema`, `ema_state_dict`, `model` or
            `state_dict`; or safetensors, such as a checkpoint of a run of this package.
        weights: `ema` or `model`, where the file has both.

    Raises:
        UserError: it cannot be read, or holds no tensors by name.
    """
    try:
        if path.suffix == ".safetensors":
            tree: Any = load_file(path)
        else:
            with torch.serialization.safe_globals([argparse.Namespace]):  # DiT's train.py has one
                tree = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise UserError(f"cannot read {path}: {_reason(error)}") from None
    order = (weights, f"{weights}_state_dict", *_NESTED)
    for _ in range(_DEEPEST):  # a tree may hold itself
        if isinstance(tree, Mapping) and (nested := next((k for k in order if k in tree), None)):
            tree = tree[nested]
    if not isinstance(tree, Mapping) or not all(isinstance(t, Tensor) for t in tree.values()):
        raise UserError(f"{path} holds no tensors by name, bare or below {', '.join(_NESTED)}")
    named = {_WRAPPED.sub("", str(name)): tensor for name, tensor in tree.items()}
    if any(name.startswith(_OWN) for name in named):
        named = {**_below(named, "model/"), **_below(named, f"{weights}/")}
    return {n: t for n, t in named.items() if not n.startswith(_COMPUTED)}


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def check_fit(state: Mapping[str, Tensor], network: nn.Module) -> None:
    """Refuse tensors that are not the weights of `network`; fixed positions may be missing.

    Raises:
        UserError: the first tensor that is missing, too many or of another shape.
    """
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    needed = {name for name, p in network.named_parameters() if p.requires_grad}
    for name in sorted(needed | state.keys()):
        if name not in state:
            raise UserError(f"{name} is missing")
        if name not in shapes:
            raise UserError(f"the network has no {name}")
        if state[name].shape != shapes[name]:
            found, expected = ("x".join(map(str, s)) for s in (state[name].shape, shapes[name]))
            hint = _hint(name, state[name].shape, shapes[name])
            raise UserError(f"{name} is {found}, and the network's is {expected}{hint}")


def _hint(name: str, found: Sequence[int], expected: Sequence[int]) -> str:
    """Return what is probably wrong; published DiTs have a learned variance."""
    last = name.startswith("final_layer.linear")
    if last and found[0] == 2 * expected[0]:
        return (
            "; a DiT predicts a variance, say process=ddpm; for a SiT: init_from.published_as=sit"
        )
    if last and 2 * found[0] == expected[0]:
        return "; it predicts no variance, say process: {kind: ddpm, learned_variance: false}"
    return ""


def _is_opcode(error: Exception) -> bool:
    """Whether a file that is no pickle was read as one."""
    return isinstance(error, KeyError) and isinstance(error.args[0], int)


def _reason(error: Exception) -> str:
    """Return the first thing that is wrong, in one line."""
    if isinstance(error, pickle.UnpicklingError | IndexError) or _is_opcode(error):
        return (
            "it is no file of tensors, or holds objects that are not loaded for safety; if you"
            ' trust it, torch.save(torch.load(FILE, weights_only=False)["ema"], NEW) keeps tensors'
        )
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[min(1, len(lines) - 1)] if lines else type(error).__name__
