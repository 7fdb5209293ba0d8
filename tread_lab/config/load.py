"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers.oc import env as read_environment
from yaml import YAMLError

from tread_lab.config.yaml_limits import check_values, checked_text, not_yaml
from tread_lab.specs.axes import grid
from tread_lab.specs.cell import is_computed
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError, first_line, suggest
from tread_lab.specs.fields import (
    SHORT,
    TOP,
    dotted,
    leaves_of,
    lies_in,
    names_of,
    set_once,
    value_at,
    with_fields,
)
from tread_lab.specs.metrics import HELDOUT, ReferenceSpec, is_reference_file
from tread_lab.specs.sweep import Experiment, SweepSpec

_RESOLVING = "UserError raised while resolving interpolation: "  # which says no more
_LET_THROUGH = (AssertionError, AttributeError, KeyError, OSError, TypeError, ValueError)
OWN = tuple(field.name for field in fields(SweepSpec))
_OF_EXPERIMENT = ("sampler", "reference")
_OF_RUN = (*TOP, *SHORT, "then", "fixed")
# The parts of an override's value: `key:`, text in quotes, anything else up to a bracket or comma.
_PARTS = re.compile(
    r"""(?<=[{,\s])["']?(?P<key>\w+)["']?\s*:(?=[\s\w"'{\[])"""
    r"""|"[^"]*"|'[^']*'|[^\[\]{},\s][^\[\]{},]*"""
)
_PLAIN = re.compile(r"[\w.+-]+")
_HERE = Path(__file__).parents[1]


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
    return _experiment(name, map(_parsed, overrides))


def _experiment(name: str, overrides: Iterable[Override]) -> Experiment:
    path = find("experiments", name)
    tree = _resolved(_tree(path), overrides, path.name)
    names = {*TOP, "then"}
    defaults: dict[str, Any] = {"sampler": {}, "evaluate": [], "reference": None}
    extra = {key: tree.pop(key, default) for key, default in defaults.items()}
    extra["reference"] = reference_of(extra["reference"])
    tree.pop("question", None)
    for key in tree:
        if key not in names:
            raise UserError(f"unknown key {key!r}{suggest(key, {*names, *extra})}").at(name)
    return decode(Experiment, {"name": Path(name).stem, "run": tree, **extra}, name)


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
    return {o.key_or_group.removeprefix("sampler."): o.value() for o in map(_parsed, overrides)}


def evaluations_of(words: Sequence[str]) -> list[Any]:
    """Return evaluations as a file has them: `{heldout_loss: {images: 64}}` is a mapping.

    Raises:
        UserError: a word in braces cannot be read.
    """
    written = [
        _parsed(f"evaluate={word}").value() if word.startswith("{") else word for word in words
    ]
    return [_absolute_paths(item) for item in written]


def find_sweep(name: str) -> Path:
    """Return the file of a sweep, or of an experiment, which is a sweep of its base run."""
    return find("sweeps", name, "experiments")


def load_sweep(name: str, overrides: Sequence[str] = ()) -> tuple[str, SweepSpec, Experiment]:
    """Return (name, sweep, experiment) of a sweep file; an experiment's is {experiment: NAME}.

    An override belongs to the sweep file if its first key does (`seeds=[0,1]`), to the experiment
    if it is of its sampler or reference, else to `fixed` (`train.steps=200`). Where a file has no
    experiment, what it fixes is its base run, and what is typed alone is fixed.

    Raises:
        UserError: an override of what the sweep sets in another place, too.
    """
    path, typed = find_sweep(name), dict[str, Any]()
    of_sweep, of_experiment = list[Override](), list[Override]()
    for override in map(_parsed, overrides):
        head = override.key_or_group.partition(".")[0]
        if head in _OF_EXPERIMENT:
            of_experiment.append(override)
        elif override.is_delete() or (head in OWN and head != "fixed"):
            of_sweep.append(override)
        elif head in _OF_RUN:
            typed |= _fields(override)
        else:
            near = suggest(head, {*OWN, *_OF_RUN, *_OF_EXPERIMENT})
            raise UserError(f"{override.input_line}: neither a run nor a sweep has {head!r}{near}")
    tree = _tree(path)
    if "experiment" not in tree and tree.keys() & {*TOP}:
        tree = {"experiment": name}
    sweep = decode(SweepSpec, _resolved(tree, of_sweep, path.name), path.name)
    if sweep.experiment is not None:
        experiment = _experiment(sweep.experiment, of_experiment)
    elif of_experiment:
        line = of_experiment[0].input_line
        raise UserError(f"{line}: {path.name} has no experiment; write it in evaluate")
    else:
        run = with_fields({}, sweep.fixed, "fixed")
        experiment, sweep = Experiment(name=path.stem, run=run), replace(sweep, fixed={})
    _check_sampler(of_experiment, sweep)
    if typed:
        sweep = replace(sweep, fixed=_with_typed(sweep.fixed, _absolute_paths(typed, ".fixed")))
    return path.stem, sweep, experiment


