"""An injected exception on the real API server costs one piece of work, and no pod its node."""

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import create_nodes, create_pods, wait_until
from tests.e2e.crowd_invariants import judge
from tests.e2e.daemon import Line
from tests.e2e.history import History
from tests.e2e.replicas import KubeconfigContext, Replica
from tests.objects import node_object, pod_object

PODS = 60
PROGRAM = ("-m", "tests.e2e.faulty_program")
BOUND_WITHIN_SECONDS = 60.0


class Sabotaged(Replica):
    """A scheduler with injected exceptions, which it logs without failing the test."""

    def bugs(self) -> list[Line]:
        return []

    def told(self) -> list[Line]:
        """Return the exceptions that it has logged."""
        return super().bugs()

    def counted(self) -> dict[str, float]:
        """Return the exceptions in its metrics, by step."""
        return {one.labels["step"]: one.value for one in self.samples("ai_scheduler_internal_errors") if one.value}


def test_exceptions_in_many_functions_cost_no_pod_its_node_and_the_lease_is_released(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    create_nodes(control_plane, [node_object(f"n{number}", cpu="32") for number in range(2)])
    pods = [pod_object(f"p{number}", namespace=namespace, memory="64Mi") for number in range(PODS)]
    create_pods(control_plane, namespace, pods)
    options = ("--config", str(access.config))
    with Sabotaged(control_plane, access.kubeconfig, *options, program=PROGRAM, metrics=True) as scheduler:
        scheduler.start()
        history.wait_for_bound(namespace, PODS, BOUND_WITHIN_SECONDS)
        wait_until(lambda: all(pod.node for pod in history.pods(namespace)), "every pod on a node")
        assert scheduler.running()
        assert scheduler.counted().keys() >= {"attempt", "binder", "outcome of a Binding", "reporter"}
        assert len(scheduler.told()) >= len(scheduler.counted())
        assert scheduler.stop() == 0
        assert scheduler.said("lease released") != []
        assert "RuntimeError: a bug" in scheduler.log
    judge(control_plane, history, namespace)
