"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.errors import HydraException

from tread_lab.specs.axes import grid
from tread_lab.specs.cell import is_computed
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError, near, shown, suggest
from tread_lab.specs.fields import (
    SHORT,
    TOP,
    all_fields,
    leaves_of,
    lies_in,
    names_of,
    near_field,
    set_once,
    value_at,
    with_fields,
)
from tread_lab.specs.metrics import HELDOUT, ReferenceSpec, is_reference_file
from tread_lab.specs.registry import import_plugins
from tread_lab.specs.sweep import Experiment, StopEarlySpec, SweepSpec
from tread_lab.specs.yaml_text import load_yaml

OWN = tuple(field.name for field in fields(SweepSpec))
_OF_EXPERIMENT = ("sampler", "reference")
_OF_RUN = (*TOP, *SHORT, "then", "fixed")
# A section that one word may stand for -> what the word says.
_WRITTEN_OUT = {
    "stop_early": StopEarlySpec.from_shorthand,
    "reference": ReferenceSpec.from_shorthand,
}
_HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Override:
    """`key=value` as it was typed, with its value; `~key` removes what a file says.

    Attributes:
        several: whether the value lists the values of an axis, typed with commas between them.
    """

    text: str
    key: str
    value: Any = None
    removes: bool = False
    several: bool = False


def find(kind: str, name: str, *others: str) -> Path:
    """Return the YAML file of a name: as given, in the current folder's `kind`/, or as shipped.

    A name in another folder is no shipped file.

    Args:
        others: further kinds of files that the name may be of.

    Raises:
        UserError: it is nowhere; a near miss is suggested.
    """
    file = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    kinds = (kind, *others)
    for folder in kinds:
        shipped = [shipped_folder(folder) / file.name] if file.parent.name in ("", folder) else []
        for candidate in (file, Path(folder) / file, *shipped):
            if os.path.isfile(candidate):  # noqa: PTH113 (that of a path raises at long names)
                return candidate.absolute()
    folders = [place for each in kinds for place in (Path(each), shipped_folder(each))]
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    what, where = kind.removesuffix("s"), " or ".join(f"{each}/" for each in kinds)
    raise UserError(f"no {what} {name!r} here or in {where}{suggest(file.stem, names)}")


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped `sweeps` or `experiments`, installed or in a checkout."""
    installed = _HERE / "shipped" / kind
    return installed if installed.is_dir() else _HERE.parent / kind


def load_experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment `name` with `key=value` overrides.

    Raises:
        UserError: no such file, not YAML, or a key that no experiment has.
    """
    return _experiment(name, _single(overrides, f"tread-lab sweep {name}"))


def _experiment(name: str, overrides: Iterable[Override]) -> Experiment:
    path = find("experiments", name)
    tree = _resolved(_tree(path), overrides)
    names = {*TOP, "then"}
    defaults: dict[str, Any] = {"sampler": {}, "evaluate": [], "reference": None}
    extra = {key: tree.pop(key, default) for key, default in defaults.items()}
    extra["reference"] = reference_of(extra["reference"])
    tree.pop("question", None)
    plugins = tree.pop("plugins", [])
    for key in tree:
        if key not in names:
            raise UserError(f"unknown key {key!r}{near_field(key, {*names, *extra})}").at(name)
    run = _with_plugins(tree, plugins)
    return decode(Experiment, {"name": Path(name).stem, "run": run, **extra}, name)


def _with_plugins(run: Mapping[str, Any], names: Any) -> Mapping[str, Any]:
    """Import modules, and return the run with their names beside those that it has."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(f"plugins: must be a list of modules, got {shown(names)}")
    if not names:
        return run
    import_plugins(names)
    before = leaves_of(run).get("execution.plugins") or ()
    every = [*dict.fromkeys((*before, *names))]
    return with_fields(run, {"execution.plugins": every}, "plugins")


def reference_of(written: Any) -> ReferenceSpec | None:
    """Return the reference that a name, a path or a tree says; `None` for held-out images."""
    if written is None or written == HELDOUT:
        return None
    return decode(ReferenceSpec, _absolute_paths(written, ".reference"), "reference")


def _absolute_paths(tree: Any, field: str = "") -> Any:
    """Return settings whose paths of data and references a worker in another folder finds."""
    if isinstance(tree, Mapping):
        return {key: _absolute_paths(value, f"{field}.{key}") for key, value in tree.items()}
    if isinstance(tree, list):
        return [_absolute_paths(item, field) for item in tree]
    is_file = field.endswith(".reference") and is_reference_file(tree)
    is_path = field.endswith((".data.path", ".reference.path")) and isinstance(tree, str)
    if not (is_file or is_path) or is_computed(tree):
        return tree
    return str(Path(tree).expanduser().absolute())


def sampler_settings(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the dotted fields of the sampler that `sampler.steps=10` and its like set.

    Raises:
        UserError: another field, or a value that cannot be read.
    """
    for override in overrides:
        if not override.partition("=")[0].startswith("sampler."):
            example = "fields of the sampler alone can be set, e.g. sampler.steps=40"
            raise UserError(f"{override!r}: {example}")
    typed = _single(overrides, "one evaluation for each")
    return {override.key.removeprefix("sampler."): override.value for override in typed}


