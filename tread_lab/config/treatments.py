"""Settings that treat nothing in a run as long as it is: refused, or said where it is a share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec

NOTICED, REFUSED = 0.05, 0.5  # shares of the initial weights that an EMA still holds at the end


def check_treatments(specs: Iterable[RunSpec]) -> None:
    """Refuse runs, or parents of runs, of which a setting has no effect.

    Raises:
        UserError: a warm-up is as long as the run, its routes are never on, or its EMA is mostly
            the initial weights.
    """
    for spec in dict.fromkeys(run for one in specs for run in (*one.ancestors, one)):
        steps, train = spec.train.steps, spec.train
        if not steps:
            continue
        if train.warmup >= steps:
            raise UserError(
                f"train.warmup: must be below train.steps ({steps}), got {train.warmup}."
                " Try train.warmup=0."
            )
        routed = any(routes for _, routes in spec.phases)
        if spec.routes and spec.routes_until != 0 and not routed:  # 0 is a dense run, as meant
            raise UserError(
                f"routes_from: must be below the step {spec.routes_until or steps} at which the"
                f" routes end, got {spec.routes_from}. Try routes_from=0."
            )
        if (held := train.ema.initial(steps)) > REFUSED:
            raise UserError(
                f"train.ema: after {steps} steps the EMA still holds {held:.0%} of the initial"
                " weights. Try a shorter one, or train.ema=0 for the raw weights."
            )


def ema_notices(specs: Iterable[RunSpec]) -> Iterator[str]:
    """Yield a line if EMAs hold more than a small share of the initial weights at the end."""
    trained = [spec.train for spec in specs if spec.train.steps]
    held = max((train.ema.initial(train.steps) for train in trained), default=0.0)
    if held > NOTICED:
        yield f"train.ema: the EMA still holds {held:.0%} of the initial weights at the end"
