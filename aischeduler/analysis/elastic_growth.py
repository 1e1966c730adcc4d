"""Why an elastic job has no larger size, and what would make it grow.

Invariants:
- Whether a step fits is what the room of a pass says; the room is on the table only while it is asked, and what the
  scheduler is about to give to other jobs counts in it.
- The first reason that holds is the one that is told, in the order of `Obstacle`; of a frozen job, what follows its
  window too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from msgspec import Struct

from aischeduler.analysis.explanation import MissingKind, NearestMiss, full_name
from aischeduler.analysis.lenders import missing_text
from aischeduler.analysis.nearest_miss import refusals
from aischeduler.engine.cluster import Cluster
from aischeduler.engine.elastic import JobReading
from aischeduler.engine.elastic_ledger import PassLedger
from aischeduler.engine.elastic_room import LiveRoom
from aischeduler.engine.quotas import growth_within
from aischeduler.engine.resizing import SHORT_SECONDS
from aischeduler.model.card_shares import gpu_share
from aischeduler.model.elastic import Problem
from aischeduler.model.event_reasons import EventReason
from aischeduler.model.pool import WHOLE_LOAD
from aischeduler.model.quantity import readable
from aischeduler.model.times import time_text
from aischeduler.policies.borrowing import wanted_by_home_pods
from aischeduler.state.label_index import Rows
from aischeduler.state.pod_records import PodRecord
from aischeduler.state.scheduling_queue import queue_order

JOBS_NAMED_MAX: Final = 3


class Obstacle(StrEnum):
    """What keeps a job from its next size, in one word."""

    LEFT_ALONE = "leftAlone"
    """It asks to be elastic and is not."""
    SUSPENDED = "suspended"
    FINISHING = "finishing"
    MINIMUM = "minimumWaits"
    MAXIMUM = "maximum"
    UNDER_WAY = "underWay"
    """It is about to get another size."""
    INSTANCES = "instancesWait"
    """Instances of its last step wait for a node, or leave."""
    FROZEN = "frozen"
    QUOTA = "quota"
    ROOM = "noRoom"
    """No node has room for its next step."""
    LOAD = "maxLoad"
    """The Pool is used up to its maxLoad."""
    WAITING_POD = "waitingPod"
    """A pod that waits can use the room."""
    OTHER_JOB = "otherJob"
    """The room goes to a job that comes first."""
    NONE = "none"
    """Nothing: it grows with the next pass."""


class Growth(Struct, frozen=True):
    """What keeps a job from its next size, why in a sentence, and what would make it grow, empty where nothing would.

    `next` is the size that it may have next; None at its maximum, and where it is not resized at all.
    """

    obstacle: Obstacle
    why: str
    remedy: str = ""
    next: int | None = None


FINISHES: Final = Growth(Obstacle.FINISHING, "What is left of it runs, so its size stays.")
IS_SUSPENDED: Final = Growth(Obstacle.SUSPENDED, "It is suspended, and keeps its size.", "Resume it.")


def left_alone(problem: Problem) -> Growth:
    """Return why a job that asks to be elastic is not."""
    invalid = problem.reason is EventReason.INVALID_ELASTIC
    remedy = "Correct its annotations." if invalid else "Let only this scheduler choose its size."
    return Growth(Obstacle.LEFT_ALONE, f"{problem.message}. It keeps its size.", remedy)


class Growths:
    """What keeps jobs from growing, for jobs of one pass. `readings` are those of all jobs that take part, by name."""

    def __init__(self, cluster: Cluster, readings: Mapping[str, JobReading], now: float) -> None:
        self._cluster, self._readings, self._now = cluster, readings, now
        self._grown = {
            name: reading for name, reading in readings.items() if reading.share.size > len(reading.pods.instances)
        }
        """The jobs that are about to get more instances than they have."""

    def of(self, reading: JobReading) -> Growth:
        """Return what keeps a job from growing."""
        record, share = reading.record, reading.share
        size, above = record.size, share.terms.next_above(record.size)
        if share.waits:
            least = share.terms.min_instances
            leads = (pod.waits_as for pod in reading.pods.instances if pod.counted is None)
            reason = next((lead.message for lead in leads if lead.message), "")
            why = f"Fewer pods than its minimum of {least} are on nodes{f': {reason}' if reason else ''}"
            return Growth(Obstacle.MINIMUM, _sentence(why), "Its minimum starts first.", above)
        if record.sent is not None and size != record.job.size:
            verb = "grows" if size > record.job.size else "shrinks"
            return Growth(Obstacle.UNDER_WAY, f"It {verb} from {record.job.size} to {size} instances now.", "", above)
        if above is None:
            return _largest(reading)
        waiting = sum(pod.counted is None for pod in reading.pods.instances)
        frozen_until = record.job.resized_at_seconds + share.terms.freezing_window_seconds
        if record.job.resized_at_seconds and frozen_until > self._now:
            return self._frozen(reading, frozen_until, above)
        if not share.grows:
            why = f"{waiting} of its {size} instances have no node" if waiting else "Pods of its last step still leave"
            remedy = f"They get nodes; after {SHORT_SECONDS:.0f} s without, it goes back to a smaller size."
            return Growth(Obstacle.INSTANCES, f"{why}.", remedy if waiting else "They are gone.", above)
        return self._by_room(reading, above)

    def _frozen(self, reading: JobReading, until: float, above: int) -> Growth:
        window = reading.share.terms.freezing_window_seconds
        why = f"It is frozen until {time_text(int(until))}: {window:g} s from its last resize it keeps its size."
        after = self._by_room(reading, above)
        then = "there is room for it now" if after.obstacle is Obstacle.NONE else after.why
        return Growth(Obstacle.FROZEN, why, f"Its window ends; {then[0].lower()}{then[1:]}".rstrip(".") + ".", above)

    def _by_room(self, reading: JobReading, above: int) -> Growth:
        """Return what of the room keeps a job from this size."""
        name = reading.share.name
        with self._room(beside=name) as room:
            if room.grow(name, above):
                return Growth(Obstacle.NONE, f"There is room for {above} instances: it grows soon.", "", above)
            found = self._refused(room, reading, above)
        others = [other for other in self._grown if other != name]
        if not others or found.obstacle is Obstacle.QUOTA:
            return found
        with self._room() as room:
            if not room.grow(name, above):
                return found
        more = len(others) - JOBS_NAMED_MAX
        named = f"{', '.join(others[:JOBS_NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"
        return Growth(Obstacle.OTHER_JOB, f"The room goes to {named}.", found.remedy, above)

    @contextmanager
    def _room(self, beside: str | None = None) -> Iterator[LiveRoom]:
        """Yield the room of a pass; what other jobs than `beside` are about to get counts, if that is given."""
        room = LiveRoom(self._cluster, {name: reading.pods for name, reading in self._readings.items()})
        with room:
            for name, reading in self._grown.items() if beside is not None else ():
                if name != beside:
                    room.grow(name, reading.share.size)
            yield room

    def _refused(self, room: LiveRoom, reading: JobReading, above: int) -> Growth:
        """Return what refuses the first instance of a step that does not fit; those before it are on the table."""
        cluster, name = self._cluster, reading.share.name
        instances = reading.pods.instances
        if not instances:
            return Growth(Obstacle.INSTANCES, "It has no pods yet.", "Its controller makes them.", above)
        like = max(instances, key=lambda record: (record.pod.created_seconds, record.pod.uid))
        size = len(instances)
        while size < above and room.grow(name, size + 1):
            size += 1
        given = size - len(instances)
        step = above - reading.record.size
        which = "one more instance" if step == 1 else f"its next step of {step} instances, of which {given} fit"
        quota = growth_within(cluster, like, self._ledger(like, given)) if cluster.has_quotas else None
        if quota is not None and quota.message:
            return Growth(Obstacle.QUOTA, _sentence(quota.message), "Raise this quota, or let pods of it end.", above)
        shut = quota.closed[0] if quota is not None and quota.closed else None
        rows = cluster.nodes.rows_of_pool(cluster.pools.id(like.home))
        open_ask = cluster.ask(like.pod.spec, like.home, like.home)
        fitting = open_ask.open(rows)
        fitting = fitting[cluster.runner.passes(like.pod.spec, fitting)]
        if shut is not None and len(fitting) and not len(fitting[~shut[fitting]]):
            closes = quota.closes[0].message if quota is not None and quota.closes else "a quota in cards refuses it"
            return Growth(Obstacle.QUOTA, _sentence(closes), "Raise this quota, or let pods of it end.", above)
        if len(fitting):
            return self._kept_from(like, fitting, above)
        return self._no_room(like, rows, which, above)

    def _ledger(self, like: PodRecord, given: int) -> PassLedger:
        """Return the sums of all pods with so many more like this one, and with what jobs of its queue are to get.

        They count with the cards of the instance that is on a node.
        """
        cluster = self._cluster
        ledger = PassLedger(cluster.ledger)
        others = [
            (reading.pods.instances[0], reading.share.size - len(reading.pods.instances))
            for reading in self._grown.values()
            if reading.pods.instances and reading.pods.instances[0].tenancy == like.tenancy
        ]
        for record, more in ((like, given), *others):
            on_node = next((one for one in (record, like) if one.counted is not None), None)
            if on_node is not None and more:
                accounts = cluster.accounts_of(record, on_node.row)
                ledger.book(accounts, record.pod.spec, more, gpu_share(record.pod.spec, record.allocation))
        return ledger

    def _kept_from(self, like: PodRecord, fitting: Rows, above: int) -> Growth:
        """Return for whom, or what, these rows of the home pool are kept, on which one more instance fits."""
        cluster, home = self._cluster, like.home
        if wanted_by_home_pods(cluster.borrowing, home, fitting).all():
            waiting = sorted((record for record in cluster.queues[home].records() if record.usable), key=queue_order)
            runner = cluster.runner
            named = next(
                (
                    f"the pod {full_name(record.pod)}"
                    for record in waiting
                    if runner.could_run(record.pod.spec, fitting).any()
                ),
                f"a pod of the pool {home}",
            )
            why = f"{named[0].upper()}{named[1:]} waits and can use the room."
            return Growth(Obstacle.WAITING_POD, why, "That pod starts elsewhere, or more room comes.", above)
        load = cluster.pools.pools[home].max_load_thousandths
        if load < WHOLE_LOAD:
            why = f"The pool {home} is used up to its maxLoad of {load / WHOLE_LOAD:g}."
            return Growth(Obstacle.LOAD, why, f"Raise spec.maxLoad of the Pool {home}, or let pods of it end.", above)
        return Growth(Obstacle.OTHER_JOB, "The room is kept for the minimum of another job.", "That job starts.", above)

    def _no_room(self, like: PodRecord, rows: Rows, which: str, above: int) -> Growth:
        cluster, home = self._cluster, like.home
        refused = refusals(cluster, like.pod.spec, rows)
        nearest = next((refusal.nearest for refusal in reversed(refused) if refusal.nearest is not None), None)
        lends = "; no other pool lends it any" if len(cluster.pools.names()) > 1 else ""
        if not len(rows):
            return Growth(
                Obstacle.ROOM, f"The pool {home} has no nodes{lends}.", f"Add a node to the Pool {home}.", above
            )
        counts = ", ".join(f"{refusal.nodes} by {refusal.rule}" for refusal in refused)
        near = f"; {missing_text(nearest)}" if nearest is not None else ""
        of_nodes = f"none of the {len(rows)} nodes" if len(rows) > 1 else "the one node"
        verb = "has" if len(rows) > 1 else "does not have"
        why = f"{of_nodes[0].upper()}{of_nodes[1:]} of the pool {home} {verb} room for {which} ({counts}){near}{lends}."
        return Growth(Obstacle.ROOM, why, _with_room(nearest, home), above)


def _with_room(nearest: NearestMiss | None, pool: str) -> str:
    """Return what has to be free for one more instance, on the node that lacks the least."""
    lacks = nearest.missing if nearest is not None else ()
    amounts = [
        f"{readable(lack.name, lack.amount)} more {lack.name}" for lack in lacks if lack.kind is MissingKind.RESOURCE
    ]
    if nearest is None or len(amounts) != len(lacks):
        return f"A node of the pool {pool} that takes it."
    return f"{' and '.join(amounts)} free on {nearest.node} of the pool {pool}."


def _largest(reading: JobReading) -> Growth:
    """Return why a job has no larger size, whatever the room."""
    job, most = reading.record.job, reading.share.terms.max_instances
    if most < job.terms.max_instances:
        return Growth(Obstacle.MAXIMUM, f"No more than {most} completions are left to it.")
    size = reading.record.size
    if size < most:  # not all sizes are allowed
        return Growth(
            Obstacle.MAXIMUM, f"It has {size}, the largest size allowed to it.", f"Allow a size above {size}."
        )
    return Growth(Obstacle.MAXIMUM, f"It has its maximum of {most}.", f"Raise its maximum above {most}.")


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
