"""YAML files and key=value overrides become plain trees, then specs; the only door to Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers.oc import env as read_environment
from yaml import YAMLError

from tread_lab.config.yaml_limits import check_values, checked_text, not_yaml
from tread_lab.specs.axes import grid
from tread_lab.specs.cell import is_computed
from tread_lab.specs.decode import decode
from tread_lab.specs.errors import UserError, first_line, suggest
from tread_lab.specs.fields import SHORT, TOP, leaves_of, lies_in, names_of, set_once, with_fields
from tread_lab.specs.metrics import HELDOUT, ReferenceSpec, is_reference_file
from tread_lab.specs.sweep import Experiment, SweepSpec

_RESOLVING = "UserError raised while resolving interpolation: "  # which says no more
_LET_THROUGH = (AssertionError, AttributeError, KeyError, OSError, TypeError, ValueError)
Keys = tuple[str, ...]
OWN = tuple(field.name for field in fields(SweepSpec))
_OF_EXPERIMENT = ("sampler", "reference")
_TYPED = "what is typed"
_OF_RUN = (*TOP, *SHORT, "then", "fixed")
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
            if _is_file(candidate):
                return candidate.absolute()
    folders = [place for each in kinds for place in (Path(each), shipped_folder(each))]
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    what, where = kind.removesuffix("s"), " or ".join(f"{each}/" for each in kinds)
    raise UserError(f"no {what} {name!r} here or in {where}{suggest(file.stem, names)}")


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
    tree = _absolute_paths(_compose(find("experiments", name), overrides))
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
        UserError: another field, or a value that is no YAML.
    """
    for override in overrides:
        if not override.partition("=")[0].startswith("sampler."):
            example = "fields of the sampler alone can be set, e.g. sampler.steps=40"
            raise UserError(f"{override!r}: {example}")
    pairs = ((o, *o.removeprefix("sampler.").partition("=")[::2]) for o in overrides)
    return {name: _yaml_value(override, text) for override, name, text in pairs}


def evaluations_of(words: Sequence[str]) -> list[Any]:
    """Return evaluations as a file has them: `{heldout_loss: {images: 64}}` is a mapping.

    Raises:
        UserError: a word in braces is no YAML.
    """
    written = [_yaml_value(word, word) if word.startswith("{") else word for word in words]
    return [_absolute_paths(item) for item in written]


def _yaml_value(override: str, text: str) -> Any:
    """Return the value of an override."""
    try:
        with _mistakes(override):
            tree = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
    except YAMLError:
        raise UserError(f"{override}: the value is not valid YAML") from None
    assert isinstance(tree, dict)
    return tree["value"]


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
    of_sweep, of_experiment = list[str](), list[str]()
    for override in overrides:
        head = re.split(r"[.=]", override.lstrip("+~"), maxsplit=1)[0]
        if head in _OF_EXPERIMENT:
            of_experiment.append(override)
        elif override.startswith("~") or (head in OWN and head != "fixed"):
            of_sweep.append(override)
        elif head in _OF_RUN:
            typed |= _fields(override)
        else:
            near = suggest(head, {*OWN, *_OF_RUN, *_OF_EXPERIMENT})
            raise UserError(f"{override}: neither a run nor a sweep has {head!r}{near}")
    if _is_experiment(path):
        composed = {"experiment": name, **_compose(None, of_sweep)}
    else:
        composed = _compose(path, of_sweep)
    sweep = decode(SweepSpec, _absolute_paths(_replaced(composed, of_sweep)), path.name)
    if sweep.experiment is not None:
        experiment = load_experiment(sweep.experiment, of_experiment)
    elif of_experiment:
        raise UserError(f"{of_experiment[0]}: {path.name} has no experiment; write it in evaluate")
    else:
        run = with_fields({}, sweep.fixed, "fixed")
        experiment, sweep = Experiment(name=path.stem, run=run), replace(sweep, fixed={})
    _check_sampler(of_experiment, sweep)
    if typed:
        sweep = replace(sweep, fixed=_with_typed(sweep.fixed, _absolute_paths(typed, ".fixed")))
    return path.stem, sweep, experiment


def _is_experiment(path: Path) -> bool:
    """Return whether a file says a run, and no experiment that it varies."""
    loaded = _loaded(path)
    if "experiment" in loaded or not loaded.keys() & {*TOP, "defaults"}:
        return False
    return "defaults" not in loaded or "experiment" not in _compose(path, ())


def _fields(override: str) -> dict[str, Any]:
    """Return the dotted fields of a run that an override sets."""
    parsed = _parsed(override)
    key, value = str(parsed.key_or_group), cast("Any", parsed.value())
    check_values(value, key)
    if key == "fixed" and not isinstance(value, Mapping):
        raise UserError(f"{override}: expected fields of a run")
    return leaves_of(value if key == "fixed" else {key.removeprefix("fixed."): value})


