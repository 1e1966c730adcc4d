"""The steps of a decision, in the words of a report of an exception."""

from typing import Final

from aischeduler.model.actions import Step

FORMING: Final = (Step.WAKING, "forming units")
ROLLING_BACK: Final = (Step.WAKING, "giving up units that are not whole")
SETTLING: Final = (Step.SETTLE, "choosing pods to read")
PERMITTING: Final = (Step.SETTLE, "asking rules about delayed Bindings")
TELLING: Final = (Step.STATUS, "computing the statuses of Pools")
READING_QUEUE: Final = (Step.QUEUE, "reading when a queue has something to decide")
SOUGHT: Final = (Step.LENDING, "ending a search for lenders")
ENDING_LOANS: Final = (Step.LOANS, "ending loans")
FINDING: Final = (Step.WAKING, "finding pods to try")
DIVIDING: Final = (Step.WAKING, "dividing classes")
RECHECKING: Final = (Step.WAKING, "checking held pods again")
WAKING: Final = (Step.WAKING, "waking pods")
SEEKING: Final = (Step.LENDING, "searching for lenders")
REWORDING: Final = (Step.REASONS, "updating reasons")
OFFERING: Final = (Step.WAKING, "offering room that became free")
MOVING: Final = (Step.QUEUE, "moving pods whose backoff ended")
TAKING: Final = (Step.QUEUE, "popping pods from the queue")
READING: Final = (Step.SETTLE, "choosing Pools to read")
COUNTING: Final = (Step.WAKING, "checking pods whose constraints count other pods")
LENDING: Final = (Step.LENDING, "offering room to other pools")
