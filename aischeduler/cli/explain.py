"""`ai-scheduler explain` and `kubectl pool explain`: why pods wait or run where they do, and what would start them.

Invariants:
- The cluster is listed with the caller's rights, or read from a snapshot file. Nothing is written, no daemon is asked.
- The answer is that of an engine of this process, which has decided about every other pod first.
- Each way to end has an exit status of its own, see `Status`.
"""

import sys
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import Struct
from typer import TyperException

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, loaded
from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.elastic_jobs import JobRow, elastic_jobs
from aischeduler.analysis.explain import explain
from aischeduler.analysis.explanation import Explanation
from aischeduler.cli.cluster_source import ClusterSource, connected, read_cluster
from aischeduler.cli.explain_output import explanation_json, explanation_text, explanations_json, summary_table
from aischeduler.cli.jobs_output import job_json, job_text
from aischeduler.cli.output import console, print_trimmed
from aischeduler.cli.workload_pods import KINDS, TRAINING_JOB, elastic_row, pods_of
from aischeduler.config.load import load_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.cluster import Cluster
from aischeduler.kube.http.errors import ApiError, RefusedError, is_answer
from aischeduler.kube.http.paths import object_path
from aischeduler.model.events import objects_of
from aischeduler.model.pod import FINISHED, Pod
from aischeduler.state.elastic_jobs import JobKey
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import queue_order

SHOWN_MAX: Final = 50
"""The most pods that --all and a workload show."""

Json = dict[str, Any]


class Status(IntEnum):
    """The exit statuses beside 0, and 1, which says that the cluster or the file could not be read."""

    USAGE = 2
    MISSING = 3
    NOT_OURS = 4
    FINISHED = 5


class ExplainOptions(Struct, frozen=True, kw_only=True):
    """The command line: one pod, those of a workload (`job/NAME`), or with `all_pods` those that wait in a `pool`."""

    source: ClusterSource
    config: Path | None
    target: str
    namespace: str
    pool: str = ""
    all_pods: bool = False
    json: bool = False


