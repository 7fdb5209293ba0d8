"""Published checkpoints of DiT and SiT: their tensors as a network of this package has them."""

# C channels, D width, F frequencies, P pixels of a patch

from __future__ import annotations

import argparse
import contextlib
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tread_lab.config.errors import UserError

# Training checkpoints hold the weights below one of these; the averaged ones come first.
_NESTED = ("ema", "ema_state_dict", "model", "state_dict")
# What data parallelism, torch.compile and TREAD's preconditioning put before the names.
_WRAPPED = re.compile(r"^(?:(?:module|model|_orig_mod)\.)+|(?<=\.)_orig_mod\.")
_OWN = ("model/", "ema/")  # prefixes of the names in a checkpoint of this package
_POINTER = b"version https://git-lfs"
_DEEPEST = 8  # trees inside one another
# Buffers that are computed here and stored elsewhere (LightningDiT's rotary tables).
_COMPUTED = ("feat_rope.",)
_LEVEL = "t_embedder.mlp.0.weight"  # [D, 2F]: F cosines, then F sines
_LAST = ("final_layer.linear.weight", "final_layer.linear.bias")  # [P C, D] or [P 2C, D]; [P C]
_UNREADABLE = (
    *(OSError, EOFError, LookupError, RuntimeError, ValueError),
    *(SafetensorError, pickle.UnpicklingError),
)


def read_tensors(path: Path, weights: str = "ema") -> dict[str, Tensor]:
    """Return the tensors of a file under the network's names, without computed ones.

    Args:
        path: a `.pt` file of tensors, bare or below `ema`, `ema_state_dict`, `model` or
            `state_dict`; or safetensors, such as a checkpoint of a run of this package.
        weights: `ema` or `model`, where the file has both.

    Raises:
        UserError: not readable, or no named tensors.
    """
    _check_kind(path)
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
        raise UserError(
            f"{path} must contain named tensors, at the top level or below {', '.join(_NESTED)}"
        )
    named = {_WRAPPED.sub("", str(name)): tensor for name, tensor in tree.items()}
    if any(name.startswith(_OWN) for name in named):
        named = {**_below(named, "model/"), **_below(named, f"{weights}/")}
    return {n: t for n, t in named.items() if not n.startswith(_COMPUTED)}


def _check_kind(path: Path) -> None:
    """Refuse files that stand for weights and hold none."""
    if path.suffix == ".json":
        raise UserError(f"{path} is an index of several files; save their tensors in one file")
    with contextlib.suppress(OSError), path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(f"{path} is a Git LFS pointer; run `git lfs pull` to fetch the weights")


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def check_fit(state: Mapping[str, Tensor], network: nn.Module) -> None:
    """Check that tensors fit `network`; fixed positions may be missing.

    Raises:
        UserError: names the first missing, unexpected or misshapen tensor.
    """
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    needed = {name for name, p in network.named_parameters() if p.requires_grad}
    heads = {name.partition(".")[0] for name in state}
    if len(heads) == 1 < len(state):
        raise UserError(
            f"all tensor names begin with {heads.pop()!r}; save them without this prefix"
        )
    for name in sorted(needed | state.keys()):
        if name not in state:
            raise UserError(f"{name} is missing")
        if name not in shapes:
            raise UserError(f"the network has no tensor {name}")
        if state[name].shape != shapes[name]:
            found, expected = ("x".join(map(str, s)) for s in (state[name].shape, shapes[name]))
            hint = _hint(name, state[name].shape, shapes[name])
            raise UserError(f"{name} must be {expected} as in the network, got {found}{hint}")


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
    if isinstance(error, SafetensorError):
        return "it is no whole file of safetensors; copy it again"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[min(1, len(lines) - 1)] if lines else type(error).__name__


def from_sit(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that predict eps - x at level t where a SiT predicts x - eps at 1 - t.

    SiT has data at t = 1 and noise at 0 (Ma et al. 2024, its code's `transport`, which LightningDiT
    uses, too), and drops the second half of its output channels (`learn_sigma`); a LightningDiT has
    no such half. The last layer keeps the first half and
    changes its sign. The level enters as cos(f t) and sin(f t), of which those of 1 - t are linear:

        cos(f (1 - t)) = cos f cos(f t) + sin f sin(f t)
        sin(f (1 - t)) = sin f cos(f t) - cos f sin(f t)

    so the first layer of the level embedder, rotated in float64, takes t itself.

    Raises:
        UserError: a tensor of these layers is missing or does not have SiT's shape.
    """
    missing = [name for name in (_LEVEL, "x_embedder.proj.weight", *_LAST) if name not in state]
    if missing:
        raise UserError(f"{missing[0]} is missing")
    _, C, height, width = state["x_embedder.proj.weight"].shape
    turned = dict(state)
    turned[_LEVEL] = _of_the_other_end(state[_LEVEL])
    for name in _LAST:
        turned[name] = -_first_half(name, state[name], height * width, C)
    return turned


def _of_the_other_end(weight_DF: Tensor) -> Tensor:
    """Return the weight that gives at t what this one gives at 1 - t."""
    F = weight_DF.shape[1] // 2
    f_F = torch.exp(-math.log(10_000) * torch.arange(F, dtype=torch.float64) / F)
    cos_DF, sin_DF = weight_DF.double().chunk(2, dim=1)
    cosines = cos_DF * f_F.cos() + sin_DF * f_F.sin()
    sines = cos_DF * f_F.sin() - sin_DF * f_F.cos()
    return torch.cat([cosines, sines], dim=1).to(weight_DF.dtype)


def _first_half(name: str, rows: Tensor, P: int, C: int) -> Tensor:
    """Return the rows of the first C channels of every pixel; all where there are no more."""
    if len(rows) not in (P * C, 2 * P * C):
        raise UserError(f"{name} must have {2 * P * C} or {P * C} rows as in SiT, got {len(rows)}")
    by_pixel = rows.reshape(P, len(rows) // P, *rows.shape[1:])
    return by_pixel[:, :C].reshape(P * C, *rows.shape[1:])
