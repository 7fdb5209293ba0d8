"""Whether a run fits into a device's memory, and with which micro-batch it would."""

from __future__ import annotations

from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount
from tread_lab.cost.training import Cost, cost
from tread_lab.train.compiled import EAGER, arithmetic


def cost_on(spec: RunSpec, device_type: str) -> Cost:
    """Return the cost of a run with the memory of its blocks as they are computed there."""
    return cost(spec, compiled=arithmetic(spec, device_type) != EAGER)


def check_memory(spec: RunSpec, device_type: str, label: str, free: int, devices: int = 1) -> None:
    """Refuse a run whose training pass needs more memory than a device has.

    Args:
        label: what the device is called.
        free: its bytes.
        devices: how many like it share a batch.

    Raises:
        UserError: says how much that is, and names a micro-batch that fits.
    """
    price, share = cost_on(spec, device_type), spec.train.batch // devices
    images = min(price.micro_batch, share)
    if (needed := price.memory_at(images)) <= free:
        return
    routes = " + ".join(map(str, spec.routes)) or "dense"
    need = f"{spec.model.name} {routes} needs about {amount(needed)}"
    has = f"{label} has {amount(free)}"
    fit = fitting_micro_batch(price, share, free)
    remedy = f"one image a pass needs {amount(price.memory_at(1))}: take a larger device"
    if fit:
        remedy = f"execution.micro_batch={fit} needs {amount(price.memory_at(fit))}"
    raise UserError(f"{need} at {images} images a pass, and {has}; {remedy}")


def fitting_micro_batch(price: Cost, batch: int, free: int) -> int:
    """Return the largest divisor of `batch` with which a run fits `free` bytes; 0 if none does."""
    state = price.memory_at(0)
    most = (free - state) // max(1, price.memory_at(1) - state)
    return next((n for n in range(min(batch, most), 0, -1) if batch % n == 0), 0)
