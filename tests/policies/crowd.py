"""Nodes full of pods, for tests of preemption."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from aischeduler.engine.profile import default_profile
from aischeduler.framework.runner import Runner
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.node import Node
from aischeduler.model.pod import HostPort, Pod
from aischeduler.model.resources import PodRequest
from aischeduler.policies.eviction_order import Preemptor
from aischeduler.policies.preemption import Candidate, NoCandidate, VictimRequest, choose_victims, fits_after_departures
from aischeduler.state.disruption_budgets import BudgetTable
from aischeduler.state.node_table import NodeTable
from aischeduler.state.running_pods import RunningFacts, RunningPods
from tests.build import a_pod, a_request, a_spec, on_row, replace

PLUGINS = default_profile().plugins

NEGATIVE, LOW, MID, HIGH, TOP = -100, 0, 100, 1000, 2000


@dataclass(frozen=True, slots=True)
class Held:
    """One pod on a node."""

    pod: Pod
    node: str
    borrower: bool = False
    evictable: bool = True
    leaving: bool = False

    @property
    def facts(self) -> RunningFacts:
        return RunningFacts(self.pod.priority, self.borrower, self.evictable, self.leaving, self.pod.started_seconds)


def held(
    name: str,
    node: str,
    request: PodRequest,
    priority: int,
    *,
    started: int = 1,
    borrower: bool = False,
    evictable: bool = True,
    leaving: bool = False,
    host_ports: tuple[HostPort, ...] = (),
    labels: tuple[tuple[str, str], ...] = (),
    namespace: str = "default",
) -> Held:
    """Return a pod on a node; its uid is its name."""
    pod = replace(
        a_pod(name, uid=name, namespace=namespace, priority=priority, node=node),
        spec=a_spec(request=request, host_ports=host_ports),
        started_seconds=started,
        labels=dict(labels),
    )
    return Held(pod, node, borrower, evictable, leaving)


def res(cpu_milli: int) -> PodRequest:
    """Return a request of so much CPU and as many bytes of memory."""
    return a_request(cpu=f"{cpu_milli}m", memory=str(cpu_milli))


SMALL, MEDIUM, LARGE, WHOLE = res(100), res(200), res(300), res(500)


class Crowd:
    """Tables of nodes and of the pods that they hold."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Held], budgets: Iterable[DisruptionBudget] = ()) -> None:
        self.pods = {one.pod.uid: one for one in pods}
        self.table = NodeTable()
        self.running = RunningPods()
        self.budgets = BudgetTable(lambda uid: self.pods[uid].pod)
        for node in nodes:
            self.table.see(node)
        for one in self.pods.values():
            row = self.table.row(one.node)
            self.table.add(on_row(one.pod, row))
            self.running.add(one.pod.uid, one.pod.spec, row, one.facts)
        for budget in budgets:
            self.budgets.see(budget)
        self.runner = Runner(PLUGINS, self.table)
        self.rows = np.array(sorted(self.table.rows.values()), dtype=np.intp)

    def forget(self, one: Held) -> None:
        """Remove a pod from its node."""
        del self.pods[one.pod.uid]
        self.running.remove(one.pod.uid)
        self.table.remove(on_row(one.pod, self.table.rows[one.node]))

    def leave(self, one: Held) -> None:
        """Mark a pod as leaving."""
        self.pods[one.pod.uid] = replace(one, leaving=True)
        self.running.change(one.pod.uid, self.pods[one.pod.uid].facts)

    def move(self, one: Held, node: str) -> None:
        """Move a pod to another node."""
        self.pods[one.pod.uid] = replace(one, node=node)
        self.running.remove(one.pod.uid)
        self.running.add(one.pod.uid, one.pod.spec, self.table.rows[node], self.pods[one.pod.uid].facts)
        self.table.remove(on_row(one.pod, self.table.rows[one.node]))
        self.table.add(on_row(one.pod, self.table.rows[node]))

    def choose(self, asked: VictimRequest) -> Candidate | NoCandidate:
        return choose_victims(asked, self.runner, self.running, self.rows, self.budgets)

    def victims(self, asked: VictimRequest) -> tuple[str, tuple[str, ...]]:
        """Return the chosen node and its victims."""
        chosen = self.choose(asked)
        assert isinstance(chosen, Candidate), chosen.message
        return self.table.names[chosen.row], chosen.victims

    def refusal(self, asked: VictimRequest) -> str:
        """Return why no eviction helps."""
        answer = self.choose(asked)
        assert isinstance(answer, NoCandidate)
        return answer.message

    def fits_after_departures(self, asked: VictimRequest, node: str) -> bool:
        return fits_after_departures(asked.spec, self.runner, self.running, self.table.rows[node])


def preemptor(
    request: PodRequest,
    priority: int,
    *,
    host_ports: tuple[HostPort, ...] = (),
    node_selector: dict[str, str] | None = None,
) -> VictimRequest:
    """Return a pod that asks for room with this request."""
    spec = a_spec(request=request, host_ports=host_ports, node_selector=node_selector or {})
    return VictimRequest(spec, Preemptor(priority))
