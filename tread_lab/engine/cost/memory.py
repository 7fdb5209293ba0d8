"""Whether a run fits into a device's memory, and with which micro-batch it would."""

from __future__ import annotations

import torch

from tread_lab.engine.cost.training import Cost, cost
from tread_lab.engine.device import memory, name
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import amount


def check_room(spec: RunSpec, device: torch.device) -> None:
    """Refuse a run whose training pass needs more memory than the device has.

    Raises:
        UserError: says how much that is, and names a micro-batch that fits.
    """
    price, room = cost(spec), memory(device)
    if price.memory_bytes <= room:
        return
    routes = " + ".join(map(str, spec.routes)) or "dense"
    need = f"{spec.model.name} {routes} needs about {amount(price.memory_bytes)}"
    has = f"{device} ({name(device)}) has {amount(room)}"
    fit = fitting_micro_batch(price, spec.train.batch, room)
    remedy = f"one image a pass needs {amount(price.memory_at(1))}: take a larger device"
    if fit:
        remedy = f"execution.micro_batch={fit} needs {amount(price.memory_at(fit))}"
    raise UserError(f"{need} at {price.micro_batch} images a pass, and {has}; {remedy}")


def fitting_micro_batch(price: Cost, batch: int, room: int) -> int:
    """Return the largest divisor of `batch` with which a run fits `room` bytes; 0 if none does."""
    state = price.memory_at(0)
    most = (room - state) // max(1, price.memory_at(1) - state)
    return next((n for n in range(min(batch, most), 0, -1) if batch % n == 0), 0)
