"""The processes that train one run together, one for each device: their rows, sums and end.

Gradients are summed in one vector after the backward pass, and not by torch's DDP: the losses here
read streams beside the output, pass twice, and leave parameters out of some steps.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import InitProcessGroupKwargs, patch_environment
from torch import Tensor, distributed

from tread_lab.config.errors import Unavailable, UserError
from tread_lab.records.run_state import ProcessLost, kind_of
from tread_lab.train.device import release

_STOP = -1  # what rank 0 says in place of a step
_PATIENCE = timedelta(days=7)  # of a wait: deaths are seen, and the watchdog ends what hangs
_POLL = 0.5  # seconds between two looks at the other processes
_GRACE = 10.0  # seconds that rank 0 has to notice by itself that another process has ended
_HERE = "127.0.0.1"  # where the other processes find rank 0
_CPU = torch.device("cpu")
OUT_OF_MEMORY = errno.ENOMEM  # exit code of a process beside rank 0 that memory did not suffice for


Process = subprocess.Popen[bytes]
# What rank 0 lets another process do beside it, on its device; it is sent as a pickle.
Job = Callable[[torch.device, "Ranks"], None]


class Ranks:
    """The processes of a run, from process `index` of `count`; rank 0 leads.

    Read from accelerate's environment variables; by default one process.
    """

    def __init__(self, device: torch.device) -> None:
        self._accelerator = _accelerator(device)
        self.count: int = self._accelerator.num_processes
        self.index: int = self._accelerator.process_index
        self._stopped = False

    @property
    def leads(self) -> bool:
        """Whether this process writes the record and decides when to stop."""
        return self.index == 0

    def rows(self, batch: int) -> slice | None:
        """Return this process's rows of a global batch; `None` for all.

        Raises:
            UserError: the batch is not divisible, e.g. for a retrained parent.
        """
        share, left = divmod(batch, self.count)
        if left:
            raise UserError(
                f"train.batch: must be divisible by the number of processes ({self.count}), got "
                f"{batch}"
            )
        return None if self.count == 1 else slice(share * self.index, share * (self.index + 1))

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, bitwise equal in each."""
        if self.count == 1:
            return x
        total: Tensor = self._accelerator.reduce(x, reduction="sum")
        return total

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[Tensor], loss: Tensor) -> Tensor:
        """Sum the gradients over all processes; return the sum of the losses."""
        if self.count == 1:
            return loss
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([loss.view(1), *(grad.reshape(-1) for grad in gradients)])
        distributed.all_reduce(flat)
        summed = torch.split(flat[1:], [grad.numel() for grad in gradients])
        torch._foreach_copy_(gradients, [s.view_as(g) for s, g in zip(summed, gradients)])
        return flat[0].clone()

    def go_on(self, step: int) -> bool:
        """Wait for rank 0 at `step`; return whether to continue.

        Raises:
            RuntimeError: this process is at another step.
        """
        if self.count == 1 or self._stopped:
            return not self._stopped
        said = self._said(step)
        self._stopped = said == _STOP
        if said not in (_STOP, step):
            raise RuntimeError(f"rank {self.index} is at step {step}, rank 0 at step {said}")
        return not self._stopped

    def stop(self) -> None:
        """As rank 0, make the next `go_on` of every other process return False."""
        if self.count > 1 and self.leads:
            self._said(_STOP)

    def told(self, job: Job | None = None) -> Job | None:
        """Return rank 0's `job` in every process; `None` ends the others."""
        jobs = [job]
        if self.count > 1:
            self._stopped = False
            distributed.broadcast_object_list(jobs, src=0, device=_CPU)
        return jobs[0]

    @staticmethod
    def end() -> None:
        """Close the process group; live threads can abort the process at exit."""
        if distributed.is_initialized():
            distributed.destroy_process_group()

    def _said(self, step: int) -> int:
        word = torch.tensor(step)
        distributed.broadcast(word, src=0)
        return int(word)


