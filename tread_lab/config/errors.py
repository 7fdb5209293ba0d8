"""What the command line says in one line instead of a traceback: what, where and what to do."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

_LONGEST = 1_000  # characters of a line

_SEARCH, _STOP = "search: {sampler: tpe, trials: 20}", "stop_early: {grace: 100, reduction: 3}"

_AXES, _GOAL = "axes: {train.lr: [1e-3, 3e-3]}", "objectives: [gap/heldout]"
# Names of other tools and papers -> the names here, of which the first that is known is meant; with
# an example where the value is written in another way, too.
SYNONYMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "base_lr"), ("lr",)),
    **dict.fromkeys(("batch_size", "per_device_train_batch_size"), ("batch",)),
    **dict.fromkeys(("grad_clip", "max_norm", "gradient_clipping", "gradient_clip_val"), ("clip",)),
    **dict.fromkeys(("max_steps", "num_steps", "iterations", "train_steps"), ("steps",)),
    **dict.fromkeys(("epochs", "num_train_epochs", "num_epochs", "max_epochs"), ("steps",)),
    **dict.fromkeys(("selection_rate", "mask_ratio", "masking_ratio", "drop_rate"), ("rate",)),
    **dict.fromkeys(("dtype", "mixed_precision", "amp", "bf16", "fp16"), ("precision",)),
    **dict.fromkeys(("image_size", "resolution"), ("size",)),
    **dict.fromkeys(("data_path", "data_dir"), ("path",)),
    **dict.fromkeys(("checkpoint", "resume_from"), ("init_from",)),
    **dict.fromkeys(("parameters", "params", "grid", "param_space", "search_space"), (_AXES,)),
    **dict.fromkeys(("method", "algo", "search_alg"), (_SEARCH, "sampler: tpe")),
    **dict.fromkeys(("metric", "metrics"), (_GOAL, f"search: {{{_GOAL}}}")),
    **dict.fromkeys(("goal", "direction", "mode"), (f"{_GOAL}, whose better direction is known",)),
    **dict.fromkeys(("early_terminate", "pruner"), (_STOP,)),
    **dict.fromkeys(
        ("n_trials", "num_samples", "count", "run_cap"),
        ("search.trials", "search: {trials: 20}", "trials: 20"),
    ),
    **{"wd": ("weight_decay",), "ema_decay": ("ema",), "lr_scheduler": ("schedule",)},
    **{"warmup_steps": ("warmup",), "num_inference_steps": ("steps",)},
    **{"guidance_scale": ("guidance",), "num_classes": ("classes",), "arch": ("model",)},
    **{"dataset": ("source",), "num_workers": ("workers",), "random_seed": ("seed",)},
    **{
        "scheduler": (_STOP, "schedule: constant"),
        "grace_period": ("grace: 100, in optimizer steps",),
    },
    **{"reduction_factor": ("reduction: 3",), "n_startup_trials": ("startup: 8",)},
    **{"max_concurrent_trials": ("parallel: 2",)},
}


class UserError(ValueError):
    """User mistakes; the command line prints one line for each and exits with code 2."""

    def __init__(self, *messages: str) -> None:
        super().__init__(*map(_one_line, messages))

    exit_code = 2

    def __str__(self) -> str:
        return "; ".join(self.args)

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the lines."""
        return [*self.args]

    def at(self, path: str) -> UserError:
        """The same mistakes with `path` in front of each."""
        return UserError(*(f"{path}: {line}" for line in self.args)) if path else self


def _one_line(message: object) -> str:
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(message))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


class NotFinite(UserError):
    """A network output is not finite, reproducibly."""


class Exploded(NotFinite):
    """A trained network predicts worse than zero, so it has no result."""


class Unavailable(UserError):
    """Disk space or the cluster is lost; the same command continues once it is back."""

    exit_code = 3


@contextlib.contextmanager
def placed(path: str) -> Iterator[None]:
    """Prefix the mistakes raised within the block by their place."""
    try:
        yield
    except UserError as error:
        raise error.at(path) from None


class Mistakes(list[str]):
    """Collects mistakes, to raise all of them together."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: TracebackType | None) -> bool:
        found = isinstance(error, UserError)
        self += error.args if isinstance(error, UserError) else ()
        return found

    def check(self) -> None:
        """Raise a `UserError` of all mistakes, if there is one."""
        if self:
            raise UserError(*dict.fromkeys(self))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """Return the entry of `name`.

    Raises:
        UserError: unknown name; suggests a near miss.
    """
    if name not in table:
        raise UserError(f"{what}: unknown {name!r}{suggest(name, table)}")
    return table[name]


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the most likely known name: by its last part, by another tool's name for it, or by
    spelling; with an example such as `sampler: tpe` for names of other tools."""
    names, leaf = sorted(known, key=len), name.rpartition(".")[2]
    for example in (leaf, *SYNONYMS.get(leaf.lower(), ())):
        meant = example.partition(":")[0]
        if found := [one for one in names if meant in (one, one.rpartition(".")[2])]:
            return example if meant != example or meant in names else found[0]
    return next(iter(difflib.get_close_matches(name, names, n=1)), None)


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for a near miss, an example for another tool's name, else the
    valid names."""
    known = sorted(known)
    if (meant := near(str(name), known)) is not None:
        return f". Try {meant}." if ": " in meant else f", did you mean {meant!r}?"
    return f" (known: {', '.join(known)})" if known else ""


def shown(value: object, *, longest: int = 60) -> str:
    """Return a value as quoted in messages, shortened to a maximum length."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
