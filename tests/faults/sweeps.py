"""Sweeps of a few seconds that are disturbed in the tests of faults."""

from __future__ import annotations

SMALL = """
question: Does a sweep survive this?
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 8, batch: 4, warmup: 0}
  execution: {log_every: 1, checkpoint_every: 2}
axes: {route: {start: 0..1, end: 1..2}}
where: end - start == 1
evaluate: [{heldout_loss: {images: 16, levels: 2}}]
"""
EIGHT = SMALL.replace("start: 0..1", "start: 0..2").replace("1..2", "1..3") + "seeds: [0, 1]\n"
LONG_RUNS = SMALL.replace("steps: 8", "steps: 400").replace("every: 2", "every: 1")
# A `sitecustomize.py`, by which runs are long wherever they are trained: as long as the file `slow`
# is there, whatever is written takes seconds.
SLOW_DISK = """
import os, time
sync = os.fsync
def fsync(file):
    time.sleep(2 * os.path.exists({slow!r}))
    sync(file)
os.fsync = fsync
"""
