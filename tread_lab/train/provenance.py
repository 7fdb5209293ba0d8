"""Provenance of a run beside its spec: code, data and weights by their digests, device and host."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend

import tread_lab
from tread_lab.backbones.mamba import fused_scan
from tread_lab.backbones.parts import attend
from tread_lab.config.data import DataSpec
from tread_lab.config.model import BACKBONES
from tread_lab.config.run import RunSpec
from tread_lab.data.source import both_parts
from tread_lab.train.device import model, name
from tread_lab.train.joining import systems_of
from tread_lab.train.precision import EAGER, arithmetic, bf16_products

# The modules that decide results; screens, tables, figures and executors do not.
_BELOW = ("config", "draws.py", "routing", "diffusion", "backbones", "data")
DECIDES = (*_BELOW, "train", "evaluate", "methods")
_PACKAGES = ("torch", "numpy", "accelerate", "torch-fidelity", "diffusers", "transformers")


def fingerprint(spec: RunSpec, device_type: str) -> dict[str, str]:
    """Return name -> digest of everything outside `spec` that determines its results.

    The compiler is named with the backbone. Comparable runs have equal digests for equal names.

    Raises:
        UserError: the data cannot be read.
    """
    found, data = {"code": code_digest()}, named(spec.data)
    train, heldout = both_parts(spec.data)
    found |= {f"data {data}": train.fingerprint, f"held-out data {data}": heldout.fingerprint}
    found[f"blocks of {spec.model.backbone}"] = arithmetic(spec, device_type)
    if device_type == "cuda":
        found["order of sums"] = "fixed" if spec.execution.deterministic else "any"
        if spec.model.backbone == "mamba" and torch.cuda.is_available():  # a driver may have none
            fused = fused_scan() is not None
            found["selective scan"] = f"mamba_ssm {_version('mamba_ssm')}" if fused else "torch"
    if (products := bf16_products(spec.precision, device_type)) is not None:
        found["products in bf16"] = products
    for system in systems_of(spec):
        found |= system.provenance(spec, data, train, heldout)
    return found | plugins_of(spec)


def of_nodes(made: Mapping[str, str]) -> dict[str, str]:
    """Return the digests and package versions that must be equal on all nodes: all that do not
    depend on the device."""
    data = ("data ", "held-out data ", "captions ", "reference ", "decoder of ")
    shared = ("code", *data, "weights ", "plugin ")
    found = {what: digest for what, digest in made.items() if what.startswith(shared)}
    return found | {f"package {name}": v for name in _PACKAGES if (v := _version(name))}


def named(data: DataSpec) -> str:
    """Return the name of data: source, digest and scale.

    Data with equal names are equal to a network, whatever their paths.
    """
    scale, _ = data.scales
    parts = data.source, data.digest, f"x {scale:g}" if scale != 1 else ""
    return " ".join(filter(None, parts))


def plugins_of(spec: RunSpec) -> dict[str, str]:
    """Return a source digest of each plugin module or package of a run."""
    found = {}
    for plugin in spec.execution.plugins:
        file = Path(importlib.import_module(plugin).__file__ or "")
        files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
        text = "\n".join(meaning(path.read_text()) for path in files)
        found[f"plugin {plugin}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


@functools.cache
def code_digest() -> str:
    """Return a digest of the relevant modules, without comments, docstrings and formatting.

    A digest of syntax trees, which can depend on the Python version.
    """
    root, digest = Path(tread_lab.__file__).parent, hashlib.sha256()
    for path in (root / module for module in DECIDES):
        for module in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(f"{module.relative_to(root)}\n{meaning(module.read_text())}\n".encode())
    return digest.hexdigest()[:16]


def meaning(source: str) -> str:
    """Return the syntax tree of a module without its docstrings, as text."""
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def origin(spec: RunSpec, device: torch.device) -> dict[str, Any]:
    """Return code version, local changes, package versions and device of an attempt at `spec`."""
    packages = ("tread-lab", "torch", "accelerate", "torch-fidelity", "numpy", "ray", "mlflow")
    return {
        "code": _git("describe", "--always", "--dirty"),
        "diff": _git("diff", "HEAD")[:100_000],
        "packages": {p: v for p in packages if (v := _version(p))},
        "python": platform.python_version(),
        "device": name(device),
        "model": model(device),
        "fp32 attention": attention_kernel(spec, device),
        "threads": torch.get_num_threads(),
        "host": platform.node(),
    }


def attention_kernel(spec: RunSpec, device: torch.device) -> str | None:
    """Return the attention kernel of a run's fp32 block; `None` without one."""
    m, by = spec.model, spec.fp32_attention
    if not spec.fp32_blocks or "heads" not in BACKBONES[m.backbone].options:
        return None
    if by == "flex" and device.type == "cuda" and arithmetic(spec, device.type) != EAGER:
        return "FLEX_ATTENTION"
    shape = 1, m.heads, spec.tokens + spec.text_tokens, m.width // m.heads
    dtype = torch.bfloat16 if by == "bf16" else torch.float32
    x = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    return str(SDPBackend(attend(x, x, x, by=by, product=torch._fused_sdp_choice)).name)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    """Return the output of git on the source tree, empty if it is no checkout."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
