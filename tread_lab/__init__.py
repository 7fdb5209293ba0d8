"""tread-lab: what does token routing do to diffusion training, where, and at what cost?"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tread_lab.results.sweep_frames import open_sweep
    from tread_lab.sweep.planned_sweep import load_sweep

__all__ = ["__version__", "load_sweep", "open_sweep"]
__version__ = "0.3.0"

_MODULES = {
    "load_sweep": "tread_lab.sweep.planned_sweep",
    "open_sweep": "tread_lab.results.sweep_frames",
}


def __getattr__(name: str) -> object:
    """Import a function when it is first used: `import tread_lab` alone is instant."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