def _fields(override: Override) -> dict[str, Any]:
    """Return the dotted fields of a run that an override sets."""
    key, value = override.key_or_group, cast("Any", override.value())
    if key == "fixed" and not isinstance(value, Mapping):
        raise UserError(f"{override.input_line}: expected fields of a run")
    return leaves_of(value if key == "fixed" else {key.removeprefix("fixed."): value})


def _with_typed(fixed: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file fixes, as it is written, with what is typed in its place."""
    kept = _without(fixed, typed)
    places: dict[str, str] = {}
    set_once(places, names_of(leaves_of(kept)), "fixed of the file")
    set_once(places, names_of(typed), "what is typed")
    return {**kept, **typed}


def _without(tree: Mapping[str, Any], names: Collection[str], path: str = "") -> dict[str, Any]:
    """Return a tree of fields without those that lie in one of these names."""
    kept = dict[str, Any]()
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            if below := _without(value, names, f"{path}{key}."):
                kept[key] = below
        elif not any(lies_in(path + key, name) for name in names):
            kept[key] = value
    return kept


def _check_sampler(overrides: Sequence[Override], sweep: SweepSpec) -> None:
    """Refuse an override of what the sweep's `sampler_axes` set again."""
    cells = grid(sweep.sampler_axes, "sampler_axes")
    axes = {f"sampler.{axis}": "sampler_axes" for cell in cells for axis in cell}
    for override in overrides:
        set_once(dict(axes), _fields(override), str(override.input_line))


def _overridden(tree: dict[str, Any], override: Override) -> dict[str, Any]:
    """Return a tree with what an override says in place of what the tree says of the same.

    Raises:
        UserError: it removes what is not there.
    """
    name, value = override.key_or_group, cast("Any", override.value())
    if override.is_delete():
        *above, last = name.split(".")
        try:
            del value_at(tree, above)[last]
        except (KeyError, TypeError):
            raise UserError(f"{override.input_line}: there is nothing to remove") from None
    elif name.partition(".")[0] in _OF_RUN:
        return with_fields(tree, {name: value}, "")
    else:
        for field, leaf in dotted({name: value}, empty=True):
            tree = _with(tree, field, leaf)
    return tree


def _with(tree: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a tree with a value at a dotted name, where the tree has it, however it writes dots;
    a value of another kind that lies there is replaced."""
    if name in tree:
        return {**tree, name: value}
    kept = {key: item for key, item in tree.items() if not lies_in(str(key), name)}
    above = [key for key in kept if lies_in(name, str(key)) and isinstance(kept[key], Mapping)]
    head = max(above, key=lambda key: len(str(key)), default=name.partition(".")[0])
    rest = name[len(str(head)) + 1 :]
    below = kept[head] if head in above else {}
    return kept | {head: _with(below, rest, value) if rest else value}


def _quoted(value: str) -> str:
    """Return the value of an override as Hydra reads it: keys stand without quotes, unlike JSON's,
    plain words and numbers as they are, and every other text in quotes."""

    def in_quotes(part: re.Match[str]) -> str:
        text = part[0].strip()
        if part["key"]:
            return f"{part['key']}:"
        return text if text[0] in "\"'" or _PLAIN.fullmatch(text) else f'"{text}"'

    return _PARTS.sub(in_quotes, value)


def _parsed(override: str) -> Override:
    """Return an override as Hydra reads it.

    Raises:
        UserError: it is none; names key and remedy.
    """
    if "=" not in override and not override.startswith("~"):
        raise UserError(f"{override!r} is not an override; write key=value")
    key, _, value = override.partition("=")
    try:
        parsed = OverridesParser.create().parse_override(override)
    except Exception:  # of Hydra and of its grammar, whose words name neither key nor remedy
        arrow = "; write -> for an arrow" if "\u2192" in value else ""
        several = re.match(r"[^\[{(]*,", value) is not None
        quoted = _listed(key, _quoted(value)) if several else f"{key}={_quoted(value)}"
        how = f"quote texts and no keys, as in '{quoted}'"
        if quoted == override:
            how = "close each bracket, brace and quotation mark"
        raise UserError(f"{override!r}: the value of {key} cannot be read; {how + arrow}") from None
    if parsed.is_sweep_override():
        raise UserError(f"{override!r}: several values are a list; write '{_listed(key, value)}'")
    check_values(parsed.value(), key)
    return parsed


def _listed(key: str, values: str) -> str:
    """Return the override that makes several values a list of the sweep file, or an axis of it."""
    head, _, rest = key.partition(".")
    axis = f"sampler_axes.{rest}" if head == "sampler" else f"axes.{key}"
    name = "seeds" if key == "seed" else key if head in OWN else axis
    return f"{name}=[{'...' if '(' in values else values}]"


def _resolved(tree: dict[str, Any], overrides: Iterable[Override], name: str) -> dict[str, Any]:
    """Return the tree of a file with overrides, its interpolations resolved, its paths absolute."""
    for override in overrides:
        tree = _overridden(tree, override)
    with _mistakes(name):
        resolved = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    assert isinstance(resolved, dict)
    check_values(resolved, name)
    return {str(key): value for key, value in _absolute_paths(resolved).items()}


def _tree(path: Path) -> dict[str, Any]:
    """Return the tree of a file with its `defaults`."""
    text = checked_text(path)
    try:
        with _mistakes(path.name):
            config = OmegaConf.load(StringIO(text))
            if isinstance(config, DictConfig) and "defaults" in config:
                search = f"hydra.searchpath=[file://{shipped_folder('experiments')}]"
                GlobalHydra.instance().clear()
                with initialize_config_dir(str(path.parent), version_base="1.3"):
                    config = compose(path.stem, overrides=[search])
            tree = OmegaConf.to_container(config)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        file = path if mark is None else Path(mark.name)  # which may be one of its `defaults`
        raise not_yaml(file if file.is_file() else path, error) from None
    if not isinstance(tree, dict) or not tree:
        raise UserError(f"{path}: expected `key: value` lines")
    return {str(key): value for key, value in tree.items()}


@contextmanager
def _mistakes(name: str) -> Iterator[None]:
    """Whatever Hydra and OmegaConf raise about a file's contents is the user's mistake, said once.

    They know many exceptions of their own and let others through: of the YAML constructor, of their
    grammar's parser, and failed assertions. `${oc.env:...}` is a mistake, too: plans are shared,
    and so would be what only this machine may know.
    """
    OmegaConf.register_new_resolver("oc.env", _refuse_environment, replace=True)
    try:
        yield
    except YAMLError:
        raise
    except (HydraException, OmegaConfBaseException, RecursionError, *_LET_THROUGH) as error:
        cause = error.__cause__ if isinstance(error.__cause__, UserError) else error
        key = getattr(error, "full_key", None)
        place, text = f"{name}: {key}" if key else name, first_line(cause).removeprefix(_RESOLVING)
        if isinstance(error, RecursionError) or text.startswith(RecursionError.__name__):
            raise UserError(f"{place}: an interpolation needs its own value") from None
        raise UserError(f"{place}: {text}") from None
    finally:
        OmegaConf.register_new_resolver("oc.env", read_environment, replace=True)


def _refuse_environment(name: str = "...", *_: Any) -> None:
    raise UserError(
        f"${{oc.env:{name}}} would write this machine's environment into plans;"
        " write the value itself"
    )