def evaluations_of(words: Sequence[str]) -> list[Any]:
    """Return evaluations as a file has them: `{heldout_loss: {images: 64}}` is a mapping.

    Raises:
        UserError: a word in braces cannot be read.
    """
    written = [load_yaml(word, repr(word)) if word.startswith("{") else word for word in words]
    return [_absolute_paths(item) for item in written]


def find_sweep(name: str) -> Path:
    """Return the file of a sweep, or of an experiment, which is a sweep of its base run."""
    return find("sweeps", name, "experiments")


def load_sweep(name: str, overrides: Sequence[str] = ()) -> tuple[str, SweepSpec, Experiment]:
    """Return (name, sweep, experiment) of a sweep file; an experiment's is {experiment: NAME}.

    Each setting is the last of this order that says it: the defaults of the fields, the files that
    `defaults` name, the experiment, `fixed` of the sweep file, overrides as they are typed, and the
    axes, which no override but one of the axis itself replaces. An override belongs to the sweep
    file if its first key does (`seeds=[0,1]`), to the experiment if it is of its sampler or
    reference, else to `fixed` (`train.steps=200`). Several values with commas between them are an
    axis (`train.lr=1e-3,3e-3`) in place of one that the file has. Where a file has no experiment,
    what it fixes is its base run, and what is typed alone is fixed.

    Raises:
        UserError: an override of what the sweep sets in another place, too.
    """
    path, typed, varied = find_sweep(name), dict[str, Any](), dict[str, Any]()
    of_sweep, of_experiment = list[Override](), list[Override]()
    for override in map(_parsed, overrides):
        head = override.key.partition(".")[0]
        if override.several and head in (*_OF_EXPERIMENT, *_OF_RUN) and head != "fixed":
            of_sweep.append(replace(override, key=_axis(override.key)))
            varied[override.key] = None
        elif head in _OF_EXPERIMENT:
            of_experiment.append(override)
        elif override.removes or (head in OWN and head != "fixed"):
            of_sweep.append(override)
        elif head in _OF_RUN:
            typed |= _fields(override)
        else:
            meant = near(override.key, [*OWN, *_OF_RUN, *_OF_EXPERIMENT, *all_fields()])
            value = override.text.partition("=")[2]
            remedy = f". Try {meant}={value}" if meant else ""
            raise UserError(f"{override.text}: unknown key {override.key!r}{remedy}")
    tree = _tree(path)
    if "experiment" not in tree and tree.keys() & {*TOP}:
        tree = {"experiment": name}
    sweep = decode(SweepSpec, _resolved(tree, of_sweep), path.name)
    import_plugins(sweep.plugins)
    if sweep.experiment is not None:
        experiment = _experiment(sweep.experiment, of_experiment)
    elif of_experiment:
        line = of_experiment[0].text
        raise UserError(f"{line}: {path.name} has no experiment; write it in evaluate")
    else:
        run = with_fields({}, sweep.fixed, "fixed")
        experiment, sweep = Experiment(name=path.stem, run=run), replace(sweep, fixed={})
    experiment = replace(experiment, run=_with_plugins(experiment.run, sweep.plugins))
    _check_sampler(of_experiment, sweep)
    if typed or varied:
        kept = _without_typed(sweep.fixed, {**varied, **typed})
        sweep = replace(sweep, fixed=kept | _absolute_paths(typed, ".fixed"))
    return path.stem, sweep, experiment


def _single(overrides: Iterable[str], several: str) -> list[Override]:
    """Return overrides of one value each.

    Args:
        several: what takes several values.
    """
    typed = list(map(_parsed, overrides))
    for override in typed:
        if override.several:
            count = len(override.value)
            raise UserError(
                f"{override.key}: must be one value, got {count}. Try {several} {override.text}."
            )
    return typed


def _axis(key: str) -> str:
    """Return the key of a sweep file for several values of a field."""
    head, _, rest = key.partition(".")
    return (
        "seeds" if key == "seed" else f"sampler_axes.{rest}" if head == "sampler" else f"axes.{key}"
    )


def _fields(override: Override) -> dict[str, Any]:
    """Return the dotted fields of a run that an override sets."""
    key, value = override.key, override.value
    if key == "fixed" and not isinstance(value, Mapping):
        raise UserError(f"{override.text}: expected fields of a run")
    return leaves_of(value if key == "fixed" else {key.removeprefix("fixed."): value})