def _accelerator(device: torch.device) -> Accelerator:
    """Devices and the exchange between them; the arithmetic is that of `precision`.

    accelerate keeps one device per process, by default the first GPU; a reused process must forget
    the last one. What rank 0 says goes by the CPU, so that no process waits for its GPU.
    """
    if not distributed.is_initialized():
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
    options: dict[str, Any] = {"mixed_precision": "no"}
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        options["kwargs_handlers"] = [InitProcessGroupKwargs(backend=backend, timeout=_PATIENCE)]
    if device.type == "cpu":
        return Accelerator(**options, cpu=True)
    with patch_environment(accelerate_torch_device=str(device)):
        return Accelerator(**options)


@dataclass(frozen=True)
class Processes:
    """The processes of a run, started by rank 0; rank k has GPU k."""

    count: int = 1

    @contextmanager
    def open(self, device: torch.device) -> Iterator[Ranks]:
        """Run the other processes within the block; as rank 0, return the ranks.

        Raises:
            ProcessLost: one of them has ended.
        """
        if self.count == 1:
            yield Ranks(device)
            return
        store = distributed.TCPStore(  # type: ignore[attr-defined]
            _HERE, 0, self.count, is_master=True, wait_for_workers=False
        )
        shared = {
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": str(self.count),
            "MASTER_ADDR": _HERE,
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there
            "TORCHELASTIC_RESTART_COUNT": "0",
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
        }
        followers: list[Process] = []
        try:
            for rank in range(1, self.count):
                named = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                own = device if device.type == "cpu" else torch.device(device.type, rank)
                followers.append(_follower({**shared, **named}, own))
            with _watched(followers):
                with patch_environment(**shared, rank="0", local_rank="0"):
                    ranks = Ranks(device)
                yield ranks
                ranks.told(None)
        except Exception as error:
            lost = _lost(followers, within=_GRACE if isinstance(error, RuntimeError) else 0)
            if lost is None:
                raise
            raise ProcessLost(lost) from error
        finally:
            for follower in followers:
                follower.kill()
                follower.communicate()
            Ranks.end()


def _follower(environment: Mapping[str, str], device: torch.device) -> Process:
    """Start a process of this machine that ends when rank 0 does, however that comes."""
    words = [sys.executable, "-c", "from tread_lab.train.ranks import follow; follow()"]
    return subprocess.Popen(
        [*words, str(device)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def follow() -> None:
    """On ranks other than 0, execute each job of rank 0 until there is none.

    Stop signals reach every process; rank 0 handles them for all.
    """

    def end_with_parent() -> None:
        sys.stdin.read()  # which rank 0 holds open as long as it lives
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # MKL may have taken fewer
    for asks in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asks, signal.SIG_IGN)
    device = torch.device(sys.argv[1])
    try:
        ranks = Ranks(device)
        while (job := ranks.told()) is not None:
            job(device, ranks)
            release(device)
        ranks.end()
    except Exception as error:
        if kind_of(error) != "oom":
            raise
        sys.exit(OUT_OF_MEMORY)


def _lost(followers: Sequence[Process], within: float) -> str | None:
    """Return which follower has ended and how, within some seconds; `None` if all run."""
    until = time.monotonic() + within
    while True:
        for rank, follower in enumerate(followers, start=1):
            if (code := follower.poll()) is not None:
                why = ", out of memory" if code == OUT_OF_MEMORY else ""
                return f"rank {rank} of the run is lost: it ended with code {code}{why}"
        if time.monotonic() >= until:
            return None
        time.sleep(_POLL)


@contextmanager
def _watched(followers: Sequence[Process]) -> Iterator[None]:
    """End this process if another one has ended within the block and nothing here says so.

    A collective of gloo raises at once; one of NCCL, or the wait for a process that never came,
    does not.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL):
            lost = _lost(followers, within=0)
            if lost is not None and not over.wait(_GRACE):
                line = f"\ntread-lab: {lost}; the same command goes on\n"
                os.write(2, line.encode())
                os._exit(Unavailable.exit_code)

    threading.Thread(target=watch, name="ranks", daemon=True).start()
    try:
        yield
    finally:
        over.set()
