"""Frozen networks of transformers, from a folder or the hub; the only door to transformers."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tread_lab.config.errors import UserError, first_line
from tread_lab.evaluate.fidelity import sha256


def check_package(package: str, field: str) -> None:
    """Refuse a frozen network whose package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{field}: needs the package {package}: `pip install {package}`")


def network_config(folder: Path, field: str, package: str, **expected: object) -> dict[str, Any]:
    """Return what the config.json of a frozen network says, without loading the network.

    Args:
        field: of the run or evaluation that wants it, or a variable, which an error names.
        package: what loads it.
        expected: values of its config, or of that of its text half.

    Raises:
        UserError: the package is absent, or the folder holds no such network with weights.
    """
    check_package(package, field)
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        stated = {**config, **config.get("text_config", {})}
    except (OSError, ValueError, AttributeError, TypeError):
        raise UserError(f"{field}: {folder} holds no readable config.json") from None
    for name, value in expected.items():
        if stated.get(name) != value:
            found = f"{name} {stated.get(name)}, and {value} is expected"
            raise UserError(f"{field}: {folder} has {found}")
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{field}: {folder} holds no weights (*.safetensors)")
    return config


def load_pretrained(kind: str, where: str | Path, field: str, **options: Any) -> Any:
    """Return what the class `kind` of transformers makes of a folder or, of a text, of a hub id.

    A network is in fp32 and holds the weights of its file, all of them: transformers by itself
    computes in the file's type, and draws at random what a file lacks.

    Args:
        field: of the run or evaluation that wants it, which an error names.

    Raises:
        UserError: it cannot be loaded, or weights are missing.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made, local = getattr(transformers, kind), isinstance(where, Path)
    if is_network := not kind.endswith("Tokenizer"):
        options["output_loading_info"] = True
    try:
        loaded = made.from_pretrained(where, local_files_only=local, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {first_line(error)}") from None
    if not is_network:
        return loaded
    network, found = loaded
    if missing := sorted(found["missing_keys"]):
        what = f"{len(missing)} weights are missing, such as {missing[0]}"
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {what}")
    return network.float()


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 of names and contents of the files of weights in a folder."""
    files = sorted(folder.glob("*.safetensors"))
    lines = "".join(f"{path.name} {sha256(path)}\n" for path in files)
    return hashlib.sha256(lines.encode()).hexdigest()
