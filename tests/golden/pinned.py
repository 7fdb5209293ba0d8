"""Recorded numbers: cases in YAML, their values beside them, and how both are compared."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

MODE = os.environ.get("TREAD_LAB_GOLDEN", "")  # `renew`, `bitwise` or nothing
EXACT, LOW = 1e-4, 2e-2  # relative to the largest number of an entry; LOW in bf16 and fp16
SHOWN = 24  # numbers of an entry that is stored whole; of a larger one its norm and projections
HERE = Path(__file__).parent


def merged(common: Any, own: Any) -> Any:
    """Return the settings of a case: mappings are joined, anything else replaces."""
    if not (isinstance(common, Mapping) and isinstance(own, Mapping)):
        return own
    return {**common, **{key: merged(common.get(key), value) for key, value in own.items()}}


def cases(room: str) -> dict[str, dict[str, Any]]:
    """Return name -> settings of every case of a room."""
    tree = yaml.safe_load((HERE / f"{room}.yaml").read_text())
    return {name: merged(tree["common"], own) for name, own in tree["cases"].items()}


class Values:
    """The recorded values of a room; `renew` replaces what was found."""

    def __init__(self, room: str) -> None:
        self.path = HERE / "values" / f"{room}.yaml"
        self.recorded = yaml.safe_load(self.path.read_text()) if self.path.exists() else {}
        self.found: dict[str, Any] = {}

    def check(self, name: str, found: Mapping[str, Any], tolerance: float = EXACT) -> None:
        """Compare the entries of a case with the recorded ones, or note them."""
        seen = {key: numbers(value) for key, value in found.items()}
        self.found[name] = {**seen, "digest": {key: digest(x) for key, x in found.items()}}
        if MODE != "renew":
            wrong = differences(self.recorded.get(name, {}), self.found[name], tolerance)
            assert not wrong, "\n".join(wrong)

    def write(self, names: Iterable[str]) -> None:
        """Write what was found, in the order of `names`; cases that were not run stay."""
        if MODE == "renew" and self.found:
            known = {**self.recorded, **self.found}
            tree = {name: known[name] for name in names if name in known}
            text = yaml.dump(tree, sort_keys=False, width=100, default_flow_style=None)
            self.path.write_text(text)


def differences(recorded: Any, found: dict[str, Any], tolerance: float) -> list[str]:
    """Return a line for each entry that is not as it was recorded."""
    lines = [f"{key}: not recorded" for key in found if key not in recorded]
    lines += [f"{key}: gone" for key in recorded if key not in found]
    for key in (k for k in found if k in recorded and k != "digest"):
        if not alike(recorded[key], found[key], tolerance):
            lines.append(f"{key}: {found[key]}, recorded {recorded[key]}")
        elif MODE == "bitwise" and recorded["digest"][key] != found["digest"][key]:
            lines.append(f"{key}: other bits")
    return lines


def alike(recorded: Any, found: Any, tolerance: float) -> bool:
    """Return whether numbers agree relative to the largest of them, and anything else exactly."""
    if isinstance(found, float) and isinstance(recorded, float | int):
        recorded, found = [recorded], [found]
    is_list = isinstance(found, list) and isinstance(recorded, list)
    if not is_list or not any(isinstance(x, float) for x in found):
        return bool(recorded == found)
    if len(recorded) != len(found):
        return False
    return np.allclose(found, recorded, rtol=0, atol=tolerance * largest(recorded), equal_nan=True)


def largest(numbers: list[float]) -> float:
    return max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)


def numbers(value: Any) -> Any:
    """Return what is stored of an entry: a plain value, a list of numbers, or of many, or of a set
    of arrays, their norm and three projections, which know no order and no name of the arrays.
    """
    if isinstance(value, Mapping):
        return _projected([np.asarray(x) for x in value.values()])
    if isinstance(value, np.ndarray):
        return _rounded(value.ravel().tolist()) if value.size <= SHOWN else _projected([value])
    return _rounded(value)


def digest(value: Any) -> str:
    """Return a digest of the bytes of an entry; names and order of its arrays have no part."""
    if isinstance(value, Mapping):
        return _hashed("".join(sorted(digest(np.asarray(x)) for x in value.values())).encode())
    if isinstance(value, np.ndarray):
        return _hashed(f"{value.dtype} {value.shape}".encode() + value.tobytes())
    return _hashed(repr(value).encode())


def _hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return [_rounded(x) for x in value] if isinstance(value, list | tuple) else value


def _projected(arrays: list[np.ndarray]) -> list[float]:
    flat = [x.ravel().astype(np.float64) for x in arrays]
    norm = math.sqrt(math.fsum(float(x @ x) for x in flat))
    waves = [
        math.fsum(float(x @ np.cos(k * np.arange(1, len(x) + 1))) for x in flat) for k in (1, 2, 3)
    ]
    return _rounded([norm, *waves])
