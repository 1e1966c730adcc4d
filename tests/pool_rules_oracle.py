"""A test oracle of the pool rules: it checks every action of a scheduler, and at rest every pod that still waits.

Invariants:
- It sees the events and actions of the scheduler, one by one, and none of its tables.
- It uses no code of the product except the values of events and actions.
- Callers name the pods in backoff: no event or action tells when a backoff ends.
- It iterates over all pods and nodes each time: for small clusters.
- It is silent about what it does not model: node affinity, tolerations, and pods that fit no node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import permutations

from aischeduler.model.actions import Action, Bind, Evict, EvictionCause, Nominate
from aischeduler.model.events import (
    BindRefusal,
    BindRefused,
    Event,
    EvictRefused,
    Gone,
    Seen,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.pool import GroupRule, Namespace, Pool
from aischeduler.model.selectors import Labels
from aischeduler.model.tenant_queue import TenantSettings
from aischeduler.model.topology_spread import PodSelector
from tests.affinity_oracle import AFFINITY, Reference
from tests.build import replace
from tests.device_rules import DeviceRules
from tests.elastic_oracle import ElasticOracle
from tests.gang_oracle import GangOracle
from tests.placement_oracle import is_rare, matches, may_name, suits, taken, total_of
from tests.tenant_oracle import GPU, TenantOracle

DEFAULT = "default"
CRITICAL = 2_000_000_000
FINISHED = ("Succeeded", "Failed")
ORDERED_MAX = 4
"""Up to so many Binds of one decision are looked at in every order."""
NOTHING = Pool(DEFAULT)
"""The default pool before there is one."""


def _parts(resource: str) -> int:
    """Return in how many parts one of a resource is counted."""
    return 100 if resource == GPU else 1


class Oracle:
    """Follows one scheduler from its start. Pods that `unit_of` gives a name are decided with others of that name."""

    def __init__(
        self,
        scheduler_name: str,
        *,
        preemption: bool,
        unit_of: Callable[[Pod], str] = lambda _: "",
        rare: tuple[str, ...] = (),
        groups: tuple[GroupRule, ...] = (),
        tenants: TenantSettings | None = None,
    ) -> None:
        self.tenants = TenantOracle(tenants or TenantSettings())
        self.devices = DeviceRules()
        self.tenants.share = self.devices.share
        self._unit_of, self._rare, self._groups = unit_of, rare, groups
        self._rightful: set[tuple[str, str]] = set()
        """Units and decisions that may evict them."""
        self.is_surplus: Callable[[Pod], bool] = lambda _: False
        """Says which pods of units may go for a pod of any priority; a test with such a policy sets it."""
        self._name = scheduler_name
        self._preemption = preemption
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._once: dict[str, Node] = {}
        """All nodes that there ever were, as they were last."""
        self._pools: dict[str, Pool] = {}
        self._namespaces: dict[str, Labels] = {}
        self._assumed: dict[str, str] = {}
        """Pods by uid -> the node to which they were sent and on which they are not shown yet."""
        self._asked_to_leave: set[str] = set()
        self._nominated: dict[str, str] = {}
        """Pods by uid -> the node on which room is made for them."""
        self._gangs = GangOracle(self._pods, lambda pod: bool(self._node_of(pod)), unit_of)
        self._elastic = ElasticOracle(self._pods, lambda pod: bool(self._node_of(pod)) and not self._leaves(pod))

    # What the scheduler is told, and asks for.

    def observe(self, event: Event) -> None:
        """Take note of what the scheduler is told."""
        match event:
            case Seen(Pod() as pod):
                self._pod_seen(pod)
            case Gone("Pod", (uid,)):
                self._forget(uid)
            case BindRefused(uid, refusal=BindRefusal.GONE):
                self._forget(uid)
            case BindRefused(uid):
                self._assumed.pop(uid, None)
            case EvictRefused(uid):
                self._asked_to_leave.discard(uid)
            case Seen(Node() as node):
                self._nodes[node.name] = self._once[node.name] = node
            case Gone("Node", (name,)):
                self._nodes.pop(name, None)
            case Seen(Pool() as pool):
                self._pools[pool.name] = pool
            case Gone("Pool", (name,)):
                self._pools.pop(name, None)
            case Seen(Namespace(name, labels)):
                self._namespaces[name] = labels
            case Gone("Namespace", (name,)):
                self._namespaces.pop(name, None)
            case _:
                pass
        self._gangs.observe(event)
        self.tenants.observe(event)
        self.devices.observe(event)
        self._elastic.observe(event)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.phase in FINISHED:
            self._forget(pod.uid)
            return
        known = self._pods.get(pod.uid)
        if known is not None and known.node_name and not pod.node_name:
            return  # a view from before it was bound
        self._pods[pod.uid] = pod
        if pod.node_name:
            self._assumed.pop(pod.uid, None)

    def _forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._assumed.pop(uid, None)
        self._nominated.pop(uid, None)
        self._asked_to_leave.discard(uid)

    def judge(self, actions: Iterable[Action], not_in_line: Collection[str] = ()) -> list[str]:
        """Return the rules that these actions break, one after the other; who is not in line may be overtaken."""
        found: list[str] = []
        actions = list(actions)
        binds = [action for action in actions if isinstance(action, Bind)]
        for action in actions:
            match action:
                case Bind() if action in binds:
                    together = [one for one in binds if one.decision == action.decision]
                    binds = [one for one in binds if one.decision != action.decision]
                    found += self._wrong_binds(together, not_in_line)
                case Evict(victim):
                    found += [f"{victim.name} is evicted: {why}" for why in self._wrong_eviction(action, actions)]
                    self._asked_to_leave.add(victim.uid)
                case Nominate(pod, node):
                    self._nominated[pod.uid] = node
                case _:
                    pass
        return found

    # What must not be.

    def _wrong_binds(self, binds: list[Bind], not_in_line: Collection[str]) -> list[str]:
        """Return what is wrong with the Binds of one decision, in the order in which they are least wrong."""
        found, left = list[str](), list(binds)
        while left:
            wrong = [list(self._wrong_bind(one, not_in_line)) for one in left]
            at = next((at for at, faults in enumerate(wrong) if not faults), 0)
            bind = left.pop(at)
            found += [f"{bind.pod.name} is bound to {bind.node}: {why}" for why in wrong[at]]
            self._assume(bind)
        orders = permutations(binds) if found and 1 < len(binds) <= ORDERED_MAX else ()
        return [] if any(self._is_right(order, not_in_line) for order in orders) else found

    def _is_right(self, binds: Sequence[Bind], not_in_line: Collection[str]) -> bool:
        """Say whether nothing is wrong with these Binds one after the other: a GPU may be full of the one before."""
        for bind in binds:
            del self._assumed[bind.pod.uid]
            self.devices.taken_back(bind)
        found: list[str] = []
        for bind in binds:
            found += self._wrong_bind(bind, not_in_line)
            self._assume(bind)
        return not found

    def _assume(self, bind: Bind) -> None:
        self._assumed[bind.pod.uid] = bind.node
        self.devices.given(bind)

    def _wrong_bind(self, bind: Bind, not_in_line: Collection[str]) -> Iterator[str]:
        pod, home = self._pods.get(bind.pod.uid), self._home(bind.pod)
        if pod is None or bind.node not in self._nodes:
            yield "there is no such pod, or no such node"
            return
        pool = self._pool_of(bind.node)
        if (bind.pool, bind.home_pool) != (pool, home):
            yield f"the node is of pool {pool} and the pod's home is {home}, not {bind.pool} and {bind.home_pool}"
        if self._node_of(pod) or pod.gates:
            yield "it waits for no node"
        if not self._welcome(pod):
            yield "its home takes no pods of its namespace, or it may not name its group"
        if not suits(pod.spec, self._nodes[bind.node], self._rare_in(pool)):
            yield "the type of its cards, or its machine group, is closed to the pod"
        if pool != home and self._is_kept(bind.node):
            yield f"{pool} does not lend nodes of this rare type"
        yield from self._refused(pod, bind.node, self._on(bind.node))
        yield from self.tenants.over(pod, self._nodes[bind.node], self._placed())
        if pool != home:
            yield from self._loan_refused(pod, pool)
        line = [other for other in self._waiting() if other.uid not in not_in_line]
        ahead = [other.name for other in line if self._is_ahead(other, pod)]
        own_room = self._nominated.get(pod.uid) == bind.node  # it belongs to the pod: "Claims" in docs/concepts.md
        if ahead and pool == home and not own_room:
            yield f"{ahead} are like it and come first"

    def _loan_refused(self, pod: Pod, lender: str) -> Iterator[str]:
        """Yield each rule that forbids the loan."""
        home, pool = self._pool(self._home(pod)), self._pool(lender)
        if home.invalid or pool.invalid:
            yield "a pool whose spec is refused neither borrows nor lends"
        if home.disable_borrowing:
            yield f"{home.name} does not borrow"
        if pool.disable_sharing:
            yield f"{lender} does not share"
        if home.borrowing_pools is not None and lender not in home.borrowing_pools:
            yield f"{home.name} does not borrow from {lender}"
        loans = list(self._loans())
        borrowed = [other for other, _ in loans if self._home(other) == home.name]
        lent = [other for other, other_lender in loans if other_lender == lender]
        for limit, running, name in (
            (home.borrowing_limit, borrowed, "borrowingLimit"),
            (pool.lending_limit, lent, "lendingLimit"),
        ):
            total = self._total([*running, pod])
            over = [one for one in limit if self._total([pod])[one] and total[one] > limit[one] * _parts(one)]
            if over:
                yield f"beyond the {name} of {over}"

    def _wrong_eviction(self, evict: Evict, actions: list[Action]) -> Iterator[str]:
        victim = self._pods.get(evict.victim.uid)
        if victim is None or victim.terminating or victim.uid in self._asked_to_leave:
            yield "it is gone or leaves already"
            return
        if not self._is_ours(victim) or victim.guarded or victim.priority >= CRITICAL:
            yield "it is never to be evicted"
        if name := self._unit_of(victim):  # one right to a pod of a unit is enough for all of it
            evicts = [one for one in actions if isinstance(one, Evict) and one.decision == evict.decision]
            together = [one for one in evicts if self._unit_of(one.victim) == name]
            if not all(list(self._no_right(one)) for one in together):
                self._rightful.add((name, evict.decision))
            if (name, evict.decision) in self._rightful:
                return
        yield from self._no_right(evict)

    def _no_right(self, evict: Evict) -> Iterator[str]:
        victim = self._pods[evict.victim.uid]
        pool = self._pool_of(self._node_of(victim))
        if evict.cause is EvictionCause.GANG_NOT_WHOLE:
            yield from filter(None, (self._gangs.why_whole(victim),))
        elif evict.cause in (EvictionCause.QUEUE_SHRUNK, EvictionCause.QUEUE_DRAINED):
            if not self.tenants.orders(victim, drains=evict.cause is EvictionCause.QUEUE_DRAINED):
                yield "its queue gives no such order"
        elif evict.beneficiary is not None:
            if not self._may_evict(self._pods.get(evict.beneficiary.uid, evict.beneficiary), victim, pool):
                yield f"{evict.beneficiary.name} has no right to its room"
        elif not self._loan_has_ended(victim, pool):
            yield f"{pool} still lends this room"

    def _may_evict(self, pod: Pod, victim: Pod, pool: str) -> bool:
        """Say whether a pod may have another evicted that is on a node of this pool."""
        allowed = self._preemption and not self._pool(pool).disable_preemption and pod.preempts
        mine = self._home(pod) == pool
        lower = self._gangs.priority(victim) < self._gangs.priority(pod) or self.is_surplus(victim)
        lower = lower or self._elastic.is_surplus(victim, pod)
        home = self._pool(pool)
        return allowed and mine and (self._home(victim) != pool or self.tenants.lets_go(pod, victim, home, lower=lower))

    def _loan_has_ended(self, victim: Pod, lender: str) -> bool:
        """Say whether the lender's spec takes lent room back that it allows no more."""
        pool = self._pool(lender)
        if self._home(victim) == lender or pool.reclaim_policy.value != "Evict":
            return False
        lent = [pod for pod, owner in self._loans() if owner == lender and not self._leaves(pod)]
        total, its = self._total(lent), self._total([victim])
        over = [one for one, most in pool.lending_limit.items() if total[one] > most * _parts(one) and its[one]]
        kept = self._is_kept(self._node_of(victim))
        return pool.disable_sharing or bool(pool.invalid) or bool(over) or kept

    def _total(self, pods: Iterable[Pod]) -> Counter[str]:
        """Return what pods count for in limits: of GPUs hundredths."""
        pods = list(pods)
        total = total_of(pods)
        total[GPU] = total[GPU] * _parts(GPU)
        for pod in pods:
            node = self._node_of(pod)
            total[GPU] += self.devices.share(pod, self._nodes.get(node) if node else None)
        return total

    # Who must not wait.

    def in_vain(self) -> list[str]:
        """Return who waits though it need not, in a cluster in which nothing moves any more."""
        waiting = [pod for pod in self._waiting() if self._welcome(pod)]
        return [f"{pod.name} waits and could {way}" for pod in waiting for way in self._ways(pod)]

    def _ways(self, pod: Pod) -> Iterator[str]:
        home = self._home(pod)
        for node in sorted(self._nodes):
            if not self._suits(pod.spec, node):
                continue
            pool, there = self._pool_of(node), self._on(node)
            if self.may_refuse(pod, self._nodes[node]):
                continue
            if pool == home:
                stay = [one for one in there if not self._can_be_evicted(one) or not self._may_evict(pod, one, pool)]
                if not self._refused(pod, node, there):
                    yield f"have room on {node}"
                elif not self._refused(pod, node, stay):
                    yield f"have others evicted on {node}"
            elif not self._refused(pod, node, there) and self._is_lent(node, pod):
                yield f"borrow {node} from {pool}"

    def _is_lent(self, node: str, pod: Pod) -> bool:
        """Say whether a pod of another pool may have this node, if there is room."""
        lender = self._pool_of(node)
        owners = [owner for owner in self._unplaced() if self._home(owner) == lender]
        refused = self._is_kept(node) or bool(list(self._loan_refused(pod, lender)))
        return not refused and not any(self._keeps(owner, node) for owner in owners)

    def _keeps(self, owner: Pod, node: str) -> bool:
        """Say whether a waiting pod of the lender keeps this node from being lent."""
        evicts = self._preemption and not self._pool(self._home(owner)).disable_preemption
        if evicts and self.tenants.refuses(owner, self._nodes[node], self._placed()):
            return False
        if not _is_modelled(owner.spec) or not self._suits(owner.spec, node):
            return not _is_modelled(owner.spec)
        if evicts:
            return not self._refused(owner, node, self._on(node))
        near = self._repels(owner, node, self._on(node)) != AFFINITY  # the pods from which it keeps away may leave
        return near and not self._short(replace(owner.spec, devices=None), node, [])  # whatever its devices

    def _can_be_evicted(self, pod: Pod) -> bool:
        return self._is_ours(pod) and not (pod.guarded or pod.priority >= CRITICAL or self._leaves(pod))

    # What there is.

    def _placed(self, *, once: bool = False) -> Iterator[tuple[Pod, Node | None]]:
        """Yield our pods that are on nodes, and their nodes; `once` also those that are gone, as they were."""
        on_nodes = ((pod, self._node_of(pod)) for pod in self._pods.values() if self._is_ours(pod))
        nodes = self._once if once else self._nodes
        return ((pod, nodes.get(node)) for pod, node in on_nodes if node)

    def may_refuse(self, pod: Pod, node: Node) -> bool:
        """Say whether a quota may close the node to the pod: pods may count for cards of nodes that are gone."""
        return self.tenants.refuses(pod, node, self._placed(once=True))

    def _waiting(self) -> Iterator[Pod]:
        """Yield our pods that are on no node, and may be tried for themselves."""
        return (pod for pod in self._unplaced() if not self._unit_of(pod))

    def _unplaced(self) -> Iterator[Pod]:
        """Yield our pods that are on no node, and may be tried for themselves or with their unit."""
        for pod in self._pods.values():
            if self._is_ours(pod) and not self._node_of(pod) and not pod.gates and not pod.terminating:
                yield pod

    def _is_ahead(self, other: Pod, pod: Pod) -> bool:
        """Say whether another pod, alike in all else, has its turn before this one.

        The terms of running pods may keep pods of some labels away, which others may overtake. A pod of a gang has the
        turn of its gang.
        """
        together = [pod, *(self._gangs._members(self._unit_of(pod)) if self._unit_of(pod) else ())]
        tenants = {self.tenants.kind(one) for one in (other, *together)}
        alike = self._kind(other) == self._kind(pod) and len(tenants) == 1
        return alike and other.priority > self._gangs.priority(pod) and other.uid != pod.uid

    def _kind(self, pod: Pod) -> tuple[object, ...]:
        return (pod.spec.key, self._home(pod), pod.namespace, pod.labels)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._name

    def _leaves(self, pod: Pod) -> bool:
        return pod.terminating or pod.uid in self._asked_to_leave

    def _node_of(self, pod: Pod) -> str:
        return self._pods[pod.uid].node_name or self._assumed.get(pod.uid, "")

    def _on(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.values() if self._node_of(pod) == node]

    def _home(self, pod: Pod) -> str:
        named = self._pods.get(pod.uid, pod).pool
        return named if named in self._pools else DEFAULT

    def _pool(self, name: str) -> Pool:
        return self._pools.get(name, NOTHING)

    def _pool_of(self, node: str) -> str:
        labels = self._nodes[node].labels if node in self._nodes else {}
        mine = [
            pool.name
            for pool in self._pools.values()
            if pool.name != DEFAULT and not pool.invalid and pool.selector and matches(pool.selector, labels)
        ]
        return mine[0] if len(mine) == 1 else DEFAULT

    def _loans(self) -> Iterator[tuple[Pod, str]]:
        """Yield our pods that are on a node of another pool than their own, with that pool."""
        for pod in self._pods.values():
            node = self._node_of(pod)
            if node in self._nodes and self._is_ours(pod) and self._pool_of(node) != self._home(pod):
                yield pod, self._pool_of(node)

    def _welcome(self, pod: Pod) -> bool:
        """Say whether the pod's home takes pods of its namespace, and pods of it may name the pod's group."""
        allowed, labels = self._pool(self._home(pod)).allowed_namespaces, self._namespaces.get(pod.namespace)
        every = [*self._groups, *(rule for pool in self._pools.values() for rule in pool.machine_groups)]
        in_team = allowed is None or (labels is not None and matches(allowed, labels))
        return in_team and may_name(pod.spec.machine_group, labels, every)

    def _rare_in(self, pool: str) -> tuple[str, ...]:
        return (*self._rare, *self._pool(pool).rare_types)

    def _is_kept(self, node: str) -> bool:
        """Say whether the node is of a rare type that its pool does not lend."""
        pool = self._pool_of(node)
        return not self._pool(pool).lend_rare_types and is_rare(self._nodes[node], self._rare_in(pool))

    def _uneven(self, spec: PodSpec, name: str, there: list[Pod]) -> Iterator[str]:
        """Yield the topologyKeys over which the pod is spread too unevenly on the node beside these pods."""
        keys = [one.topology_key for one in spec.topology_spread]
        chosen, every = dict(spec.node_selector).items(), self._nodes.values()
        counted = [node for node in every if all(key in node.labels for key in keys) and chosen <= node.labels.items()]
        for one in spec.topology_spread:
            found: Counter[str] = Counter()
            for node in counted:
                pods = there if node.name == name else self._on(node.name)
                selected = [pod for pod in pods if one.selector is not None and _selects(one.selector, pod)]
                found[node.labels[one.topology_key]] += len(selected)
            value = self._nodes[name].labels.get(one.topology_key)
            of_pool = [node for node in counted if self._pool_of(node.name) == self._pool_of(name)]
            fewest = min((found[node.labels[one.topology_key]] for node in of_pool), default=0)
            if value is None or found[value] + one.selects_itself - fewest > one.max_skew:
                yield one.topology_key

    def _repels(self, pod: Pod, node: str, there: Iterable[Pod]) -> str:
        """Return why the affinity of pods forbids the node beside these pods on it."""
        others = ((one, self._node_of(one)) for one in self._pods.values())
        placed = [*((one, on) for one, on in others if on != node), *((one, node) for one in there)]
        labels = {name: one.labels for name, one in self._nodes.items()}
        return Reference(labels, self._namespaces).verdicts(pod, placed)[node]

    def _refused(self, pod: Pod, node: str, there: Iterable[Pod]) -> list[str]:
        """Return why the pod may not be on the node beside these pods; only what the pod asks for counts."""
        pods = list(there)
        short = ", ".join(self._short(pod.spec, node, pods))
        return [*filter(None, (short and f"the node has too little {short}", self._repels(pod, node, pods)))]

    def _short(self, spec: PodSpec, node: str, there: list[Pod]) -> list[str]:
        used, has, free = total_of(there), self._nodes[node].allocatable, self.devices.unlisted(self._nodes[node])
        asked = [(one, amount) for one, amount in taken(spec).items() if amount and one not in free]
        short = [one for one, amount in asked if used[one] + amount > has.get(one, 0)]
        short += self.devices.short(spec, self._nodes[node], there)
        ports = {port for pod in there for port in pod.spec.host_ports}
        short += [f"evenness over {key}" for key in self._uneven(spec, node, there)]
        return [*short, *(f"port {port.port}" for port in spec.host_ports if port in ports)]

    def _suits(self, spec: PodSpec, name: str) -> bool:
        """Say whether the pod may be on this node, whatever room there is; False where that is not modelled."""
        node = self._nodes[name]
        closed = node.unschedulable or any(taint.effect != "PreferNoSchedule" for taint in node.taints)
        labelled = all(node.labels.get(key) == value for key, value in spec.node_selector)
        mine = suits(spec, node, self._rare_in(self._pool_of(name)))
        return _is_modelled(spec) and not closed and labelled and mine


def _selects(selector: PodSelector, pod: Pod) -> bool:
    return not pod.terminating and pod.namespace == selector.namespace and matches(selector.labels, pod.labels)


def _is_modelled(spec: PodSpec) -> bool:
    return not spec.invalid and spec.required is None and not spec.tolerations