def _with_typed(fixed: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file fixes with what is typed in its place."""
    kept = {
        field: value
        for field, value in leaves_of(fixed).items()
        if not any(lies_in(field, name) for name in typed)
    }
    places: dict[str, str] = {}
    set_once(places, names_of(kept), "fixed of the file")
    set_once(places, names_of(typed), _TYPED)
    return {**kept, **typed}


def _check_sampler(overrides: Sequence[str], sweep: SweepSpec) -> None:
    """Refuse an override of what the sweep's `sampler_axes` set again."""
    cells = grid(sweep.sampler_axes, "sampler_axes")
    axes = {f"sampler.{axis}": "sampler_axes" for cell in cells for axis in cell}
    for override in overrides:
        set_once(dict(axes), _fields(override), override)


def _replaced(tree: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return a sweep file's tree without what it spells with dots and an override sets.

    Hydra has put what `axes.train.lr=1` sets beside an axis `train.lr`. Keys with dots that are in
    the value of an override, as in `axes={train.lr: [1]}`, stay.
    """
    values = ((str(o.key_or_group).split("."), o.value()) for o in map(_parsed, overrides))
    typed = [path for keys, value in values for path in _paths(tuple(keys), value)]
    for number, path in enumerate(typed):
        tree = _undotted(tree, ".".join(path), frozenset(typed[number:]))
    return tree


def _paths(path: Keys, value: Any) -> Iterator[Keys]:
    """Yield the keys that lead to each value in nested mappings."""
    if not isinstance(value, Mapping) or not value:
        yield path
        return
    for key, item in value.items():
        yield from _paths((*path, str(key)), item)


def _undotted(
    tree: Mapping[str, Any], name: str, typed: Set[Keys], above: Keys = ()
) -> dict[str, Any]:
    """Return a mapping without what it says of a field by keys with dots.

    Args:
        typed: keys that lead to values of overrides, which stay.
        above: the keys that lead to the mapping.
    """
    kept = {}
    for key, value in tree.items():
        path = (*above, str(key))
        spelled, gone = any("." in part for part in path), lies_in(key, name)
        if not gone and lies_in(name, key):
            below = value if isinstance(value, Mapping) else {}
            value = _undotted(below, name[len(key) + 1 :], typed, path)
            gone = not value
        if not (spelled and gone) or path in typed:
            kept[key] = value
    return kept


def _quoted(value: str) -> str:
    """Return the value of an override with each text in it in quotes."""
    if value.startswith("{"):
        return value

    def in_quotes(text: re.Match[str]) -> str:
        return text[0] if text[0][0] in "\"'" else f'"{text[0].strip()}"'

    return re.sub(r""""[^"]*"|'[^']*'|[^\[\],\s][^\[\],]*""", in_quotes, value)


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
        raise UserError(
            f"{override!r}: the value of {key} cannot be read; quote each text in it, as in"
            f" '{quoted}'{arrow}"
        ) from None
    if parsed.is_sweep_override():
        raise UserError(f"{override!r}: several values are a list; write '{_listed(key, value)}'")
    return parsed


def _listed(key: str, values: str) -> str:
    """Return the override that makes several values a list of the sweep file, or an axis of it."""
    head, _, rest = key.partition(".")
    axis = f"sampler_axes.{rest}" if head == "sampler" else f"axes.{key}"
    name = "seeds" if key == "seed" else key if head in OWN else axis
    return f"{name}=[{'...' if '(' in values else values}]"


def _compose(path: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the tree of a file with its `defaults` and overrides, interpolations resolved."""
    alone, name = (OmegaConf.create(), _TYPED) if path is None else (_loaded(path), path.name)
    for override in overrides:
        _parsed(override)
    with _mistakes(name), _without_environment():
        config = _with_hydra(path, overrides) if overrides or "defaults" in alone else alone
        tree = OmegaConf.to_container(config, resolve=True)
    assert isinstance(tree, dict)
    check_values(tree, name)
    return {str(key): value for key, value in tree.items()}


@contextmanager
def _without_environment() -> Iterator[None]:
    """Refuse `${oc.env:...}`: plans are shared, and so would be what only this machine may know."""

    def refuse(name: str = "...", *_: Any) -> None:
        raise UserError(
            f"${{oc.env:{name}}} would write this machine's environment into plans;"
            " write the value itself"
        )

    OmegaConf.register_new_resolver("oc.env", refuse, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", read_environment, replace=True)


def _with_hydra(path: Path | None, overrides: Sequence[str]) -> Any:
    """Return a file's tree, or an empty one, with overrides.

    An override replaces a value of another kind as a whole.
    """
    forced = [o if o.startswith(("+", "~")) else f"++{o}" for o in overrides]
    search = f"hydra.searchpath=[file://{shipped_folder('experiments')}]"
    GlobalHydra.instance().clear()
    folder, name = (Path.cwd(), None) if path is None else (path.parent, path.stem)
    with initialize_config_dir(str(folder), version_base="1.3"):
        while True:
            try:
                return compose(name, overrides=[*forced, search])
            except ConfigCompositionException as error:
                override = str(error).removeprefix("Error merging override ")
                removed = "~" + override.lstrip("+").partition("=")[0]
                if override not in forced or removed in forced:
                    raise
                forced.insert(forced.index(override), removed)


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
    except YAMLError:
        raise
    except (HydraException, OmegaConfBaseException, RecursionError, *_LET_THROUGH) as error:
        cause = error.__cause__ if isinstance(error.__cause__, UserError) else error
        key = getattr(error, "full_key", None)
        place, text = f"{name}: {key}" if key else name, first_line(cause).removeprefix(_RESOLVING)
        if isinstance(error, RecursionError) or text.startswith(RecursionError.__name__):
            raise UserError(f"{place}: an interpolation needs its own value") from None
        raise UserError(f"{place}: {text}") from None
