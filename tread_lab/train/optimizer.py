"""What a step does to the weights: AdamW, or Muon beside it, the learning rate, the EMA."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from tread_lab.config import recipe
from tread_lab.config.errors import lookup
from tread_lab.config.recipe import TrainSpec
from tread_lab.config.registry import Registry


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


def optimizers(
    recipe: TrainSpec, named: Mapping[str, nn.Parameter]
) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers: AdamW, or Muon for block matrices and AdamW for the rest.

    The `scale` of a group is its learning rate in units of the recipe's `lr`. The order of
    parameters within groups is arbitrary.
    """
    matrices = {
        name: parameter
        for name, parameter in named.items()
        if recipe.optimizer == "muon" and parameter.ndim == 2 and name.startswith("blocks.")
    }
    others = {name: parameter for name, parameter in named.items() if name not in matrices}
    adamw = _AdamW(
        [{"params": [*others.items()], "scale": 1.0}],
        lr=recipe.lr,
        betas=recipe.betas,
        eps=recipe.eps,
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    if not matrices:
        return (adamw,)
    muon = torch.optim.Muon(
        [{"params": [*matrices.items()], "scale": (recipe.matrix_lr or recipe.lr) / recipe.lr}],
        weight_decay=recipe.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    return muon, adamw


# name -> factor on the learning rate, given the share of all steps that is done
SCHEDULES: Registry[Callable[[float], float]] = Registry(
    "schedule",
    {"constant": lambda done: 1.0, "sqrt_decay": lambda done: math.sqrt(1 - done)},
    recipe.SCHEDULES,
)


def learning_rates(spec: TrainSpec) -> Callable[[int], float]:
    """Return the learning rate as a function of the step 0, 1, ...

    Raises:
        UserError: unknown schedule.
    """
    factor, ramp = lookup(SCHEDULES, spec.schedule, "train.schedule"), spec.warmup + 1
    return lambda step: spec.lr * min(1.0, (step + 1) / ramp) * factor(step / spec.steps)


@torch.no_grad()
def update_averages(
    averages: Iterable[Tensor], values: Iterable[Tensor], decay: float, skipped: Tensor | None
) -> None:
    """Update each average to decay average + (1 - decay) value, unless the step was skipped."""
    ema, live = list(averages), list(values)
    if skipped is None:
        torch._foreach_lerp_(ema, live, 1 - decay)
        return
    change = torch._foreach_sub(live, ema)
    torch._foreach_mul_(change, (1 - decay) * (~skipped).float())
    torch._foreach_add_(ema, change)


class Ema:
    """theta_ema <- decay theta_ema + (1 - decay) theta, from step 0 on."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self._live = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self.weights: dict[str, Tensor] = {n: p.detach().clone() for n, p in self._live.items()}

    def update(self, step: int, skipped: Tensor | None = None) -> None:
        """One update, or none if the step was `skipped` (a device tensor)."""
        update_averages(self.weights.values(), self._live.values(), self.decay, skipped)

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(weights[name])