def _without_typed(fixed: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted fields that a file fixes, without those that are typed in their place."""
    written, taken = leaves_of(fixed), {*names_of(typed)}
    kinds = (name for name in typed if name.endswith(".kind") and name in written)
    anew = [name.removesuffix(".kind") for name in kinds if typed[name] != written[name]]
    return {
        name: value
        for name, value in written.items()
        if not {*names_of({name: value})} <= taken
        and not any(lies_in(name, other) for other in (*typed, *anew))
    }


def _check_sampler(overrides: Sequence[Override], sweep: SweepSpec) -> None:
    """Refuse an override of what the sweep's `sampler_axes` set again."""
    cells = grid(sweep.sampler_axes, "sampler_axes")
    axes = {f"sampler.{axis}": "sampler_axes" for cell in cells for axis in cell}
    for override in overrides:
        set_once(dict(axes), _fields(override), override.text)


def _overridden(tree: dict[str, Any], override: Override) -> dict[str, Any]:
    """Return a tree with what an override says in place of what the tree says of the same.

    Raises:
        UserError: it removes what is not there.
    """
    name = override.key
    if override.removes:
        *above, last = name.split(".")
        try:
            del value_at(tree, above)[last]
        except (KeyError, TypeError):
            raise UserError(f"{override.text}: there is nothing to remove") from None
        return tree
    if name.partition(".")[0] in _OF_RUN:
        return with_fields(tree, {name: override.value}, "")
    try:
        return _with(tree, name, override.value)
    except UserError as error:
        raise error.at(override.text) from None


def _with(tree: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a tree with a value at a dotted name, where the tree has it, however it writes dots;
    a mapping sets only what it names."""
    above = [str(key) for key in tree if lies_in(name, str(key))]
    inside = [key for key in tree if key != name and lies_in(str(key), name)]
    head = max(above, key=len, default=name.partition(".")[0])
    rest, below = name[len(head) + 1 :], tree.get(head)
    if rest:
        return {**tree, head: _with(_opened(head, below), rest, value)}
    if not isinstance(value, Mapping) or not (inside or isinstance(below, Mapping)):
        return {key: item for key, item in tree.items() if key not in inside} | {name: value}
    changed = dict(tree)
    for key, item in value.items():
        changed = _with(changed, f"{name}.{key}", item)
    return changed


def _opened(name: str, value: Any) -> Mapping[str, Any]:
    """Return the mapping that a value is or stands for, so that a part of it can be set."""
    if value is None or isinstance(value, Mapping):
        return value or {}
    if name not in _WRITTEN_OUT:
        raise UserError(f"{name} must be a mapping, got {shown(value)}")
    return _WRITTEN_OUT[name](value)


def _parsed(override: str) -> Override:
    """Return an override in Hydra's grammar; a scalar is read as in a file, and so is a value that
    the grammar does not know, so that arrows and expressions need no quotes of their own.

    Raises:
        UserError: it is none; names key and remedy.
    """
    key, equals, written = override.partition("=")
    if key.startswith("+"):
        raise UserError(f"{override}: must be without +. Try {override.lstrip('+')}.")
    if not equals and not key.startswith("~"):
        raise UserError(f"{override!r}: must be key=value")
    try:
        parsed = OverridesParser.create().parse_override(override)
        if parsed.is_delete():
            return Override(override, parsed.key_or_group, removes=True)
        if parsed.is_sweep_override() and "(" in written:  # choice(...) and range(...)
            values = [*parsed.sweep_iterator(transformer=Transformer.identity)]
            return Override(override, key, values, several=True)
        if isinstance(parsed.value(), dict | list):
            return Override(override, key, parsed.value())
    except HydraException:
        pass
    items = load_yaml(f"[{written}]", repr(override))
    several = len(items) > 1
    value = items if several else load_yaml(written, repr(override))
    return Override(override, key, value, several=several)


def _resolved(tree: dict[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """Return the tree of a file with overrides, its paths absolute."""
    for override in overrides:
        tree = _overridden(tree, override)
    return {str(key): value for key, value in _absolute_paths(tree).items()}


def _tree(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the tree of a file, merged in order with the files that its `defaults` name.

    Args:
        above: the files that named this one.

    Raises:
        UserError: a file cannot be read, is not YAML, or names itself.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    tree = load_yaml(text, str(path))
    if not isinstance(tree, dict) or not tree:
        raise UserError(f"{path}: expected `key: value` lines")
    own = {str(key): value for key, value in tree.items()}
    names = own.pop("defaults", [])
    if path in above or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise UserError(f"{path}: defaults: must be names of other files, got {shown(names)}")
    merged: dict[str, Any] = {}
    for name in names if "_self_" in names else [*names, "_self_"]:
        beside = path.with_name(f"{name}.yaml")
        file = beside if beside.is_file() else shipped_folder("experiments") / beside.name
        merged = _merged(merged, own if name == "_self_" else _tree(file, (*above, path)))
    return merged


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree with another one over it; where the kind differs, nothing of `under` stays."""
    if over.get("kind", under.get("kind")) != under.get("kind"):
        return dict(over)
    merged = dict(under)
    for key, value in over.items():
        below = under.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(below, value)
        merged[key] = value
    return merged
