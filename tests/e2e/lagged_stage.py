"""What scenarios with lagging watches add to `tests.scenarios`: methods, and initial states."""

from typing import Any

from aischeduler.model.tenant_queue import QUEUE_KEY
from aischeduler.model.workload import SERVICE_TYPE_KEY, ServiceType
from tests.api_contract.world import condition
from tests.e2e.lagging_proxy import FOR_EVER, LaggingProxy
from tests.objects import Json, job_object
from tests.queue_objects import queue_object
from tests.scenarios.environment_real import RealEnvironment
from tests.scenarios.stage import Stage

FULL = "4"
"""All cores of a node."""


class LaggedStage(Stage):
    """A scenario in which the watch of a kind may lag."""

    def __init__(self, environment: RealEnvironment, prefix: str, proxy: LaggingProxy) -> None:
        super().__init__(environment, prefix)
        self._proxy = proxy
        self._lags = False

    def hold(self, plural: str) -> None:
        """Let the scheduler get all present events, then no more events of the watch of this kind."""
        self.settle()
        self._proxy.hold(plural, FOR_EVER)
        self._lags = True

    def release(self, *pods: str) -> None:
        """Release all watches, or with `pods` remove deleted pods that were held."""
        if pods:
            super().release(*pods)
        else:
            self._proxy.release()
            self._lags = False

    def settle(self) -> None:
        """Wait until the scheduler has seen the pools and nodes, unless their watch is held."""
        if not self._lags:
            super().settle()

    def holds(self, kind: str, name: str, plural: str) -> float:
        """Wait until the proxy holds the present state of the object; return when the proxy got it."""
        version = self.get(kind, name)["metadata"]["resourceVersion"]
        return self._proxy.wait_for(plural, f'"resourceVersion":"{version}"'.encode())

    def let_through(self, plural: str, until: float) -> None:
        """Let the scheduler get the events up to a moment."""
        self._proxy.let_through(plural, until)

    def is_considered(self, pod: str) -> None:
        """Wait until the pod has a reason."""
        self.until(lambda: self.why(pod) != "")

    def evicted_nobody(self) -> None:
        """Check that no pod was evicted so far."""
        assert self.victims() == [], self.report()


def a_full_pool(stage: LaggedStage, **spec: Any) -> None:
    """Create pool a with one node, which `low` fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pod("low", pool="a", cpu=FULL)
    stage.runs("low")


def a_lent_pool(stage: LaggedStage, **spec: Any) -> None:
    """Create pool a with one node, which a borrower of pool b fills."""
    stage.node("a1", pool="a")
    stage.pools("a", **spec)
    stage.pools("b")
    stage.pod("borrower", pool="b", cpu=FULL)
    stage.goes(borrower="a1")
    stage.runs("borrower")


def a_pod_waits_for_preemption(stage: LaggedStage) -> None:
    """Create pool a, which `low` fills and which forbids preemption, so that `high` waits, and pool b without nodes."""
    a_full_pool(stage, disablePreemption=True)
    stage.pools("b", disableSharing=True)
    stage.pod("high", pool="a", cpu=FULL, priority=10)
    stage.waits("high", "Insufficient cpu")


def a_queue(stage: LaggedStage, name: str, **spec: Any) -> None:
    """Create a tenant queue, and wait until the scheduler has seen it, and with it every earlier change of a queue."""
    stage.create(queue_object(stage.own(name), **spec))
    stage.until(lambda: condition(stage.get("Queue", name), "Ready") != {})


def a_tide(stage: LaggedStage) -> None:
    """Create a node in the default pool, the queue `online`, and `batch`, of which a service may take back."""
    stage.node("d1")
    a_queue(stage, "online", priority=80000)
    a_queue(stage, "batch", priority=20000)


def terms(stage: LaggedStage, queue: str, service: ServiceType) -> dict[str, str]:
    """Return the annotations of a pod or a workload in a queue."""
    return {QUEUE_KEY: stage.own(queue), SERVICE_TYPE_KEY: service}


def trains(stage: LaggedStage, name: str, *, queue: str = "batch", **more: str) -> None:
    """Create a pod of training that fills a node, and wait until it runs; `more` are annotations."""
    stage.pod(name, cpu=FULL, annotations=terms(stage, queue, ServiceType.TRAINING) | more)
    stage.runs(name)


def serves(stage: LaggedStage, name: str, namespace: str = "ns") -> None:
    """Create a pod of inference that needs a whole node."""
    stage.pod(name, namespace=namespace, cpu=FULL, annotations=terms(stage, "online", ServiceType.INFERENCE))


def a_job(stage: LaggedStage, name: str, says: Json, pods_say: Json, node: str = "") -> None:
    """Create a Job of one pod that fills a node, with annotations of the Job and of its pod, created on a `node`."""
    job = job_object(name, namespace=stage.own("ns"), cpu=FULL)
    job["metadata"]["annotations"] = says
    job["spec"]["template"]["metadata"] = {"annotations": pods_say}
    job["spec"]["template"]["spec"] |= {"nodeName": stage.own(node)} if node else {}
    stage.create(job)
    stage.until(lambda: sum(stage.jobs_nodes(name).values()) == 1)
