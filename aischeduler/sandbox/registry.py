"""Which strategy belongs to which resource."""

from collections.abc import Mapping

from aischeduler.sandbox.crds import CRDS, CUSTOM
from aischeduler.sandbox.kinds import Resource
from aischeduler.sandbox.pods import PODS
from aischeduler.sandbox.strategies import Strategy

PLAIN = Strategy()
WITH_STATUS = Strategy(counts_generations=True, resets_status=True)
STRATEGIES: Mapping[str, Strategy] = {
    "customresourcedefinitions.apiextensions.k8s.io": CRDS,
    "jobs.batch": WITH_STATUS,
    "poddisruptionbudgets.policy": WITH_STATUS,
    "pods.": PODS,
}


def strategy_of(resource: Resource) -> Strategy:
    """Return the rules of a kind."""
    return CUSTOM if resource.custom is not None else STRATEGIES.get(resource.collection, PLAIN)
