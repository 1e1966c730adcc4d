"""One pass over one TrainingJob: look at it, its Job and its pods, write its status, then delete and make objects.

Invariant: the operator makes the Job of the trainers at its minimum, and writes its terms; it never writes its size.
"""

from collections.abc import Iterable
from typing import Final

from aischeduler.kube.http.paths import object_path
from aischeduler.operator.conditions import INVALID, refusal_of, refused, standing, starts_seconds
from aischeduler.operator.objects import gang_selector, seen_pod, service
from aischeduler.operator.owner import Json, SpecError
from aischeduler.operator.owner_pass import NAME_TAKEN_SECONDS, OwnerPass, all_of, doubling, owns, taken
from aischeduler.operator.progress import read_record
from aischeduler.operator.training_job import TrainingJob, read_training_job
from aischeduler.operator.training_objects import (
    EDITED,
    ENDED,
    JOB_INDEX_KEY,
    TrainingMaker,
    as_made,
    changed_terms,
    job_name,
    seen_job,
)
from aischeduler.operator.training_plan import Seen, TrainingPhase, TrainingPlan, TrainingRecord, plan_training
from aischeduler.operator.training_status import frozen, training_notes, training_status

JOB_VERSION: Final = "batch/v1"
JOBS: Final = "jobs"


class TrainingReconciler(OwnerPass):
    """Makes passes over TrainingJobs."""

    record = TrainingRecord

    async def _carry_out(self, document: Json) -> float | None:
        try:
            job = read_training_job(document, self._settings)
        except SpecError as error:
            why = refused(INVALID, str(error))
            await self._write(document, refusal_of(document, why, TrainingPhase.CREATING, self._now()))
            return None
        found = await self._cluster.get(self._job_path(job))
        if found is not None and not owns(job, found):
            why = refused("NameTaken", str(taken("Job", job_name(job))))
            await self._write(document, refusal_of(document, why, TrainingPhase.CREATING, self._now()))
            return NAME_TAKEN_SECONDS
        if found is not None:
            job = as_made(job, found)
        return await self._go_on(document, job, found)

    async def _go_on(self, document: Json, job: TrainingJob, found: Json | None) -> float | None:
        """Carry out a spec of which this Job exists."""
        now, record = self._now(), read_record(document, TrainingRecord)
        seen = await self._seen(job, found)
        made = plan_training(job, record, seen, now)
        window = frozen(job, made, seen.job, now)
        accepted = standing(document, makes=bool(made.creates or made.makes_job))
        new = record.observed_generation != document["metadata"].get("generation", 0)
        status = training_status(document, job, made, window=window, accepted=accepted, now=now)
        written = await self._write(document, status, _ignored(job, record) if new else ())
        if written is None:
            return None
        failed = await self._tried(self._act(job, made, found))
        if failed is None:
            starts = starts_seconds(status, made.waits, now)
            due = [made.again_seconds, starts, window.again_seconds if window is not None else None]
            waits = [seconds for seconds in due if seconds is not None]
            return 0.0 if made.creates or made.makes_job else min(waits, default=None)
        why, again_seconds = failed
        await self._write(written, training_status(written, job, made, window=window, accepted=why, now=self._now()))
        return again_seconds

    def _notes(self, document: Json, status: Json) -> Iterable[tuple[str, str]]:
        return training_notes(document, status)

    def _job_path(self, job: TrainingJob) -> str:
        return object_path(JOB_VERSION, JOBS, job_name(job), job.namespace)

    async def _seen(self, job: TrainingJob, found: Json | None) -> Seen:
        documents = await self._listed("pods", job, gang_selector(job))
        pods = [pod for pod in (seen_pod(document, job.uid) for document in documents) if pod is not None]
        if found is None:
            return Seen(None, pods, [])
        trainers = (seen_pod(document, found["metadata"]["uid"], JOB_INDEX_KEY) for document in documents)
        return Seen(seen_job(found), pods, [pod for pod in trainers if pod is not None])

    async def _act(self, job: TrainingJob, made: TrainingPlan, found: Json | None) -> None:
        """Delete and make what the plan says; raises NameTakenError and ApiError."""
        terms = {} if found is None or made.record.finished else changed_terms(job, found)
        if terms:
            await self._cluster.patch(self._job_path(job), {"metadata": {"annotations": terms}})
        await self._delete(job, made.deletes)
        maker = TrainingMaker(job, self._settings)
        if made.makes_job or made.creates:
            await self._create(job, "services", service(job))
        if made.makes_job:
            await self._create(job, JOBS, maker.job())
        for batch in doubling(made.creates):
            pods = (maker.pod(wanted.role, wanted.index, wanted.attempt) for wanted in batch)
            await all_of(self._create(job, "pods", pod) for pod in pods)


def _ignored(job: TrainingJob, record: TrainingRecord) -> tuple[tuple[str, str], ...]:
    """Return reason and note of the Events about what of a new spec has no effect."""
    return ((EDITED, ENDED),) if record.finished else job.ignored
