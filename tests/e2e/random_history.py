"""Random changes of everything that a scheduler reads: pools, nodes, pods, gangs, budgets, and policies that refuse.

Invariants:
- Random choices come from the seed of the run; the timing of the API server does not.
- Kubelets run beside it. A pod with the label `replaced` has a successor when it is gone and had not finished.
- The pods of one gang have one priority, and no budget selects them.
"""

from collections.abc import Callable
from typing import Final

from aischeduler.model.gang import GANG_KEY
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import POOLS_PATH, create_namespace, create_nodes, create_pods, create_pools, create_priority
from tests.e2e.record import Record
from tests.e2e.refusals import REASONS, REFUSED, Refusals
from tests.e2e.rules import POOL, finished, pool_named
from tests.gang_objects import gang_labels, indexed_job_object
from tests.objects import Json, node_object, pdb_object, pod_object, pool_object
from tests.seeds import random

POOLS: Final = ("red", "blue", "green", "grey")
NODES_EACH: Final = 3
NODE_CPU, NODE_GPUS = 8, 4
WITH_GPUS: Final = "green"
NODES_MAX, POOLS_MAX = 24, 8
PODS_MAX: Final = 100
"""With more pods the next changes only end some."""
APPS: Final = ("a", "b", "c")
BUDGETS_MAX: Final = 4
LABEL: Final = "history.example/pool"
REPLACED: Final = "history.example/replaced"
PRIORITIES: Final = ("", "", "p5", "p10")
SUCCEEDED: Final = {"status": {"phase": "Succeeded"}}
AT_ONCE: Final = {"gracePeriodSeconds": 0}
KEPT: Final = ("schedulerName", "restartPolicy", "containers", "priorityClassName")
"""The fields of the spec that a successor has too."""

Deed = Callable[[], None]


