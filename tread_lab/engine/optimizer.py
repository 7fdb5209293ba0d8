"""AdamW in one fused update, and its learning rate."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from tread_lab.specs.recipe import TrainSpec


class _AdamW(torch.optim.AdamW):
    """torch's AdamW without the wrappers that hide it from the compiler.

    Each of them imports the whole compiler at its first call: two seconds at the start of every
    process that trains, also where nothing is compiled. Only blocks are compiled here.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def adamw(recipe: TrainSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW with the recipe's settings."""
    return _AdamW(
        parameters,
        lr=recipe.lr,
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        fused=True,
    )


def make_capturable(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep the learning rate on the device, where a CUDA graph reads it anew in every replay."""
    for group in optimizer.param_groups:
        group["capturable"], group["lr"] = True, torch.tensor(group["lr"], device=device)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Let the next step have the learning rate `lr`."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
