"""InterPodAffinity once more, slowly: node by node and pod by pod, from the rules of kube-scheduler.

Invariant: it uses no code of the product except values, and keeps nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aischeduler.model.pod import Pod
from aischeduler.model.pod_affinity import PodAffinityTerm
from aischeduler.model.selectors import Labels
from tests.placement_oracle import matches

Placed = Iterable[tuple[Pod, str]]
"""Pods and the names of their nodes."""
Pair = tuple[str, str]
"""Key and value of a label of nodes."""
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True)
class Reference:
    """A cluster as the rules see it: the labels of nodes, the labels of the namespaces that are known, and the weight.

    A namespace that is not known may have any labels: anti-affinity takes the worst, all else takes none.
    """

    nodes: Mapping[str, Labels]
    namespaces: Mapping[str, Labels]
    hard_weight: int = 1
    ignores_preferences: bool = False

    def verdicts(self, asker: Pod, placed: Placed) -> dict[str, str]:
        """Return for each node the first reason against it; empty where the pod may be there."""
        pods = [(pod, self.nodes[node]) for pod, node in placed if node in self.nodes]
        own = asker.spec.pod_affinity
        near, away, guarded = Counter[Pair](), Counter[Pair](), Counter[Pair]()
        for pod, labels in pods:
            if all(self.selects(one, pod, unseen=False) for one in own.required):
                near.update((one.topology_key, labels[one.topology_key]) for one in _held(own.required, labels))
            selecting = [one for one in own.anti_required if self.selects(one, pod, unseen=True)]
            away.update((one.topology_key, labels[one.topology_key]) for one in _held(selecting, labels))
            theirs = pod.spec.pod_affinity.anti_required
            selecting = [one for one in theirs if self.selects(one, asker, unseen=True)]
            guarded.update((one.topology_key, labels[one.topology_key]) for one in _held(selecting, labels))
        first = not near and all(self.selects(one, asker, unseen=False) for one in own.required)
        found = {}
        for name, labels in self.nodes.items():
            pairs = set(labels.items())
            lacks = any(
                one.topology_key not in labels or not (first or near[one.topology_key, labels[one.topology_key]])
                for one in own.required
            )
            kept = any(away[one.topology_key, labels.get(one.topology_key, "")] for one in own.anti_required)
            found[name] = AFFINITY if lacks else ANTI_AFFINITY if kept else EXISTING if pairs & {*guarded} else ""
        return found

    def scores(self, asker: Pod, placed: Placed, names: Iterable[str]) -> dict[str, int]:
        """Return the score of each of these nodes, normalised over them."""
        own, worth = asker.spec.pod_affinity.preferred, Counter[Pair]()
        for pod, node in placed:
            labels = self.nodes.get(node, {})
            theirs = pod.spec.pod_affinity
            weighted = [(weight, one) for weight, one in own if self.selects(one, pod, unseen=False)]
            if own or not self.ignores_preferences:
                wishes = [*theirs.preferred, *((self.hard_weight, one) for one in theirs.required)]
                weighted += [(weight, one) for weight, one in wishes if self.selects(one, asker, unseen=False)]
            for weight, one in weighted:
                if one.topology_key in labels:
                    worth[one.topology_key, labels[one.topology_key]] += weight
        raw = {name: sum(worth[pair] for pair in self.nodes[name].items()) for name in names}
        least, most = min(raw.values(), default=0), max(raw.values(), default=0)
        return {name: int(100.0 * ((one - least) / (most - least))) if most > least else 0 for name, one in raw.items()}

    def selects(self, term: PodAffinityTerm, pod: Pod, *, unseen: bool) -> bool:
        """Say whether a term selects a pod."""
        if term.selector is None or not matches(term.selector, pod.labels):
            return False
        if pod.namespace in term.namespaces or term.namespace_selector is None:
            return pod.namespace in term.namespaces
        known = self.namespaces.get(pod.namespace)
        return unseen if known is None else matches(term.namespace_selector, known)


def _held(terms: Iterable[PodAffinityTerm], labels: Labels) -> list[PodAffinityTerm]:
    return [one for one in terms if one.topology_key in labels]