class RandomHistory:
    """Makes random changes in two namespaces; policies refuse in the second."""

    def __init__(self, plane: ControlPlane, namespace: str, refusals: Refusals) -> None:
        self.namespaces = (namespace, f"{namespace}-refused")
        self.steps = 0
        self._plane, self._refusals = plane, refusals
        self._chance = random("history")
        self._record: Record | None = None
        self._replaced = 0
        self._count = 0
        self._deeds: dict[Deed, int] = {
            self._new_pods: 8,
            self._new_replaced_pods: 5,
            self._new_gang: 4,
            self._new_job: 2,
            self._end_pods: 7,
            self._delete_pods: 4,
            self._delete_gang: 1,
            self._delete_jobs: 1,
            self._edit_pool: 3,
            self._turn_selector: 1,
            self._new_pool: 1,
            self._delete_pool: 1,
            self._move_node: 1,
            self._new_node: 1,
            self._delete_node: 1,
            self._cordon: 2,
            self._uncordon: 3,
            self._new_budget: 1,
            self._delete_budget: 1,
            self._refuse: 1,
            self._allow: 1,
        }

    def begin(self) -> None:
        """Set up pools, nodes and priorities."""
        for name in ("p5", "p10"):
            create_priority(self._plane, f"{name}-{self.namespaces[0]}", int(name[1:]))
        create_namespace(self._plane, self.namespaces[1])
        create_pools(self._plane, pool_object("default"), *(pool_object(name, labels=_of(name)) for name in POOLS))
        create_nodes(self._plane, [self._node(pool) for pool in (*POOLS, "default") for _ in range(NODES_EACH)])

    def follow(self, record: Record) -> None:
        """Choose pods, nodes and pools from this record from now on."""
        self._record, self._replaced = record, 0

    def step(self) -> None:
        """Make one change, and create the successors that are due."""
        self.steps += 1
        self._replace()
        deeds = self._deeds
        if len(self.pods()) > PODS_MAX:
            deeds = {self._end_pods: 3, self._delete_pods: 2, self._delete_gang: 2, self._delete_jobs: 1}
        self._chance.choices(list(deeds), list(deeds.values()))[0]()

    def calm_down(self) -> None:
        """End all refusals, open every node, and create the last successors."""
        self._refusals.allow_all()
        for name, node in self._now("nodes").items():
            if node["spec"].get("unschedulable"):
                self._patch(f"/api/v1/nodes/{name[1]}", {"spec": {"unschedulable": None}})
        self._replace()

    def pods(self) -> list[Json]:
        """Return the pods of the history that have not finished."""
        pods = self._now("pods").values()
        return [one for one in pods if one["metadata"]["namespace"] in self.namespaces and not finished(one)]

    def _new_pods(self) -> None:
        namespace, pool, priority = self._any_namespace(), self._any_pool(), self._chance.choice(PRIORITIES)
        for _ in range(self._chance.choice((1, 1, 2, 5))):
            self._create(self._pod(namespace, pool, priority))

    def _new_replaced_pods(self) -> None:
        namespace, pool, priority = self._any_namespace(), self._any_pool(), self._chance.choice(PRIORITIES)
        labels = {REPLACED: "yes", "app": self._chance.choice(APPS), "also": self._chance.choice(APPS)}
        for _ in range(self._chance.choice((1, 2, 3))):
            self._create(self._pod(namespace, pool, priority, labels))

    def _new_gang(self) -> None:
        chance, namespace, pool = self._chance, self._any_namespace(), self._any_pool()
        size, priority, alike = chance.randrange(2, 7), chance.choice(PRIORITIES), chance.random() < 0.5
        self._count += 1
        labels = gang_labels(f"gang-{self._count}", str(chance.randrange(2, size + 1)))
        pods = [self._pod(namespace, pool, priority, labels) for _ in range(size)]
        for pod in pods:
            if alike:
                pod["spec"]["containers"] = pods[0]["spec"]["containers"]
            self._create(pod)

    def _new_job(self) -> None:
        chance, namespace = self._chance, self._any_namespace()
        self._count += 1
        job = indexed_job_object(
            f"job-{self._count}",
            namespace=namespace,
            pods=chance.randrange(2, 6),
            cpu=chance.choice("124"),
            template_annotations={POOL: self._any_pool() or "default"},
        )
        spec = job["spec"]["template"]["spec"]
        spec["containers"][0]["resources"]["requests"]["memory"] = "64Mi"
        if priority := chance.choice(PRIORITIES):
            spec["priorityClassName"] = f"{priority}-{self.namespaces[0]}"
        assert self._plane.api("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job).status == 201

    def _end_pods(self) -> None:
        """Let some running pods finish."""
        running = [pod for pod in self.pods() if pod["status"].get("phase") == "Running" and not _leaving(pod)]
        for pod in self._some(running, 6):
            answer = self._plane.api("PATCH", f"{_path(pod)}/status", SUCCEEDED)
            assert answer.status in (200, 404), answer.body

    def _delete_pods(self) -> None:
        for pod in self._some(self.pods(), 3):
            self._delete(_path(pod), graceful=bool(pod["spec"].get("nodeName")))

    def _delete_gang(self) -> None:
        gangs = sorted({(_namespace(pod), gang) for pod in self.pods() if (gang := _gang_label(pod))})
        if gangs:
            namespace, gang = self._chance.choice(gangs)
            for pod in self.pods():
                if (_namespace(pod), _gang_label(pod)) == (namespace, gang):
                    self._delete(_path(pod), graceful=bool(pod["spec"].get("nodeName")))

    def _delete_jobs(self) -> None:
        """Delete a Job, and finished pods that no Job owns."""
        jobs = [
            f"/apis/batch/v1/namespaces/{namespace}/jobs/{job['metadata']['name']}?propagationPolicy=Background"
            for namespace in self.namespaces
            for job in self._plane.api("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs").body["items"]
        ]
        if jobs:
            self._delete(self._chance.choice(jobs))
        for pod in self._now("pods").values():
            if _namespace(pod) in self.namespaces and finished(pod) and "ownerReferences" not in pod["metadata"]:
                self._delete(_path(pod), graceful=False)

    def _edit_pool(self) -> None:
        chance = self._chance
        spec: Json = {
            "disablePreemption": chance.random() < 0.15,
            "disableSharing": chance.random() < 0.25,
            "disableBorrowing": chance.random() < 0.2,
            "lendingLimit": chance.choice((None, {"cpu": str(chance.randrange(1, 16))})),
            "borrowingLimit": chance.choice((None, {"cpu": str(chance.randrange(1, 16))})),
            "reclaimPolicy": chance.choice(("OnDemand", "Evict")),
        }
        self._patch(f"{POOLS_PATH}/{self._any_pool() or 'default'}", {"spec": spec})

    def _turn_selector(self) -> None:
        """Let a pool select its own nodes, or those of another pool, so that nodes may be selected twice."""
        pool = self._any_pool()
        if pool:
            wanted = pool if self._chance.random() < 0.7 else self._chance.choice(POOLS)
            self._patch(f"{POOLS_PATH}/{pool}", {"spec": {"nodeSelector": {"matchLabels": _of(wanted)}}})

    def _new_pool(self) -> None:
        names = [name for _, name in self._now("pools")]
        gone = [name for name in POOLS if name not in names]
        if len(names) < POOLS_MAX:
            self._count += 1
            name = self._chance.choice([*gone, f"new-{self._count}"])
            self._plane.api("POST", POOLS_PATH, pool_object(name, labels=_of(name)))

    def _delete_pool(self) -> None:
        if pool := self._any_pool():
            self._delete(f"{POOLS_PATH}/{pool}")

    def _new_node(self) -> None:
        if len(self._now("nodes")) < NODES_MAX:
            create_nodes(self._plane, [self._node(self._any_pool())])

    def _move_node(self) -> None:
        self._patch(f"/api/v1/nodes/{self._any_node()}", {"metadata": {"labels": _of(self._any_pool())}})

    def _delete_node(self) -> None:
        """Delete a node, and its pods as a cloud's controller does; another node joins the same pool."""
        name = self._any_node()
        label = self._now("nodes").get(("", name), {"metadata": {"labels": {}}})["metadata"]["labels"].get(LABEL, "")
        self._delete(f"/api/v1/nodes/{name}")
        create_nodes(self._plane, [self._node(label)])
        for pod in self._now("pods").values():
            if pod["spec"].get("nodeName") == name:
                self._delete(_path(pod), graceful=False)

    def _cordon(self) -> None:
        self._patch(f"/api/v1/nodes/{self._any_node()}", {"spec": {"unschedulable": True}})

    def _uncordon(self) -> None:
        closed = sorted(name for (_, name), node in self._now("nodes").items() if node["spec"].get("unschedulable"))
        if closed:
            self._patch(f"/api/v1/nodes/{self._chance.choice(closed)}", {"spec": {"unschedulable": None}})

    def _new_budget(self) -> None:
        if len(self._now("poddisruptionbudgets")) < BUDGETS_MAX:
            self._count += 1
            namespace, chance = self._any_namespace(), self._chance
            labels = {chance.choice(("app", "also")): chance.choice(APPS)}
            least = chance.choice((0, 1, 1, 2))
            document = pdb_object(f"b{self._count}", namespace=namespace, min_available=least, labels=labels)
            path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
            assert self._plane.api("POST", path, document).status == 201

    def _delete_budget(self) -> None:
        budgets = sorted(self._now("poddisruptionbudgets"))
        if budgets:
            namespace, name = self._chance.choice(budgets)
            self._delete(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}")

    def _refuse(self) -> None:
        free = sorted(REFUSED.keys() - self._refusals.in_force())
        if free:
            self._refusals.refuse(self._chance.choice(free), self.namespaces[1], self._chance.choice(REASONS))

    def _allow(self) -> None:
        if self._refusals.in_force():
            self._refusals.allow(self._chance.choice(sorted(self._refusals.in_force())))

    def _replace(self) -> None:
        """Create a successor of each newly gone pod that has one."""
        assert self._record is not None, "it follows no record"
        changes = self._record.changes["pods"]
        end = len(changes)
        gone = [one.document for one in changes[self._replaced : end] if one.gone]
        self._replaced = end
        for pod in gone:
            due = pod["metadata"].get("labels", {}).get(REPLACED) and not finished(pod)
            if due and len(self.pods()) <= PODS_MAX:
                self._count += 1
                self._create(_successor(pod, f"next-{self._count}"))

    def _pod(self, namespace: str, pool: str, priority: str, labels: dict[str, str] | None = None) -> Json:
        self._count += 1
        return pod_object(
            f"{pool or 'default'}-{self._count}",
            namespace=namespace,
            cpu=self._chance.choice(("500m", "1", "1", "2", "2", "3", "4", "8")),
            memory="64Mi",
            gpu=self._chance.choice((0, 0, 1, 2)) if pool == WITH_GPUS else 0,
            pool=pool,
            priority_class=f"{priority}-{self.namespaces[0]}" if priority else "",
            labels=labels or {},
        )

    def _node(self, pool: str) -> Json:
        self._count += 1
        gpu = NODE_GPUS if pool == WITH_GPUS else 0
        return node_object(f"node-{self._count:04d}", cpu=str(NODE_CPU), gpu=gpu, labels=_of(pool))

    def _some(self, pods: list[Json], most: int) -> list[Json]:
        ordered = sorted(pods, key=lambda pod: (_namespace(pod), pod["metadata"]["name"]))
        return self._chance.sample(ordered, min(len(ordered), self._chance.randrange(1, most + 1)))

    def _any_namespace(self) -> str:
        return self._chance.choice(self.namespaces)

    def _any_pool(self) -> str:
        """Return the name of a pool; empty for the default pool."""
        names = sorted(name for _, name in self._now("pools"))
        name = self._chance.choice(names)
        return "" if name == "default" else name

    def _any_node(self) -> str:
        return self._chance.choice(sorted(name for _, name in self._now("nodes")))

    def _now(self, plural: str) -> dict[tuple[str, str], Json]:
        assert self._record is not None, "it follows no record"
        return self._record.now(plural)

    def _create(self, pod: Json) -> None:
        create_pods(self._plane, pod["metadata"]["namespace"], [pod])

    def _patch(self, path: str, change: Json) -> None:
        answer = self._plane.api("PATCH", path, change)
        assert answer.status in (200, 404), answer.body

    def _delete(self, path: str, *, graceful: bool = True) -> None:
        answer = self._plane.api("DELETE", path, None if graceful else AT_ONCE)
        assert answer.status in (200, 202, 404), answer.body


def _successor(pod: Json, name: str) -> Json:
    """Return the pod that a controller creates after this one."""
    metadata = {key: pod["metadata"][key] for key in ("namespace", "labels")}
    metadata |= {"name": name, "annotations": {POOL: pool_named(pod) or "default"}}
    spec = {key: value for key, value in pod["spec"].items() if key in KEPT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _of(pool: str) -> dict[str, str]:
    return {LABEL: pool or "default"}


def _namespace(pod: Json) -> str:
    return str(pod["metadata"]["namespace"])


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{_namespace(pod)}/pods/{pod['metadata']['name']}"


def _gang_label(pod: Json) -> str:
    return str(pod["metadata"].get("labels", {}).get(GANG_KEY, ""))


def _leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]
