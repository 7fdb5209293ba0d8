"""W&B runs as a view of the records, offline: `wandb sync` sends them, this never does."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import wandb

from tread_lab.tracking.folder_tracker import numbers_of
from tread_lab.tracking.projection import View

_PROJECT = "tread-lab"
_NOTE = "mlflow.note.content"


def write_run(folder: Path, sweep: str, view: View) -> None:
    """Write one offline run; its id is that of the trial, so that sending it again replaces it."""
    tags = {name: text for name, text in view.tags.items() if not name.startswith("mlflow.")}
    run = wandb.init(
        project=_PROJECT,
        group=sweep,
        id=f"{sweep[:60]}-{view.tags['signature']}-{zlib.crc32(view.name.encode()):08x}",
        name=view.name,
        notes=view.tags.get(_NOTE),
        tags=[tag for tag in view.tags.get("tags", "").split(", ") if tag],
        config={**view.params, **tags},
        mode="offline",
        dir=str(folder),
        reinit="create_new",
        settings=wandb.Settings(
            silent=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True
        ),
    )
    steps = itertools.groupby(numbers_of(view), key=lambda number: number.step)
    for step, numbers in steps:
        run.log({number.key: number.value for number in numbers}, step=step)
    run.finish(exit_code=int(view.status == "FAILED"))
