"""Steps of training at which an evaluation measures a run: `fd@1k at 250, 50%, end`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.signature import signature

if TYPE_CHECKING:
    from tread_lab.specs.evaluation import EvaluationSpec

Step = int | str | None  # steps, a share of all steps such as `50%`, or the end
END = "end"
AT = "at"  # between an evaluation and its steps, and the key of the steps in a mapping
BASELINE = "baseline"  # the step at which a run's baseline ends: its own end but under `match`
_STEP = re.compile(r"(\d{1,9})(k?)|(\d{1,2}(?:\.\d+)?|100(?:\.0+)?)%", flags=re.IGNORECASE)
_EXAMPLE = "steps are written as in `fd@1k at 250, 50%, end`"


def check_step(step: Step) -> None:
    """Refuse what is neither a positive step, nor a share such as `50%`, nor `None`.

    Raises:
        UserError: says how steps are written.
    """
    if step is not None and (isinstance(step, bool) or step_of(step) != step):
        raise UserError(f"step: {shown(step)} is no step; {_EXAMPLE}")


def step_of(written: Any) -> Step:
    """Return the step that `250`, `50k`, `50%`, `baseline` or `end` means; the last is `None`.

    Raises:
        UserError: it is nothing of the kind.
    """
    text = str(written).strip().lower()
    if text in (END, BASELINE):
        return BASELINE if text == BASELINE else None
    match = _STEP.fullmatch(text)
    if match is None or isinstance(written, bool):
        raise UserError(f"{shown(written)} is no step; {_EXAMPLE}")
    if float(match[1] or match[3]) == 0:
        raise UserError(f"{shown(written)} is no step; the first one is 1")
    if match[3] is None:
        return int(match[1]) * (1000 if match[2] else 1)
    share = float(match[3])
    return None if share == 100 else f"{share:g}%"


def steps_of(written: Any) -> tuple[Step, ...]:
    """Return the steps of `250, 50%, end`, of a list of such, or of one number; each once.

    Raises:
        UserError: a part is no step, or there is none.
    """
    if isinstance(written, str):
        written = re.split(r"[,\s]+", written.strip().rstrip(","))
    items = written if isinstance(written, list | tuple) else [written]
    steps = tuple(dict.fromkeys(map(step_of, items)))
    if not steps:
        raise UserError(f"{AT}: has no steps; {_EXAMPLE}")
    return steps


def joined(items: Sequence[Any]) -> Iterator[Any]:
    """Yield the items of a list in which a comma between steps has made items of them.

    `[fid@10k at 50000, 100000, kid@1k]` is a list of three; its second item belongs to the first.
    A shell makes words of `fd@1k at 250 end`.
    """
    whole: Any = None
    for item in items:
        continues = isinstance(whole, str) and isinstance(item, int | float | str)
        if continues and (item == AT or (f" {AT}" in whole and _is_step(item))):
            whole = f"{whole}{' ' if item == AT else ', '}{item}".replace(f" {AT},", f" {AT}")
            continue
        if whole is not None:
            yield whole
        whole = item
    if whole is not None:
        yield whole


def _is_step(item: Any) -> bool:
    text = str(item).strip().lower()
    return text in (END, BASELINE) or _STEP.fullmatch(text) is not None


def at_steps(evaluations: Iterable[EvaluationSpec], steps: int) -> tuple[EvaluationSpec, ...]:
    """Return evaluations as a run of so many steps has them: shares are steps, its last is the end.

    Raises:
        UserError: a step lies beyond the run.
    """
    return tuple(dict.fromkeys(_at(spec, steps) for spec in evaluations))


def _at(spec: EvaluationSpec, steps: int) -> EvaluationSpec:
    step = spec.step
    if step == BASELINE:  # of a sweep that matches nothing, and of a run of no sweep
        step = None
    if isinstance(step, str):
        step = max(1, round(float(step.removesuffix("%")) / 100 * steps))
    if step is not None and step > steps:
        raise UserError(
            f"evaluate: step {step} lies beyond the {steps} steps of training; shares such as"
            f" `{AT} 25%, 50%, {END}` fit runs of any length"
        )
    step = None if step == steps else step
    return spec if step == spec.step else replace(spec, step=step)


def kept_steps(evaluations: Iterable[EvaluationSpec]) -> tuple[int, ...]:
    """Return the steps, rising, of which evaluations of one run need a checkpoint."""
    return tuple(sorted({spec.step for spec in evaluations if isinstance(spec.step, int)}))


def without_step(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of an evaluation as it is at the end of a run."""
    return {name: value for name, value in tree.items() if name != "step"}


def end_signature(tree: Mapping[str, Any]) -> str:
    """Return the signature of an evaluation's tree at the end of a run: equal for all its steps."""
    return signature(without_step(tree))


def in_words(steps: Sequence[int]) -> str:
    """Return `50000, 100000 and 400000`, or `none`."""
    *most, last = [*map(str, steps)] or ["none"]
    return f"{', '.join(most)} and {last}" if most else last
