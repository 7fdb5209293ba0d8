"""Post-hoc EMA (Karras et al. 2024, "EDM2", section 3): any length from snapshots of two averages.

An average of length sigma_rel after T steps weighs step t by t^gamma / T^(gamma + 1).
"""

# S snapshots of all averages

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tread_lab.config.errors import UserError
from tread_lab.records.run_folder import RunFolder, list_checkpoints, step_of
from tread_lab.train.checkpoint import load_step
from tread_lab.train.optimizer import Ema, update_averages

KEPT = (0.05, 0.10)  # lengths of the averages that a run keeps
Array = NDArray[np.float64]


def exponent(length: float) -> float:
    """Return gamma of sigma_rel = sqrt((gamma + 1) / ((gamma + 2)^2 (gamma + 3))) (eq. 126)."""
    roots = np.roots([1, 7, 16 - length**-2, 12 - length**-2])
    return float(roots.real.max())


class PowerEma(Ema):
    """theta_ema <- beta theta_ema + (1 - beta) theta with beta = (1 - 1/t)^(gamma + 1) at step t
    (eq. 127), without contribution of the initial weights."""

    def __init__(self, network: nn.Module, length: float) -> None:
        super().__init__(network, 0.0)
        self._power = exponent(length) + 1

    def update(self, step: int, skipped: Tensor | None = None) -> None:
        """One update of step 1, 2, ...; a skipped step repeats the previous weights."""
        beta = (1 - 1 / step) ** self._power
        update_averages(self.weights.values(), self._live.values(), beta, None)


def coefficients(steps_S: Array, gamma_S: Array, step: int, length: float) -> Array:
    """Return the snapshot coefficients nearest to a target average, by least squares over step
    weights (algorithm 3); they sum to 1."""
    gram_SS = _inner(steps_S[:, None], gamma_S[:, None], steps_S, gamma_S)
    x_S = np.linalg.solve(gram_SS, _inner(steps_S, gamma_S, float(step), exponent(length)))
    return x_S / x_S.sum()


def _inner(T_a: Array, a: Array, T_b: Array | float, b: Array | float) -> Array:
    """Return the inner product of the weights of two averages over time (eq. 151)."""
    low, high = np.minimum(T_a, T_b), np.maximum(T_a, T_b)
    return (a + 1) * (b + 1) / (a + b + 1) * (low / T_a) ** a * (low / T_b) ** b / high


def reconstructed(folder: RunFolder, step: int, length: float) -> dict[str, Tensor]:
    """Return the EMA of this length up to `step`.

    Raises:
        UserError: the run has no snapshot of the step.
    """
    steps = sorted(s for s in map(step_of, list_checkpoints(folder.averages)) if s <= step)
    if not steps or steps[-1] != step:
        raise UserError(f"ema: step {step} has no snapshot in {folder.averages}. Try ema: null.")
    gammas = [exponent(kept) for kept in KEPT]
    times, gamma_S = np.repeat(np.array(steps, float), len(KEPT)), np.tile(gammas, len(steps))
    rows = coefficients(times, gamma_S, step, length).reshape(len(steps), len(KEPT))
    total: dict[str, Tensor] = {}
    for at, row in zip(steps, rows):
        snapshot = load_step(folder.averages, at)
        for kept, x in zip(KEPT, row):
            for name, tensor in snapshot.part(f"{kept:g}").items():
                total[name] = total.get(name, torch.zeros(())) + float(x) * tensor.double()
    return {name: tensor.float() for name, tensor in total.items()}
