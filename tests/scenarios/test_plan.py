"""A plan, made from lists of the API server, equals what the scheduler then does."""

from http import HTTPStatus

import msgspec

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.analysis.plan import UnitPlan, UnitVerdict, plan
from aischeduler.cli.documents import Document
from aischeduler.cli.plan_documents import Variant, change_of, plan_input
from aischeduler.engine.profile import default_profile
from aischeduler.kube.watch.cluster_lister import PRIORITY_CLASSES, resources
from aischeduler.model.events import Event
from aischeduler.model.names import POOL_KEY
from tests.api_contract.world import Call, Json
from tests.gang_objects import gang_labels, indexed_job_object
from tests.objects import job_object, pod_object
from tests.scenarios.stage import Stage


def snapshot_of(stage: Stage) -> ClusterSnapshot:
    """Return the cluster as it is once the scheduler has nothing to do."""
    stage.settle()
    stage.stays(lambda: True)
    events: list[Event] = []
    for resource in resources():
        query = f"?fieldSelector={resource.field_selector}" if resource.field_selector else ""
        items = _items(stage, f"{resource.path}{query}", needed=resource.needed)
        found = (msgspec.json.encode(item) for item in items)
        events += [event for item in found for event in resource.read(item)]
    classes = [PriorityClass(one["metadata"]["name"], one["value"]) for one in _items(stage, PRIORITY_CLASSES)]
    return ClusterSnapshot(1_767_225_600, tuple(events), tuple(classes))


def _items(stage: Stage, path: str, *, needed: bool = True) -> list[Json]:
    answer = stage._environment.request(Call("GET", path))
    if not needed and answer.status == HTTPStatus.NOT_FOUND:
        return []
    found: list[Json] = answer.body["items"]
    return found


def planned(stage: Stage, *documents: Json, without: tuple[str, ...] = ()) -> list[UnitPlan]:
    """Return the plan of these documents."""
    snapshot = snapshot_of(stage)
    given = plan_input([Document("f", str(number), body) for number, body in enumerate(documents, 1)])
    copy = ClusterCopy(default_profile(), snapshot)
    made = plan(copy, change_of(given, snapshot, Variant(), without))
    assert (made.notes, made.at_rest) == ((), True)
    return list(made.units)


def a_pod(stage: Stage, name: str, *, cpu: str, pool: str, priority: int = 0) -> Json:
    klass = stage.priority_class(priority) if priority else ""
    return pod_object(
        name, namespace=stage.own("ns"), cpu=cpu, memory="64Mi", pool=stage.own(pool), priority_class=klass
    )


def create(stage: Stage, document: Json) -> None:
    """Create a pod of the namespace `ns`."""
    stage._namespaces[document["metadata"]["name"]] = "ns"
    stage.create(document)


def plain(stage: Stage, made: UnitPlan) -> dict[str, str]:
    """Return the nodes of the planned pods by the names that the scenario has for them."""
    return {pod: node.removeprefix(stage.own("")) for pod, node in made.nodes.items()}


def two_pools(stage: Stage) -> None:
    """Pool a has a node with a pod of low priority, pool b has an idle node."""
    stage.node("a1", pool="a")
    stage.node("b1", pool="b", cpu="3")
    stage.pools("a", "b")
    stage.pod("low", pool="a", cpu="3")
    stage.runs("low")


def test_pods_start_borrow_and_wait_as_planned(stage: Stage) -> None:
    two_pools(stage)
    documents = [a_pod(stage, f"p{cpu}", cpu=cpu, pool="a") for cpu in ("1", "2", "9")]
    starts, borrows, waits = planned(stage, *documents)
    assert [one.verdict for one in (starts, borrows, waits)] == [
        UnitVerdict.STARTS,
        UnitVerdict.BORROWS,
        UnitVerdict.WAITS,
    ]
    for document in documents:
        create(stage, document)
    stage.until(lambda: stage.why("p9") != "")
    stage.stays(lambda: True)
    assert {"p1": stage.node_of("p1")} == plain(stage, starts)
    assert {"p2": stage.node_of("p2")} == plain(stage, borrows)
    assert borrows.lenders == {"p2": stage.own("b")}
    assert stage.node_of("p9") == ""
    assert stage.victims() == []


def test_pods_are_evicted_as_planned(stage: Stage) -> None:
    two_pools(stage)
    document = a_pod(stage, "high", cpu="4", pool="a", priority=10)
    (made,) = planned(stage, document)
    assert (made.verdict, made.evicts) == (UnitVerdict.EVICTS, (f"{stage.own('ns')}/low",))
    create(stage, document)
    stage.until(lambda: stage.node_of("high") != "")
    assert {"high": stage.node_of("high")} == plain(stage, made)
    assert stage.victims() == ["low"]


def test_pods_of_a_job_start_where_planned(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="2")
    stage.node("a2", pool="a", cpu="3")
    stage.pools("a")
    document = job_object("j", namespace=stage.own("ns"), completions=4, parallelism=4, pool=stage.own("a"))
    (made,) = planned(stage, document)
    assert made.verdict is UnitVerdict.STARTS
    stage.create(document)
    stage.until(lambda: len(nodes_of_job(stage)) == 4)
    assert nodes_of_job(stage) == sorted(plain(stage, made).values())


def a_gang(stage: Stage, name: str, pods: int, *, priority: int = 0) -> Json:
    """Return an annotated Job of pool a, of so many pods of one CPU."""
    pool = {POOL_KEY: stage.own("a")}
    document = indexed_job_object(name, namespace=stage.own("ns"), pods=pods, template_annotations=pool)
    if priority:
        document["spec"]["template"]["spec"]["priorityClassName"] = stage.priority_class(priority)
    return document


def test_gangs_start_whole_or_wait_whole_as_planned(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="2")
    stage.pools("a")
    documents = [a_gang(stage, "big", 3), a_gang(stage, "small", 2)]
    waits, starts = planned(stage, *documents)
    assert (waits.verdict, dict(waits.nodes)) == (UnitVerdict.WAITS, {})
    assert "0 of the 3 pods that start together fit" in waits.waits_for
    assert (starts.verdict, len(starts.nodes)) == (UnitVerdict.STARTS, 2)
    for document in documents:
        stage.create(document)
    stage.until(lambda: stage.jobs_nodes("small") == {"a1": 2})
    stage.stays(lambda: stage.bound("big") == 0)


def test_gang_evicts_a_whole_gang_as_planned(stage: Stage) -> None:
    stage.node("a1", pool="a", cpu="2")
    stage.pools("a")
    stage.pods("low-0", "low-1", pool="a", labels=gang_labels("low"))
    stage.runs("low-0", "low-1")
    document = a_gang(stage, "high", 2, priority=10)
    (made,) = planned(stage, document)
    assert (made.verdict, sorted(made.evicts)) == (UnitVerdict.EVICTS, [f"{stage.own('ns')}/low-{n}" for n in (0, 1)])
    stage.create(document)
    stage.until(lambda: stage.jobs_nodes("high") == {"a1": 2})
    assert sorted(stage.victims()) == ["low-0", "low-1"]


def nodes_of_job(stage: Stage) -> list[str]:
    found = [pod["spec"].get("nodeName", "") for pod in stage.all_pods()]
    return sorted(node for node in found if node)
