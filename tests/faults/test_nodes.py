"""Nodes of a cluster: asked for their devices; one is lost, and its run moves to another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tread_lab
from tests.faults.compare import outcome
from tests.sweep.plans import carry_out, tiny
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.resources import RunResources
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.task import Task

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head that runs nothing, and one node with a core and a GPU that is only pretended."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster
    from tread_lab.sweep.execution.ray_cluster import few_daemons

    with pytest.MonkeyPatch.context() as patch, few_daemons():
        # Ray gives a silent node half a minute before it counts as gone.
        patch.setenv("RAY_health_check_initial_delay_ms", "1000")
        patch.setenv("RAY_health_check_period_ms", "500")
        # Workers search the current folder for code before those of their own environment.
        patch.chdir(tmp_path_factory.mktemp("cluster"))
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        found.add_node(num_cpus=1, num_gpus=1)
        ray.init(address=found.address, log_to_driver=False)
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with other code of this package."""
    shutil.copytree(Path(tread_lab.__file__).parent, tmp_path / "other" / "tread_lab")
    with (tmp_path / "other" / "tread_lab" / "draws.py").open("a") as file:
        file.write("OTHER = 1\n")
    return tmp_path / "other"


@pytest.mark.task(7)
@pytest.mark.fault(
    8,
    survived="the trial goes on there from its last checkpoint, bitwise as if nothing had happened;"
    " the attempt is recorded as lost, which counts against nobody",
)
@pytest.mark.long
def test_nodes_are_asked_and_a_run_moves_from_a_lost_one_to_another(
    lab: Lab, cluster: Any, tmp_path: Path
) -> None:
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    asked_for_its_devices(cluster)
    spec = tiny(steps=300, execution={"checkpoint_every": 10})
    folder, left = lab.run_of(spec), list[str]()

    def watch(report: Report) -> None:
        if report.step > 20 and not left:
            left.append(folder.attempts()[-1].node)
            (node,) = (n for n in cluster.worker_nodes if n.node_id == left[0])
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)

    RayExecutor().run(lab, [Task(spec)], watch)
    first, second = folder.attempts()
    assert (first.ended, second.ended) == ("lost", "completed")
    assert first.node == left[0] != second.node
    ends = "has left the cluster", "cannot be reached"  # as the cluster lists it no more, or still
    assert first.reason.startswith(f"node {left[0][:12]} of process ")
    assert first.reason.endswith(ends)
    calm = Lab(tmp_path / "calm")
    carry_out(calm, Task(spec))
    assert outcome(calm) == outcome(lab)


@pytest.mark.long
def test_a_node_with_other_code_is_passed_over_and_costs_no_run_a_try(
    lab: Lab, cluster: Any, monkeypatch: pytest.MonkeyPatch, other: Path
) -> None:
    import ray
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    here = os.environ.get("PYTHONPATH", "")
    (equal,) = cluster.worker_nodes  # that which came when another was lost, above

    class Busy:  # within the test: its worker need not import the tests
        def is_there(self) -> bool:
            return True

    busy = ray.remote(num_cpus=1)(Busy).remote()  # has the core of the equal node at first
    ray.get(busy.is_there.remote())
    monkeypatch.setenv("PYTHONPATH", str(other))
    different = cluster.add_node(num_cpus=1)
    monkeypatch.setenv("PYTHONPATH", here)
    tasks = [Task(tiny(steps=20, seed=seed)) for seed in range(3)]
    reports: list[Report] = []

    def watch(report: Report) -> None:
        reports.append(report)
        if report.phase == "queued":
            ray.kill(busy)

    RayExecutor().run(lab, tasks, watch)
    attempts = [lab.run(task.run).attempts() for task in tasks]
    assert [[(a.ended, a.node) for a in made] for made in attempts] == [
        [("completed", equal.node_id)]
    ] * 3
    (line,) = (report.note for report in reports if report.phase == "queued")
    assert line.startswith(f"node {different.node_id[:12]} ")
    assert line.endswith("it gets no more runs of this sweep")
    cluster.remove_node(equal, allow_graceful=False)
    with pytest.raises(Unavailable, match=rf"^no node can .* node {different.node_id[:12]} "):
        RayExecutor().run(lab, [Task(tiny(seed=9))], print)
    assert not lab.run_of(tiny(seed=9)).path.exists()
    cluster.remove_node(different, allow_graceful=False)


def asked_for_its_devices(cluster: Any) -> None:
    """The node that can have a run is asked; its GPU does not work, which is named."""
    from tread_lab.sweep.execution.ray_probe import cluster_devices

    devices = cluster_devices(RunResources())
    assert (devices.type, devices.slots, devices.runs_per_device) == ("cpu", 1, 1)
    with pytest.raises(UserError, match="no node of the cluster has 4 CPU cores and 1 GPU"):
        cluster_devices(RunResources(cpus=4, gpus=1))
    (node,) = cluster.worker_nodes
    if not torch.cuda.is_available():
        named = rf"node \S+ \({node.node_id[:12]}\) offers GPUs to Ray, and CUDA does not work"
        with pytest.raises(Unavailable, match=named):
            cluster_devices(RunResources(gpus=1))
