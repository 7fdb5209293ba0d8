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
    """The recorded values of a room, and the digests of their bytes; both are renewed together."""

    def __init__(self, room: str) -> None:
        self.files = {part: HERE / part / f"{room}.yaml" for part in ("values", "bits")}
        self.recorded = {part: _read(path) for part, path in self.files.items()}
        self.found: dict[str, dict[str, Any]] = {part: {} for part in self.files}

    def check(self, name: str, found: Mapping[str, Any], tolerance: float = EXACT) -> None:
        """Compare the entries of a case with the recorded ones, or note them."""
        values = {key: numbers(value) for key, value in found.items()}
        inexact = (key for key, value in values.items() if _is_inexact(value))
        bits = {key: digest(found[key]) for key in inexact}
        self.found["values"][name], self.found["bits"][name] = values, bits
        if MODE == "renew":
            return
        wrong = differences(self.recorded["values"].get(name, {}), values, tolerance)
        if MODE == "bitwise":
            wrong += differences(self.recorded["bits"].get(name, {}), bits, 0.0)
        assert not wrong, "\n".join(wrong)

    def write(self, names: Iterable[str]) -> None:
        """Write what was found, in the order of `names`; cases that were not run stay."""
        if MODE != "renew":
            return
        for part, path in self.files.items():
            known = {**self.recorded[part], **self.found[part]}
            tree = {name: known[name] for name in names if known.get(name)}
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.dump(tree, sort_keys=False, width=100, default_flow_style=None))


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def differences(recorded: Mapping[str, Any], found: dict[str, Any], tolerance: float) -> list[str]:
    """Return a line for each entry that is not as it was recorded."""
    lines = [f"{key}: not recorded" for key in found if key not in recorded]
    lines += [f"{key}: gone" for key in recorded if key not in found]
    return lines + [
        f"{key}: {found[key]}, recorded {recorded[key]}"
        for key in found
        if key in recorded and not alike(recorded[key], found[key], tolerance)
    ]


def _is_inexact(value: Any) -> bool:
    return any(isinstance(x, float) for x in (value if isinstance(value, list) else [value]))


def alike(recorded: Any, found: Any, tolerance: float) -> bool:
    """Return whether numbers agree relative to the largest of them, and anything else exactly."""
    if not (_is_inexact(found) and _is_inexact(recorded)):
        return bool(recorded == found)
    one, other = np.atleast_1d(recorded), np.atleast_1d(found)
    if one.shape != other.shape:
        return False
    largest = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    return bool(np.allclose(other, one, rtol=0, atol=tolerance * largest, equal_nan=True))


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
