"""This scheduler and kube-scheduler give the same pods on the same nodes the same result: which fit, and the reasons.

Each has its own set of nodes, separated by the label `side`, which the pods of each select. There are no Pools, so that
both see all nodes, and equal sets give equal numbers in both messages.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from aischeduler.model.names import DEFAULT_POOL, SCHEDULER_NAME
from tests.controlplane.plane import ControlPlane
from tests.controlplane.sweep import sweep
from tests.e2e.cluster import create_namespace, create_nodes, create_pods, events, install
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object

PEER_NAME = "default-scheduler"
SIDES = {"ours": SCHEDULER_NAME, "theirs": PEER_NAME}
NAMESPACE = "peers"
VERDICT_SECONDS = 40.0
OUR_POOL = f"pool {DEFAULT_POOL}: "
"""The prefix of the scheduler's message, which names the pool of the nodes."""
WITHOUT_CLAIMS = re.compile(r" no new claims to deallocate,")
"""A clause of kube-scheduler about device claims, which none of these pods has."""
WORDS_SINCE = 36
"""The minor version of kube-scheduler with the same messages. Version 1.31 has a reason for each taint, counts a node
that is too small for the pod among those where preemption could help, and has no reason for nodes that the pod does not
name."""
TAINTS = re.compile(r"(\d+) (node\(s\) had untolerated taint)(?: \{.*\}|\(s\))")


def nodes(side: str) -> list[Json]:
    """Return six nodes: plain, small, tainted, half tainted, cordoned, and one with GPUs and a taken port."""

    def node(name: str, **given: Any) -> Json:
        labels = {"side": side, "disk": "ssd", "generation": "3", **given.pop("labels", {})}
        return node_object(f"{side}-{name}", labels=labels | {"kubernetes.io/hostname": f"{side}-{name}"}, **given)

    cordoned = node("cordoned", cpu="8")
    cordoned["spec"]["unschedulable"] = True
    return [
        node("plain", cpu="8", memory="16Gi", labels={"zone": "a"}),
        node("small", cpu="1", memory="1Gi", pods=3, labels={"zone": "a", "disk": "hdd", "generation": "1"}),
        node("tainted", cpu="16", taints=[taint("dedicated", "ml", "NoSchedule")], labels={"zone": "b"}),
        node("shy", cpu="4", taints=[taint("slow", "", "PreferNoSchedule"), taint("gone", "", "NoExecute")]),
        cordoned,
        node("gpu", cpu="32", gpu=4, labels={"zone": "b", "accelerator": "a100"}),
    ]


def taint(key: str, value: str, effect: str) -> Json:
    return {"key": key, "value": value, "effect": effect}


