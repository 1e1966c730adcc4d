"""Which strategy belongs to which resource."""

from collections.abc import Mapping

from aischeduler.sandbox.clusterkinds import BUDGETS, LEASES, NAMESPACES, NODES, PRIORITY_CLASSES, STORAGE
from aischeduler.sandbox.crds import CRDS, CUSTOM
from aischeduler.sandbox.eventrules import EVENTS
from aischeduler.sandbox.jobs import JOBS
from aischeduler.sandbox.kinds import Place, Resource
from aischeduler.sandbox.pods import PODS
from aischeduler.sandbox.strategies import Strategy

PLAIN = Strategy()
STRATEGIES: Mapping[str, Strategy] = {
    Place.CLAIMS: STORAGE,
    Place.DEFINITIONS: CRDS,
    Place.EVENTS: EVENTS,
    Place.JOBS: JOBS,
    Place.LEASES: LEASES,
    Place.NAMESPACES: NAMESPACES,
    Place.NODES: NODES,
    Place.BUDGETS: BUDGETS,
    Place.PODS: PODS,
    Place.PRIORITY_CLASSES: PRIORITY_CLASSES,
    Place.VOLUMES: STORAGE,
}


def strategy_of(resource: Resource) -> Strategy:
    """Return the rules of a kind."""
    return CUSTOM if resource.custom is not None else STRATEGIES.get(resource.collection, PLAIN)
