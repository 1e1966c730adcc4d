"""One pass over one BatchProcess: look at it and at its pods, write its status, then delete and make pods."""

from collections.abc import Iterable

from aischeduler.operator.batch_process import BatchProcess, read_batch_process
from aischeduler.operator.conditions import INVALID, refusal_of, refused, standing, starts_seconds
from aischeduler.operator.objects import PodMaker, SeenPod, gang_selector, seen_pod, service
from aischeduler.operator.owner import Json, SpecError
from aischeduler.operator.owner_pass import OwnerPass, all_of, doubling
from aischeduler.operator.plan import Plan, plan
from aischeduler.operator.progress import Phase, Progress, read_record
from aischeduler.operator.status import notes_of, status_of


class Reconciler(OwnerPass):
    """Makes passes over BatchProcesses."""

    record = Progress

    async def _carry_out(self, document: Json) -> float | None:
        try:
            process = read_batch_process(document, self._settings)
        except SpecError as error:
            why = refused(INVALID, str(error))
            await self._write(document, refusal_of(document, why, Phase.PENDING, self._now()))
            return None
        made = plan(process, read_record(document, Progress), await self._pods(process), self._now())
        accepted = standing(document, makes=bool(made.creates))
        status = status_of(document, process, made, accepted, self._now())
        written = await self._write(document, status)
        if written is None:
            return None
        failed = await self._tried(self._act(process, made))
        if failed is None:
            due = (made.again_seconds, starts_seconds(status, made.waits, self._now()))
            waits = [seconds for seconds in due if seconds is not None]
            return 0.0 if made.creates else min(waits, default=None)  # the next pass records what was made
        why, again_seconds = failed
        await self._write(written, status_of(written, process, made, why, self._now()))
        return again_seconds

    def _notes(self, document: Json, status: Json) -> Iterable[tuple[str, str]]:
        return notes_of(document, status)

    async def _pods(self, process: BatchProcess) -> list[SeenPod]:
        documents = await self._listed("pods", process, gang_selector(process))
        return [pod for pod in (seen_pod(document, process.uid) for document in documents) if pod is not None]

    async def _act(self, process: BatchProcess, made: Plan) -> None:
        """Delete and make what the plan says; raises NameTakenError and ApiError."""
        await self._delete(process, made.deletes)
        if not made.creates:
            return
        await self._create(process, "services", service(process))
        maker = PodMaker(process, self._settings)
        for batch in doubling(made.creates):
            pods = (maker.pod(wanted.role, wanted.index, wanted.attempt) for wanted in batch)
            await all_of(self._create(process, "pods", pod) for pod in pods)