class NoExplanationError(TyperException):
    """There is nothing to explain, for a reason that has an exit status of its own."""

    def __init__(self, status: Status, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = int(status)


async def explain_pods(options: ExplainOptions) -> None:
    """Print the explanations. Raises AccessError, ListError, ConfigError, NoExplanationError and TyperException."""
    if bool(options.target) == options.all_pods or options.all_pods != bool(options.pool):
        raise NoExplanationError(Status.USAGE, "name a pod, or a Job as job/NAME, or use --all with --pool")
    kind, _, name = options.target.rpartition("/")
    config = load_config(options.config)
    profile, kinds = profile_of(config), {**KINDS, **{added.kind.lower(): added.kind for added in config.elastic.kinds}}
    if kind not in ("", "pod", *kinds) or (kind and not name):
        named = ", nor ".join(f"{known}/NAME" for known in kinds)
        raise NoExplanationError(Status.USAGE, f"{options.target} is neither a pod, nor pod/NAME, nor {named}")
    single = not options.all_pods and kind not in kinds
    document = await _document(options, name) if single and options.source.snapshot is None else None
    uid = document["metadata"]["uid"] if document is not None else ""
    snapshot = await read_cluster(options.source, config.elastic.kinds, cached=True, with_pod=uid)
    scheduler = loaded(profile, snapshot)
    now = float(snapshot.taken_seconds)
    decide_all(scheduler, now)
    cluster = scheduler.cluster
    if single:
        record = _record(cluster, snapshot, options.namespace, name)
        _show_one(explain(cluster, record, now), document, options)
        return
    job = None if options.all_pods else _job(cluster, (kinds[kind], options.namespace, name), now)
    records = _waiting_in(cluster, options.pool) if job is None else job.pods
    shown = [explain(cluster, record, now) for record in records[:SHOWN_MAX]]
    _show_several(shown, len(records) - len(shown), options, job)


async def _document(options: ExplainOptions, name: str) -> Json:
    """Return the pod as the API server has it."""
    where = f"{options.namespace}/{name}"
    async with connected(options.source) as (client, server):
        try:
            body = await client.get(object_path("v1", "pods", name, options.namespace))
        except RefusedError as error:
            if is_answer(error.status):
                raise NoExplanationError(Status.MISSING, f"there is no pod {where}") from error
            raise TyperException(f"{server.url} does not show you the pod {where}: {error.message}") from error
        except ApiError as error:
            raise TyperException(f"{server.url} cannot be asked for the pod {where}: {error}") from error
    document: Json = orjson.loads(body)
    phase = document.get("status", {}).get("phase", "")
    if phase in FINISHED:
        raise NoExplanationError(Status.FINISHED, f"the pod {where} has finished: its phase is {phase}")
    return document


def _record(cluster: Cluster, snapshot: ClusterSnapshot, namespace: str, name: str) -> PodRecord:
    """Return the record of a pod of this scheduler that is not finished."""
    where = f"{namespace}/{name}"
    seen = objects_of(snapshot.events, Pod)
    pod = next((pod for pod in seen if (pod.namespace, pod.name) == (namespace, name)), None)
    if pod is None:
        raise NoExplanationError(Status.MISSING, f"there is no pod {where}, or it has finished")
    if not cluster.ours(pod):
        ours = " or ".join(cluster.profile.names)
        text = f"the pod {where} belongs to the scheduler {pod.scheduler_name}, not to {ours}"
        raise NoExplanationError(
            Status.NOT_OURS, text + (f"; it is on the node {pod.node_name}" if pod.node_name else "")
        )
    record = cluster.records.get(pod.uid)
    if record is None or (record.counted is None and not record.queue):
        raise NoExplanationError(Status.FINISHED, f"the pod {where} {_ended(pod)}")
    return record


def _ended(pod: Pod) -> str:
    return "is being deleted" if pod.terminating else f"has finished: its phase is {pod.phase}"


def _waiting_in(cluster: Cluster, pool: str) -> Sequence[PodRecord]:
    """Return the pods that wait in a pool; of those that wait together, their lead."""
    queue = cluster.queues.get(pool)
    if queue is None:
        raise NoExplanationError(Status.MISSING, f"there is no Pool {pool}")
    return sorted({record.waits_as for record in queue.records()}, key=queue_order)


class _Job(Struct, frozen=True):
    """A workload: its pods, and if it asks to be elastic, its row among `jobs` that take part in passes."""

    pods: Sequence[PodRecord]
    row: JobRow | None
    jobs: int


def _job(cluster: Cluster, key: JobKey, now: float) -> _Job:
    kind, namespace, name = key
    rows = elastic_jobs(cluster, now)
    found = _Job(pods_of(cluster, key), elastic_row(cluster, rows, key), sum(row.place is not None for row in rows))
    if not found.pods and found.row is None:
        hint = f": kubectl describe tj {name} -n {namespace} shows its conditions" if kind == TRAINING_JOB else ""
        raise NoExplanationError(Status.MISSING, f"there is no unfinished pod of the {kind} {namespace}/{name}{hint}")
    return found


def _show_one(explanation: Explanation, document: Json | None, options: ExplainOptions) -> None:
    if options.json:
        print(explanation_json(explanation, document))
        return
    owners = (document or {}).get("metadata", {}).get("ownerReferences", [])
    owner = next((f"The {owner['kind']} {owner['name']}" for owner in owners if owner.get("controller")), "")
    print_trimmed(console(), *explanation_text(explanation, owner))


def _show_several(shown: Sequence[Explanation], left_out: int, options: ExplainOptions, job: _Job | None) -> None:
    row = job.row if job is not None else None
    if options.json:
        print(explanations_json(shown, left_out, None if row is None else job_json(row)))
        return
    if job is not None and row is not None:
        print_trimmed(console(), *job_text(row, job.jobs))
    if row is not None and shown:
        print()
    if row is None or shown:
        print_trimmed(console(), summary_table(shown))
    if left_out:
        print(f"{left_out} more pods are not shown.", file=sys.stderr)
