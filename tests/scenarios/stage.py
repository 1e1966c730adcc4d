"""The methods of scenarios: actions of a user, expected results, and checks that nothing else happens."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from aischeduler.kube.crds import pool_crd
from aischeduler.model.elastic import MIN_INSTANCES_KEY
from aischeduler.model.gang import GANG_KEY
from aischeduler.model.names import DEFAULT_POOL
from tests.api_contract.world import MERGE_PATCH, Answer, Call, Json, encode, kind_of
from tests.daemon.cluster import schemaless_crd
from tests.objects import job_object, node_object, pdb_object, pod_object, pool_object, priority_class_object
from tests.scenarios.environment import DEFINITIONS, Environment
from tests.scenarios.kubelets import HOLD
from tests.scenarios.observations import Observations, refused

PATIENCE_SECONDS = 15.0
"""How long a scenario waits for an expected result: less than the five-minute flush, more than any backoff."""
QUIET_LOOKS = 40
"""The most checks during a time in which nothing must happen."""
GANG_KINDS = ("Job", "JobSet", "PodGroup.scheduling.volcano.sh", "PodGroup.scheduling.x-k8s.io")
"""The namespaced kinds that declare gangs."""
QUEUE_KINDS = ("Queue", "Queue.scheduling.volcano.sh")
POOL_LABEL = "stage.example/pool"
NODE_LABEL = "stage.example/node"
CLOSED = {"key": "closed", "effect": "NoSchedule"}
NOTHING: Mapping[str, str] = {}


class Stage(Observations):
    """One scenario. Cluster-scoped names have its prefix; pods are in its namespace `ns` unless another is given."""

    def __init__(self, environment: Environment, prefix: str) -> None:
        super().__init__(environment, prefix)
        self._pool_of: dict[str, str] = {}
        self._pools: dict[str, None] = {}
        self._held: dict[str, None] = {}
        self._unsettled = False
        self._sure = True
        """Whether the nodes without a pool are those of the default pool."""
        self._made: dict[str, None] = {}
        self.namespace("ns")

    # Actions of a user.

    def namespace(self, name: str, **labels: str) -> None:
        """Create a namespace with labels."""
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.own(name), "labels": labels}})

    def node(
        self,
        name: str,
        *,
        pool: str = "",
        cpu: str = "4",
        memory: str = "64Gi",
        gpu: int = 0,
        pods: int = 110,
        labels: Mapping[str, str] = NOTHING,
        taints: Sequence[Json] = (),
    ) -> None:
        """Create a node of a pool; without one it belongs to the default pool."""
        labelled = {**labels, NODE_LABEL: self.own(name)}
        if pool:
            labelled[POOL_LABEL] = self.own(pool)
        self.create(
            node_object(self.own(name), cpu=cpu, memory=memory, gpu=gpu, pods=pods, labels=labelled, taints=taints)
        )
        self._pool_of[name] = pool
        self._unsettled = True

    def pools(self, *names: str, **spec: Any) -> None:
        """Create pools that select the nodes of their name, all with these fields in their spec."""
        for name in names:
            labels = {POOL_LABEL: self.own(name)}
            self.create(pool_object(self.own(name), labels=labels, **self._spec(spec)))
            self._pools[name] = None
        self._unsettled = True

    def pod(
        self,
        name: str,
        *,
        namespace: str = "ns",
        cpu: str = "1",
        memory: str = "64Mi",
        gpu: int = 0,
        pool: str = "",
        priority: int = 0,
        never_preempts: bool = False,
        held: bool = False,
        owner: str = "",
        on: str = "",
        node: str = "",
        extended: Mapping[str, str] = NOTHING,
        **more: Any,
    ) -> None:
        """Create a pod once its pools are in force.

        A `held` pod that is deleted stays until it is released; `owner` is the kind of its controller, or KIND/NAME of
        it. `on` is the node that its selector names; with `node` it is created on that node. `extended` is what its
        container requests of further resources.
        """
        self.settle()
        klass = self.priority_class(priority, never_preempts=never_preempts) if priority or never_preempts else ""
        document = pod_object(
            name,
            namespace=self.own(namespace),
            cpu=cpu,
            memory=memory,
            gpu=gpu,
            pool=self.own(pool) if pool not in ("", "default") else pool,
            node=self.own(node) if node else "",
            **({"priority_class": klass, "node_selector": {NODE_LABEL: self.own(on)} if on else {}} | more),
        )
        if held:
            document["metadata"]["finalizers"] = [HOLD]
            self._held[name] = None
        if owner:
            document["metadata"]["ownerReferences"] = owners(owner)
        for part in ("requests", "limits") if extended else ():
            document["spec"]["containers"][0]["resources"].setdefault(part, {}).update(extended)
        self._namespaces[name] = namespace
        self.create(document)

    def pods(self, *names: str, **same: Any) -> None:
        """Create pods that differ only in their names."""
        for name in names:
            self.pod(name, **same)

    def job(self, name: str, *, priority: int = 0, pool: str = "", **more: Any) -> None:
        """Create a Job."""
        self.settle()
        document = job_object(name, namespace=self.own("ns"), pool=self.own(pool) if pool else "", **more)
        if priority:
            document["spec"]["template"]["spec"]["priorityClassName"] = self.priority_class(priority)
        self.create(document)

    def replica_set(self, name: str, *, owner: str = "", annotations: Mapping[str, str] = NOTHING) -> None:
        """Create a ReplicaSet that makes no pods itself; `owner` is KIND/NAME of its controller."""
        labels = {"app": name}
        metadata = {"name": name, "annotations": dict(annotations), "ownerReferences": owners(owner) if owner else []}
        pod = pod_object(labels=labels)
        template = {"metadata": {"labels": labels}, "spec": pod["spec"] | {"restartPolicy": "Always"}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        document = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}
        url = f"/apis/apps/v1/namespaces/{self.own('ns')}/replicasets"
        answer = self._ask(Call("POST", url, encode(document)))
        assert answer.status == 201, answer

    def service(self, name: str, **selector: str) -> None:
        """Create a Service for the pods with these labels."""
        spec = {"clusterIP": "None", "selector": selector}
        metadata = {"name": self.own(name), "namespace": self.own("ns")}
        self.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})

    def budget(self, name: str, *, min_available: int, **labels: str) -> None:
        """Create a disruption budget for the pods with these labels, and wait until its status is up to date."""
        self.create(pdb_object(name, namespace=self.own("ns"), min_available=min_available, labels=labels))
        self.until(lambda: "observedGeneration" in self.get("PodDisruptionBudget", name).get("status", {}))

    def stored_pool(self, name: str, **spec: Any) -> None:
        """Store a pool that no schema has validated."""
        self._sure = False
        document = pool_object(self.own(name), **spec)
        self._define(schemaless_crd())
        try:
            self.until(lambda: self._ask(Call("POST", self._url("Pool"), encode(document))).status == 201)
        finally:
            self._define(pool_crd())

    def set_pool(self, name: str, **spec: Any) -> None:
        """Change fields of a pool's spec; None removes a field."""
        self.patch("Pool", name, {"spec": self._spec(spec)})

    def move(self, node: str, pool: str) -> None:
        """Give a node to another pool by its label."""
        self.patch("Node", node, {"metadata": {"labels": {POOL_LABEL: self.own(pool) if pool else None}}})
        self._pool_of[node] = pool

    def patch(self, kind: str, name: str, change: Json, subresource: str = "") -> None:
        """Merge a change into an object, or with a `subresource` into its status."""
        answer = self._ask(Call("PATCH", self._url(kind, name, subresource), encode(change), MERGE_PATCH))
        assert answer.status == 200, answer

    def create(self, document: Json) -> None:
        """POST a document whose names have the prefix already."""
        namespace, kind = document["metadata"].get("namespace", ""), kind_of(document)
        url = self._url(kind)
        if namespace:
            url = url.replace(f"/namespaces/{self.own('ns')}/", f"/namespaces/{namespace}/")
        call = Call("POST", url, encode(document))
        answer = self._ask(call)
        deadline = self._environment.now() + PATIENCE_SECONDS
        while refused(answer, "no PriorityClass") and self._environment.now() < deadline:  # admission has a cache
            self._environment.pass_time()
            answer = self._ask(call)
        assert answer.status == 201, answer
        if kind in GANG_KINDS:
            self._followed[kind] = None
            self._namespaces[document["metadata"]["name"]] = "ns"
        if kind == "Job" and not {GANG_KEY, MIN_INSTANCES_KEY}.isdisjoint(document["metadata"].get("annotations", {})):
            self.record.evicted_by_write[document["metadata"]["name"]] = None
        if kind in QUEUE_KINDS:
            self._followed[kind] = None

    def delete(self, kind: str, name: str, **options: Any) -> None:
        """Delete an object."""
        answer = self._ask(Call("DELETE", self._url(kind, name), encode(options)))
        assert answer.status in {200, 202}, answer
        if kind == "Pool":
            self._pools.pop(name, None)
        if kind == "Node":
            self._pool_of.pop(name, None)

    def taint(self, node: str) -> None:
        """Taint a node."""
        self.patch("Node", node, {"spec": {"taints": [CLOSED]}})

    def untaint(self, node: str) -> None:
        """Remove the taint of a node."""
        self.patch("Node", node, {"spec": {"taints": None}})

    def allocatable(self, node: str, **amounts: str) -> None:
        """Change the allocatable amounts of a node."""
        self.patch("Node", node, {"status": {"capacity": amounts, "allocatable": amounts}}, "status")

    def release(self, *pods: str) -> None:
        """Remove the finalizer of deleted pods that were held."""
        for pod in pods:
            del self._held[pod]
            self.patch("Pod", pod, {"metadata": {"finalizers": None}})

    def restart_scheduler(self, **settings: object) -> None:
        """Kill the scheduler and start another one with this configuration."""
        self._environment.restart_scheduler(**settings)

    # Expected results, and checks that nothing else happens.

    def until(self, claim: Callable[[], bool]) -> None:
        """Let time pass until the claim holds."""
        deadline = self._environment.now() + PATIENCE_SECONDS
        while not claim():
            assert self._environment.now() < deadline, f"not within {PATIENCE_SECONDS:.0f} s\n{self.report()}"
            self._environment.pass_time()
            self.record.look()

    def until_each(self, names: Iterable[str], claim: Callable[[str], bool]) -> None:
        """Let time pass until the claim holds for each of these names."""
        for name in names:
            self.until(partial(claim, name))

    def stays(self, claim: Callable[[], bool]) -> None:
        """Let time pass in which the claim always holds.

        The time lasts until the scheduler has observed all changes and has nothing left to try, now or after a backoff,
        and then for `quiet_seconds` of the environment.
        """
        seen, end = self.seen(), None
        deadline = self._environment.now() + PATIENCE_SECONDS
        while end is None or self._environment.scheduler_now() < end:
            assert claim(), f"held no longer\n{self.report()}"
            if end is None and self._environment.rests(seen):
                end = self._environment.scheduler_now() + self._environment.quiet_seconds
            assert end or self._environment.now() < deadline, f"the scheduler does not come to rest\n{self.report()}"
            self._environment.pass_time(self._environment.quiet_seconds / QUIET_LOOKS)
        self.record.look()
        assert claim(), f"held no longer\n{self.report()}"

    def heeded(self, pool: str) -> None:
        """Wait until the scheduler reports that the pool's present spec is in force."""
        generation = self.get("Pool", pool)["metadata"]["generation"]
        self.until(lambda: self.condition(pool, "Accepted").get("observedGeneration") == generation)

    def goes(self, **nodes: str) -> None:
        """Wait until each of these pods is on its node."""
        for pod, node in nodes.items():
            name = pod.replace("_", "-")
            self.until_each([name], lambda one: self.node_of(one) != "")
            assert self.node_of(name) == node, f"{name} is on {self.node_of(name)}, not {node}\n{self.report()}"

    def waits(self, pod: str, *parts: str) -> None:
        """Wait until the pod waits with a reason that has these parts, and check that it keeps waiting."""
        self.until(lambda: all(part in self.why(pod) for part in parts) and self.why(pod) != "")
        self.stays(lambda: self.node_of(pod) == "")

    def evicts(self, *pods: str) -> None:
        """Wait until these pods are evicted, in any order, and check that no others are."""
        self.until(lambda: len(self.victims()) >= len(pods))
        assert sorted(self.victims()) == sorted(pods), self.report()

    def runs(self, *pods: str) -> None:
        """Wait until these pods run on a node."""
        self.until_each(pods, lambda pod: self.phase(pod) == "Running")

    def goes_away(self, pod: str) -> None:
        """Wait until the pod is gone."""
        self.until(lambda: not self.get("Pod", pod))

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        self._environment.pass_time(seconds)
        self.record.look()

    def settle(self) -> None:
        """Wait until the scheduler has seen every pool and its nodes."""
        if self._unsettled:
            self._unsettled = False
            homes = list(self._pool_of.values())
            due = {self.own(pool): homes.count(pool) for pool in self._pools}
            if self._sure and all(pool in self._pools for pool in homes if pool):
                due[DEFAULT_POOL] = homes.count("")
            self.until(lambda: due.items() <= self._environment.nodes_of_pools().items())

    def end(self) -> None:
        """Release held pods, complete the record and check it."""
        self.until(lambda: self.record.has_seen([*self.all_pods(), *self.all("Node")]))
        found = self.record.judge()
        report = self.report()
        for pod in list(self._held):
            if self.get("Pod", pod):
                self.release(pod)
        self.record.close()
        assert found == [], f"{found}\n{report}"
        assert self._environment.net_saves() == 0, f"the five-minute flush had to wake pods\n{report}"

    def priority_class(self, value: int, *, never_preempts: bool = False) -> str:
        """Return the priority class of this value; create it if there is none."""
        name = self.own(f"p{value}{'-never' if never_preempts else ''}".replace("p-", "minus"))
        if name not in self._made:
            self._made[name] = None
            policy = {"preemptionPolicy": "Never"} if never_preempts else {}
            self.create(priority_class_object(name, value=value) | policy)
        return name

    def _define(self, definition: Json) -> None:
        """Replace the definition of Pools."""
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"

        def replaced() -> bool:
            now = self._ask(Call("GET", path)).body
            return self._ask(Call("PUT", path, encode(now | {"spec": definition["spec"]}))).status == 200

        self.until(replaced)

    def _spec(self, spec: Mapping[str, Any]) -> Json:
        """Return fields of a pool's spec with the names of pools as the server has them."""
        named = spec.get("borrowingPools")
        mine = {} if named is None else {"borrowingPools": [self._name("Pool", name) for name in named]}
        return {**spec, **mine}

    def _ask(self, call: Call) -> Answer:
        return self._environment.request(call)


def owners(controller: str) -> list[Json]:
    """Return the owner references of an object: first one that is no controller, then this one, as KIND or KIND/NAME.

    Their API group does not exist, so that no garbage collector looks for them.
    """
    kind, _, name = controller.partition("/")
    group = {"apiVersion": "example.com/v1"}
    other = {**group, "kind": "Other", "name": "other", "uid": "1"}
    return [other, {**group, "kind": kind, "name": name or "owner", "uid": "0", "controller": True}]
