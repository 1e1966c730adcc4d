"""What elastic jobs allow, in plain loops over pods: which instances a job has beyond its minimum.

It shares no code with the engine.
"""

from collections.abc import Callable, Iterable

from aischeduler.model.elastic import ElasticJob
from aischeduler.model.events import Event, Gone, Seen
from aischeduler.model.pod import Pod
from aischeduler.model.workload import Workload

Key = tuple[str, str, str]


class ElasticOracle:
    """Follows the elastic jobs. `on_node` says whether a pod is on a node and stays there."""

    def __init__(self, pods: dict[str, Pod], on_node: Callable[[Pod], bool]) -> None:
        self._pods, self._on_node = pods, on_node
        self._jobs: dict[Key, ElasticJob] = {}

    def observe(self, event: Event) -> None:
        """Take note of what the scheduler is told."""
        match event:
            case Seen(Workload(elastic=ElasticJob() as job) as workload):
                self._jobs[workload.key] = job
            case Seen(Workload() as workload):
                self._jobs.pop(workload.key, None)
            case Gone("Workload", (kind, namespace, name)):
                self._jobs.pop((kind, namespace, name), None)
            case _:
                pass

    def job_of(self, pod: Pod) -> tuple[Key, ElasticJob] | None:
        """Return the elastic job that a pod is an instance of."""
        kind, _, name = pod.owner.partition("/")
        key = (kind, pod.namespace, name)
        job = self._jobs.get(key)
        return (key, job) if job is not None and job.problem is None else None

    def is_surplus(self, victim: Pod, asker: Pod) -> bool:
        """Say whether a pod goes for any home pod: its job has more on nodes than its minimum, and is not Production.

        For an instance of an elastic job it does not.
        """
        found = self.job_of(victim)
        if found is None or self.job_of(asker) is not None:
            return False
        key, job = found
        there = [pod for pod in self._of(key) if self._on_node(pod)]
        return len(there) > job.terms.min_instances and not job.terms.is_production and not job.is_finishing

    def _of(self, key: Key) -> Iterable[Pod]:
        kind, namespace, name = key
        return (pod for pod in self._pods.values() if pod.namespace == namespace and pod.owner == f"{kind}/{name}")
