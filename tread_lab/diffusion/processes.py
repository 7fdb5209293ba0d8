"""The table of diffusion processes by kind, and the process of a spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tread_lab.config.errors import lookup
from tread_lab.config.recipe import ProcessSpec
from tread_lab.diffusion.ddpm import DDPM
from tread_lab.diffusion.edm import EDM
from tread_lab.diffusion.flow import Flow
from tread_lab.diffusion.process import Process

PROCESSES: dict[str, Callable[[Any], Process]] = {"edm": EDM, "flow": Flow, "ddpm": DDPM}


def build_process(spec: ProcessSpec) -> Process:
    """Return the process of a spec.

    Raises:
        UserError: unknown kind.
    """
    return lookup(PROCESSES, spec.kind, "process")(spec)
