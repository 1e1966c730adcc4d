"""That no proper subset of the victims of one decision would do: an oracle of its own, by amounts and labels.

Invariants:
- It reads what the oracle of the pool rules was told, and which pods left already; it uses no code of the product.
- Pods of a gang go one by one while the gang can spare them, and else all: a subset that leaves a gang useless is none.
- Of pods that come one by one, every node of their pool is tried. The pods of a gang are tried on the nodes that they
  claim, and without fewer gangs, not with fewer pods of one: all ways to move them are too many.
- It is silent about what the oracle of the pool rules does not model, about nodes with room that others claim, and of
  gangs that are being bound: these go as they were decided.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from aischeduler.model.actions import Action, Evict, Nominate
from aischeduler.model.pod import Pod
from tests.pool_rules_oracle import Oracle

Uids = frozenset[str]


class Victims:
    """The victims of one decision, and the pods for which they go; `gone` left before it."""

    def __init__(self, oracle: Oracle, gone: Uids, evicts: Sequence[Evict]) -> None:
        self._oracle = oracle
        self._victims = {evict.victim.uid: oracle._pods[evict.victim.uid] for evict in evicts}
        self._gone = gone - self._victims.keys()  # of victims that were chosen, some may be asked later
        asker = evicts[0].beneficiary
        assert asker is not None
        self._unit = unit = oracle._unit_of(asker)
        alike = [pod for pod in oracle._pods.values() if unit and oracle._unit_of(pod) == unit]
        self._askers = [pod for pod in alike or [asker] if oracle._nominated.get(pod.uid) and not oracle._node_of(pod)]

    def spared(self) -> Iterator[str]:
        """Yield each smaller set of victims that would do, as the names of those that would stay."""
        if self._is_modelled() and self._fit(frozenset(self._victims)):
            for going in self._smaller():
                if self._fit(going):
                    stay = sorted(pod.name for uid, pod in self._victims.items() if uid not in going)
                    yield f"{stay} could stay, and {[pod.name for pod in self._askers]} would fit"

    def is_checked(self) -> bool:
        """Return whether the oracle models all of it, and agrees that the victims are enough."""
        return self._is_modelled() and self._fit(frozenset(self._victims))

    def _is_modelled(self) -> bool:
        specs, oracle = [pod.spec for pod in self._askers], self._oracle
        if any(oracle._unit_of(pod) and uid in oracle._assumed for uid, pod in self._victims.items()):
            return False
        return bool(specs) and not any(
            spec.required is not None or spec.tolerations or spec.topology_spread or spec.invalid for spec in specs
        )

    def _smaller(self) -> Iterator[Uids]:
        """Yield the largest proper subsets of the victims that leave no gang useless."""
        every, gangs = frozenset(self._victims), self._oracle._gangs
        for uid, pod in sorted(self._victims.items()):
            unit = self._oracle._unit_of(pod)
            members = [one for one in gangs._members(unit) if self._oracle._node_of(one) and one.uid not in self._gone]
            together = frozenset(one.uid for one in members) & every if unit else frozenset((uid,))
            spare = max(len(members) - gangs._least(unit), 0) if unit else 1
            if len(together) <= spare:
                yield every - {uid}
            elif uid == min(together):
                may = sorted(one for one in together if self._may_go(self._victims[one]))
                for some in combinations(may, 0 if self._unit else min(spare, len(may))):
                    yield every - together | {*some}

    def _may_go(self, victim: Pod) -> bool:
        """Return whether a pod may be evicted for the askers by itself, not just with its gang."""
        oracle = self._oracle
        return oracle._may_evict(self._askers[0], victim, oracle._pool_of(oracle._node_of(victim)))

    def _fit(self, going: Uids) -> bool:
        """Return whether the pods fit once these victims are gone."""
        nodes = [self._oracle._nominated[pod.uid] for pod in self._askers]
        if self._unit:
            return all(self._beside(pod, nodes[at], going, at) for at, pod in enumerate(self._askers))
        (asker,) = self._askers
        home = self._oracle._home(asker)
        pool = [node for node in sorted(self._oracle._nodes) if self._oracle._pool_of(node) == home]
        return any(
            self._oracle._suits(asker.spec, node)
            and not self._oracle.may_refuse(asker, self._oracle._nodes[node])
            and self._beside(asker, node, going, 0)
            for node in pool
        )

    def _beside(self, pod: Pod, node: str, going: Collection[str], turn: int) -> bool:
        oracle, askers = self._oracle, {one.uid for one in self._askers}
        others = (one for one in oracle._pods.values() if one.uid not in askers and not oracle._node_of(one))
        if any(oracle._nominated.get(other.uid) == node for other in others):
            return False
        staying = [one for one in oracle._on(node) if one.uid not in self._gone and one.uid not in going]
        before = [one for one in self._askers[:turn] if oracle._nominated[one.uid] == node]
        return not oracle._refused(pod, node, [*staying, *before])


def decisions(actions: Sequence[Action]) -> Iterator[list[Evict]]:
    """Yield the evictions of each decision that claims room for a pod; victims that were chosen earlier may follow."""
    found: dict[str, list[Evict]] = {}
    claiming = {action.decision for action in actions if isinstance(action, Nominate) and action.node}
    for action in actions:
        if isinstance(action, Evict) and action.beneficiary is not None and action.decision in claiming:
            found.setdefault(action.decision, []).append(action)
    yield from found.values()
