"""The scores that this scheduler gives the nodes for a pod of the differential test, by its own rules.

Invariant: the engine is that of the daemon, in the process of the test: the daemon does not tell scores of pods that
wait. It observes what the API server has, once per state, and never decides. The nodes come in the order of their
creation, the last by name first, because an image has the size that the first node says.
"""

import json
from collections.abc import Mapping
from typing import Final

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.watch.cluster_lister import resources
from aischeduler.model.events import Seen, gone
from aischeduler.model.names import DEFAULT_POOL, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from tests.controlplane.plane import ControlPlane
from tests.objects import Json

NOW: Final = 0.0


class OurScores:
    """The engine on the objects that an API server has now."""

    def __init__(self, plane: ControlPlane) -> None:
        self._engine = Scheduler(default_profile(SCHEDULER_NAME), "scores")
        self._pods = None
        for resource in resources():
            answer = plane.api("GET", resource.path)
            assert answer.status == 200 or (answer.status == 404 and resource.optional), answer
            items = answer.body["items"] if answer.status == 200 else []
            for document in items[::-1] if resource.kind == "Node" else items:
                for event in resource.read(json.dumps(document).encode()):
                    self._engine.observe(event, NOW)
            if resource.kind == "Pod":
                self._pods = resource

    def of(self, pod: Json) -> Mapping[str, int]:
        """Return node -> total for each node on which this pod, as the API server returned it, fits."""
        assert self._pods is not None, "pods are observed"
        (seen,) = self._pods.read(json.dumps(pod).encode())
        assert isinstance(seen, Seen)
        assert isinstance(seen.object, Pod)
        self._engine.observe(seen, NOW)
        cluster = self._engine.cluster
        rows = cluster.nodes.rows_of_pool(cluster.pools.id(DEFAULT_POOL))
        spec = cluster.records[seen.object.uid].pod.spec  # with the labels that terms of other pods read
        ask = cluster.ask(spec, DEFAULT_POOL, DEFAULT_POOL)
        ranked = cluster.runner.ranked(ask, rows)
        chosen = {
            cluster.runner.best(ask, rows) for _ in range(3)
        }  # the results of a class are kept from the second on
        assert chosen == {(ranked[0][0], len(ranked))}, f"{chosen} is not the best of {ranked}"
        self._engine.observe(gone(Pod, seen.object.uid), NOW)
        return {cluster.nodes.names[row]: total for row, total in ranked}
