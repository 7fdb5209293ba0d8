"""A node of a cluster is lost, and its run moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.compare import outcome
from tests.sweep.plans import carry_out, tiny
from tread_lab.config import UserError
from tread_lab.hardware import RunResources
from tread_lab.records.lab import Lab
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.task import ListQueue, Task

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head that runs nothing, and one node with a core."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # Ray gives a silent node half a minute before it counts as gone.
        patch.setenv("RAY_health_check_initial_delay_ms", "1000")
        patch.setenv("RAY_health_check_period_ms", "500")
        # Workers search the current folder for code before those of their own environment.
        patch.chdir(tmp_path_factory.mktemp("cluster"))
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        found.add_node(num_cpus=1)
        ray.init(address=found.address, log_to_driver=False)
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.mark.task(7)
@pytest.mark.fault(8, survived="the run resumes on another node, equal bitwise")
def test_run_moves_from_a_lost_node(lab: Lab, cluster: Any, tmp_path: Path) -> None:
    from tread_lab.sweep.ray_runner import RayRunner, cluster_devices

    devices = cluster_devices(RunResources())
    assert (devices.type, devices.slots, devices.runs_per_device) == ("cpu", 1, 1)
    with pytest.raises(UserError, match="must fit a node of the cluster, got 4 cores and 1 GPUs"):
        cluster_devices(RunResources(cpus=4, gpus=1))
    spec, moved = tiny(steps=300, execution={"checkpoint_every": 10}), list[bool]()

    def watch(report: Report) -> None:
        if report.step > 20 and not moved:
            moved.append(True)
            (node,) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)

    RayRunner().run(lab, ListQueue([Task(spec)]), watch)
    assert [attempt.ended for attempt in lab.run_of(spec).attempts()] == ["died", "completed"]
    calm = Lab(tmp_path / "calm")
    carry_out(calm, Task(spec))
    assert outcome(calm) == outcome(lab)