def tolerates(key: str = "", value: str = "", effect: str = "", operator: str = "Equal") -> Json:
    given = {"key": key, "value": value, "effect": effect}
    return {"operator": operator, **{name: text for name, text in given.items() if text}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def terms(*expressions: Json, fields: tuple[Json, ...] = ()) -> Json:
    """Return an affinity that requires all of these expressions."""
    term = {"matchExpressions": list(expressions)} | ({"matchFields": list(fields)} if fields else {})
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def either(*expressions: Json) -> Json:
    """Return an affinity that requires one of these expressions."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in expressions]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def prefers(*expressions: Json) -> Json:
    """Return an affinity that prefers each of these expressions."""
    preferred = [{"weight": 1, "preference": {"matchExpressions": [one]}} for one in expressions]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def port(number: int, **given: str) -> Json:
    return {"containerPort": number, "hostPort": number, **given}


@dataclass(frozen=True)
class Case:
    """A pod for both schedulers: its requests, and more fields of its spec."""

    fits: bool
    cpu: str = "100m"
    memory: str = "64Mi"
    gpu: int = 0
    selector: Mapping[str, str] | None = None
    tolerations: tuple[Json, ...] = ()
    ports: tuple[Json, ...] = ()
    spec: Mapping[str, Any] | None = None

    def pod(self, name: str, side: str) -> Json:
        document = pod_object(
            f"{side}-{name}",
            namespace=NAMESPACE,
            cpu=self.cpu,
            memory=self.memory,
            gpu=self.gpu,
            scheduler_name=SIDES[side],
            node_selector={"side": side, **(self.selector or {})},
            tolerations=self.tolerations,
        )
        document["spec"] |= on_side(self.spec or {}, side)
        if self.ports:
            document["spec"]["containers"][0]["ports"] = list(self.ports)
        return document


def on_side(value: Any, side: str) -> Any:
    """Add the side to every name of a node."""
    match value:
        case str():
            return value.replace("SIDE", side)
        case dict():
            return {key: on_side(one, side) for key, one in value.items()}
        case list():
            return [on_side(one, side) for one in value]
        case _:
            return value


ML = tolerates("dedicated", "ml", "NoSchedule")
CASES = {
    "plain": Case(fits=True),
    "nothing-asked": Case(fits=True, cpu="", memory=""),
    "too-much-cpu": Case(fits=False, cpu="33"),
    "cpu-of-the-tainted-node": Case(fits=False, cpu="12", selector={"generation": "3", "zone": "b"}, gpu=5),
    "too-much-memory": Case(fits=False, memory="20Gi"),
    "too-much-of-both": Case(fits=False, cpu="64", memory="64Gi"),
    "all-gpus-and-more": Case(fits=False, gpu=5),
    "some-gpus": Case(fits=True, gpu=2),
    "gpus-in-the-wrong-zone": Case(fits=False, gpu=1, selector={"zone": "a"}),
    "unknown-label": Case(fits=False, selector={"disk": "tape"}),
    "known-label": Case(fits=True, selector={"disk": "ssd"}),
    "only-the-small-node": Case(fits=True, selector={"disk": "hdd"}),
    "too-large-for-the-small-node": Case(fits=False, cpu="2", selector={"disk": "hdd"}),
    "only-the-tainted-node": Case(fits=False, cpu="10", selector={"zone": "b", "generation": "3"}, memory="30Gi"),
    "tolerated-taint": Case(fits=True, cpu="10", selector={"zone": "b"}, tolerations=(ML,)),
    "toleration-of-another-value": Case(
        fits=False, gpu=0, cpu="10", memory="17Gi", tolerations=(tolerates("dedicated", "web", "NoSchedule"),)
    ),
    "toleration-of-the-key": Case(
        fits=True, cpu="12", selector={"zone": "b"}, tolerations=(tolerates("dedicated", operator="Exists"),)
    ),
    "toleration-of-everything": Case(fits=True, tolerations=(tolerates(operator="Exists"),)),
    "toleration-of-everything-but-too-large": Case(fits=False, cpu="40", tolerations=(tolerates(operator="Exists"),)),
    "toleration-of-half-a-taint": Case(
        fits=False, spec=terms(expression("kubernetes.io/hostname", "In", "SIDE-shy")), tolerations=(ML,)
    ),
    "toleration-of-no-execute": Case(
        fits=True,
        spec=terms(expression("kubernetes.io/hostname", "In", "SIDE-shy")),
        tolerations=(tolerates("gone", effect="NoExecute", operator="Exists"),),
    ),
    "cordoned-node": Case(fits=False, spec=terms(expression("kubernetes.io/hostname", "In", "SIDE-cordoned"))),
    "expression-in": Case(
        fits=True, spec=terms(expression("zone", "In", "b", "c"), expression("accelerator", "Exists"))
    ),
    "expression-not-in": Case(fits=True, spec=terms(expression("zone", "NotIn", "b"))),
    "expression-does-not-exist": Case(fits=False, spec=terms(expression("disk", "DoesNotExist"))),
    "expression-greater": Case(fits=True, spec=terms(expression("generation", "Gt", "2"))),
    "expression-less-than-any": Case(fits=False, spec=terms(expression("generation", "Lt", "1"))),
    "bound-of-text": Case(fits=False, spec=terms(expression("generation", "Gt", "many"))),
    "bound-without-text": Case(fits=False, spec=terms(expression("generation", "Lt", ""))),
    "bound-of-a-fraction": Case(fits=False, spec=terms(expression("generation", "Lt", "9.5"))),
    "bound-of-more-than-64-bits": Case(fits=False, spec=terms(expression("generation", "Lt", "9223372036854775808"))),
    "bound-of-64-bits": Case(fits=True, spec=terms(expression("generation", "Lt", "9223372036854775807"))),
    "bound-of-zeros": Case(fits=True, spec=terms(expression("generation", "Lt", "0" * 40 + "9"))),
    "bound-of-text-beside-another-term": Case(
        fits=True, spec=either(expression("generation", "Gt", "many"), expression("disk", "In", "ssd"))
    ),
    "preferred-bound-of-text": Case(
        fits=False, spec=prefers(expression("disk", "In", "ssd"), expression("generation", "Gt", "many"))
    ),
    "preferred-bound-below-zero-where-one-node-fits": Case(
        fits=True, selector={"disk": "hdd"}, spec=prefers(expression("generation", "Gt", "-5"))
    ),
    "preferred-bound-of-text-where-one-node-fits": Case(
        fits=True, selector={"disk": "hdd"}, spec=prefers(expression("generation", "Gt", "many"))
    ),
    "preferred-bound-of-text-where-no-node-fits": Case(
        fits=False, cpu="33", spec=prefers(expression("generation", "Gt", "many"))
    ),
    "field-of-the-name": Case(fits=True, spec=terms(fields=(expression("metadata.name", "In", "SIDE-plain"),))),
    "field-of-no-name": Case(fits=False, spec=terms(fields=(expression("metadata.name", "In", "SIDE-none"),))),
    "field-of-a-tainted-name": Case(
        fits=False, spec=terms(fields=(expression("metadata.name", "In", "SIDE-tainted"),))
    ),
    "field-of-another-zone": Case(
        fits=False,
        spec=terms(expression("zone", "In", "b"), fields=(expression("metadata.name", "In", "SIDE-plain"),)),
    ),
    "port-that-is-free": Case(fits=True, ports=(port(9000),)),
    "port-that-is-taken": Case(fits=False, selector={"accelerator": "a100"}, ports=(port(8080),)),
    "port-of-another-protocol": Case(fits=True, selector={"accelerator": "a100"}, ports=(port(8080, protocol="UDP"),)),
    "port-on-an-address": Case(fits=False, selector={"accelerator": "a100"}, ports=(port(8080, hostIP="127.0.0.1"),)),
    "init-container-larger-than-the-rest": Case(
        fits=False,
        spec={"initContainers": [{"name": "init", "image": "i", "resources": {"requests": {"cpu": "33"}}}]},
    ),
}


def minor_version(plane: ControlPlane) -> int:
    return int(plane.api("GET", "/version").body["minor"])


def without_new_words(sentence: str) -> str:
    """Return the reasons with one sum for all taints, sorted, without the clause on preemption."""
    counts: dict[str, int] = {}
    reasons = sentence.partition("preemption: ")[0].partition(": ")[2].rstrip(". ")
    for one in filter(None, reasons.split(", ")):
        count, _, reason = TAINTS.sub(r"\1 \2s", one).partition(" ")
        counts[reason] = counts.get(reason, 0) + int(count)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))


@dataclass(frozen=True)
class Verdict:
    """The result of a pod: whether it is bound, else the reasons of the nodes and of preemption."""

    bound: bool
    sentence: str


Verdicts = dict[str, dict[str, Verdict]]


@pytest.fixture(scope="module")
def verdicts(control_plane: ControlPlane) -> Verdicts:
    """Return side -> case -> verdict of one run of both schedulers."""
    install(control_plane)
    create_namespace(control_plane, NAMESPACE)
    names = {f"{side}-{name}": (side, name) for side in SIDES for name in CASES}
    for side in SIDES:
        create_nodes(control_plane, nodes(side))
        taken = Case(fits=True, ports=(port(8080),)).pod("taken", side)
        taken["spec"]["nodeName"] = f"{side}-gpu"
        create_pods(control_plane, NAMESPACE, [taken])
    try:
        with History(control_plane) as history, Daemon(control_plane) as daemon:
            daemon.start()
            control_plane.start_kube_scheduler()
            for name, case in CASES.items():
                create_pods(control_plane, NAMESPACE, [case.pod(name, side) for side in SIDES])
            refused: dict[str, str] = {}

            def judged() -> bool:
                refused.update(events(control_plane, NAMESPACE, "FailedScheduling"))
                return names.keys() <= {*refused, *history.bound(NAMESPACE)}

            history.wait_until(judged, "a verdict on every pod", VERDICT_SECONDS)
            bound = history.bound(NAMESPACE)
    finally:
        control_plane.kill("kube-scheduler")
        sweep(control_plane)
    old = minor_version(control_plane) < WORDS_SINCE
    found: Verdicts = {side: {} for side in SIDES}
    for full, (side, name) in names.items():
        sentence = "" if full in bound else WITHOUT_CLAIMS.sub("", refused[full]).removeprefix(OUR_POOL)
        found[side][name] = Verdict(full in bound, without_new_words(sentence) if old and sentence else sentence)
    return found


@pytest.mark.parametrize("name", CASES)
def test_both_schedulers_agree_on_the_nodes_that_fit_and_on_the_messages(
    control_plane: ControlPlane, verdicts: Verdicts, name: str
) -> None:
    ours, theirs = verdicts["ours"][name], verdicts["theirs"][name]
    assert ours.bound == theirs.bound == CASES[name].fits
    if minor_version(control_plane) >= WORDS_SINCE or not name.startswith("field-"):
        assert ours.sentence == theirs.sentence
