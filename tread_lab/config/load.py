"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from tread_lab.config.yaml_limits import check_values, checked_text, not_yaml
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError, first_line, suggest
from tread_lab.specs.fields import TOP
from tread_lab.specs.references import HELDOUT, ReferenceSpec
from tread_lab.specs.sweep import Experiment, SweepSpec

_LET_THROUGH = (AssertionError, AttributeError, KeyError, TypeError, ValueError)
_HERE = Path(__file__).parents[1]


def find(kind: str, name: str) -> Path:
    """Return the YAML file of a name: as given, in the current folder's `kind`/, or as shipped.

    Raises:
        UserError: it is nowhere; a near miss is suggested.
    """
    file = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    shipped = shipped_folder(kind)
    for candidate in (file, Path(kind) / file, shipped / file.name):
        if _is_file(candidate):
            return candidate.absolute()
    names = {path.stem for folder in (Path(kind), shipped) for path in folder.glob("*.yaml")}
    what = kind.removesuffix("s")
    raise UserError(f"no {what} {name!r} here or in {kind}/{suggest(file.stem, names)}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped `sweeps` or `experiments`, installed or in a checkout."""
    installed = _HERE / "shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind


def load_experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment `name` with `key=value` overrides.

    Raises:
        UserError: no such file, not YAML, or a key that no experiment has.
    """
    tree = _compose(find("experiments", name), overrides)
    names = {*TOP, "then"}
    defaults: dict[str, Any] = {"sampler": {}, "evaluate": [], "reference": None}
    extra = {key: tree.pop(key, default) for key, default in defaults.items()}
    extra["reference"] = reference_of(extra["reference"])
    tree.pop("question", None)
    for key in tree:
        if key not in names:
            raise UserError(f"unknown key {key!r}{suggest(key, {*names, *extra})}").at(name)
    _absolute_path(tree)
    return decode(Experiment, {"name": Path(name).stem, "run": tree, **extra}, name)


def _absolute_path(tree: dict[str, Any]) -> None:
    """Make the path of the data absolute, so that a worker in another folder finds them."""
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(data.get("path"), str):
        tree["data"] = {**data, "path": str(Path(data["path"]).expanduser().absolute())}


def reference_of(written: Any) -> ReferenceSpec | None:
    """Return the reference that a name, a path or a tree says; `None` for held-out images.

    Its path is made absolute, so that a worker in another folder finds the file.
    """
    if written is None or written == HELDOUT:
        return None
    reference = decode(ReferenceSpec, written, "reference")
    if reference.path is None:
        return reference
    return replace(reference, path=str(Path(reference.path).expanduser().absolute()))


def sampler_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the dotted fields of the sampler that `sampler.steps=10` and its like set.

    Raises:
        UserError: another field, or a value that is no YAML.
    """
    settings = {}
    for override in overrides:
        name, _, text = override.partition("=")
        if not name.startswith("sampler."):
            example = "fields of the sampler alone can be set, e.g. sampler.steps=40"
            raise UserError(f"{override!r}: {example}")
        try:
            with _mistakes(override):
                tree = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
        except YAMLError:
            raise UserError(f"{override}: the value is not valid YAML") from None
        assert isinstance(tree, dict)
        settings[name.removeprefix("sampler.")] = tree["value"]
    return settings


def load_sweep(name: str, overrides: Sequence[str] = ()) -> tuple[str, SweepSpec, Experiment]:
    """Return (name, sweep, experiment) of a sweep file.

    An override belongs to the sweep file if its first key does (`seeds=[0,1]`), else to the
    experiment (`train.steps=200`).
    """
    path = find("sweeps", name)
    own = {f.name for f in fields(SweepSpec)}
    of_sweep = [o for o in overrides if re.split(r"[.=]", o.lstrip("+~"), maxsplit=1)[0] in own]
    sweep = decode(SweepSpec, _compose(path, of_sweep), path.name)
    experiment = load_experiment(sweep.experiment, [o for o in overrides if o not in of_sweep])
    return path.stem, sweep, experiment


def _compose(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the tree of a file with its `defaults` and overrides, interpolations resolved."""
    alone = _loaded(path)
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise UserError(f"{override!r} is not an override; write key=value")
    with _mistakes(path.name):
        config = _with_hydra(path, overrides) if overrides or "defaults" in alone else alone
        tree = OmegaConf.to_container(config, resolve=True)
    assert isinstance(tree, dict)
    check_values(tree, path.name)
    return {str(key): value for key, value in tree.items()}


def _with_hydra(path: Path, overrides: Sequence[str]) -> Any:
    forced = [o if o.startswith(("+", "~")) else f"++{o}" for o in overrides]
    search = f"hydra.searchpath=[file://{shipped_folder('experiments')}]"
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(path.parent), version_base="1.3"):
        return compose(path.stem, overrides=[*forced, search])


def _loaded(path: Path) -> DictConfig:
    """Load one file without its `defaults`."""
    text = checked_text(path)
    try:
        with _mistakes(path.name):
            config = OmegaConf.load(StringIO(text))
    except (YAMLError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise not_yaml(path, error) from None
    if not isinstance(config, DictConfig) or not config:
        raise UserError(f"{path}: expected `key: value` lines")
    return config


@contextmanager
def _mistakes(name: str) -> Iterator[None]:
    """Whatever Hydra and OmegaConf raise about a file's contents is the user's mistake, said once.

    They know many exceptions of their own and let others through: of the YAML constructor, of their
    grammar's parser, and failed assertions.
    """
    try:
        yield
    except (YAMLError, UserError):
        raise
    except RecursionError:
        raise UserError(f"{name}: an interpolation needs its own value") from None
    except (HydraException, OmegaConfBaseException, *_LET_THROUGH) as error:
        raise UserError(f"{name}: {first_line(error)}") from None
