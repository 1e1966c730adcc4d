"""TrainingJobs and an elastic Job grow, shrink and end while the scheduler and the operator are killed."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import count
from random import Random  # noqa: TID251 - seeded by the run
from typing import Any

import pytest

from aischeduler.model.elastic import (
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
    RESIZE_REASON_KEY,
    RESIZED_AT_KEY,
)
from aischeduler.model.gang import GANG_ROLE_KEY
from aischeduler.model.names import POOL_KEY
from tests import seeds
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, create_pools
from tests.e2e.daemon import Daemon
from tests.e2e.elastic_stage import JOBS, POOL, Sizes, elastic_job
from tests.e2e.history_invariants import REMOVALS, Asked
from tests.e2e.operator_program import OURS, OperatorProgram, fail
from tests.e2e.rules import finished
from tests.objects import Json, node_object, pod_object, pool_object
from tests.operator.training_world import training_job

KILLS = [3, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
NODES, CPUS = 2, 8
WINDOW_SECONDS = 2
FULL = 9
"""With so many instances beside masters and pservers no node has room for a home pod."""
HOMES_MAX = 2
"""At most so many home pods, of two CPUs each, so that every minimum fits beside them."""
CALM_SECONDS = 120.0
TRAINING_JOBS = f"/apis/{OURS}/namespaces/{{}}/trainingjobs"
INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
GANG = "resource.aibee.cn/gang"
ATTEMPT = "resource.aibee.cn/attempt"
SHAPES: dict[str, Json] = {
    "wide": {"least": 2, "most": 6, "pservers": 1, "priorityLevel": "Offline"},
    "narrow": {"least": 1, "most": 5, "pservers": 2},
}
PLAIN = "plain"
PLAIN_BOUNDS = (2, 6)


def notes(document: Json) -> dict[str, str]:
    found: dict[str, str] = document["metadata"].get("annotations", {})
    return found


def labels(document: Json) -> dict[str, str]:
    found: dict[str, str] = document["metadata"].get("labels", {})
    return found


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Watch(Sizes):
    """Judges each change: no instance twice or failed, sizes within bounds, windows held, surplus alone for others."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.wrong: list[str] = []
        self.excused: set[str] = set()
        """The uids of the pods that the test itself ends."""
        self.resizes: Counter[str] = Counter()
        """What the sizes changed for -> how often."""
        self._live: dict[tuple[str, str], str] = {}
        """Job and index -> the pod that has it and stays."""
        self._attempts: dict[tuple[str, str, str], str] = {}
        """TrainingJob, name and attempt -> uid."""
        self._marked: dict[str, tuple[int, Json]] = {}
        """The pods that are to go for others, by uid, with the version that said so first."""
        self._sizes: dict[str, list[tuple[int, int]]] = {}
        """Job -> its sizes, each with the version that said it."""

    def hear(self, plural: str, document: Json, *, gone: bool, at: float) -> None:
        """Judge a change, then record it."""
        if plural == "jobs" and not gone:
            self._judge_job(document, self._now["jobs"].get((document["metadata"]["namespace"], _name(document))))
        elif plural == "pods":
            self._judge_pod(document, gone=gone)
        super().hear(plural, document, gone=gone, at=at)

    def of_kind(self, plural: str, namespace: str) -> dict[str, Json]:
        """Return the objects of a namespace by name, as they are now."""
        return {name: one for (of, name), one in list(self._now.get(plural, {}).items()) if of == namespace}

    def evicted(self) -> list[str]:
        """Return the pods that were to go for others and were no surplus: their Job had no smaller size before."""
        return [_name(pod) for version, pod in list(self._marked.values()) if not self._was_surplus(pod, version)]

    def _was_surplus(self, pod: Json, version: int) -> bool:
        sizes = self._sizes.get(labels(pod).get(JOB_NAME, ""), [])
        before = [size for at, size in sizes if at < version]
        return INDEX in labels(pod) and bool(before) and before[-1] <= int(labels(pod)[INDEX])

    def _judge_job(self, document: Json, before: Json | None) -> None:
        spec, told, name = document["spec"], notes(document), _name(document)
        size = spec["parallelism"]
        self._sizes.setdefault(name, []).append((_version(document), size))
        if spec["completions"] != size:
            self.wrong.append(f"{name}: {spec['completions']} completions of parallelism {size}")
        if not int(told[MIN_INSTANCES_KEY]) <= size <= int(told[MAX_INSTANCES_KEY]):
            self.wrong.append(f"{name}: the size {size} is not within its bounds")
        if document.get("status", {}).get("failed", 0):
            self.wrong.append(f"{name}: an instance counts as failed")
        if before is None or before["metadata"]["uid"] != document["metadata"]["uid"]:
            return
        last, now = notes(before).get(RESIZED_AT_KEY, ""), told.get(RESIZED_AT_KEY, "")
        if size < before["spec"]["parallelism"]:
            self.resizes[_whose(told.get(RESIZE_REASON_KEY, ""))] += 1
        elif size > before["spec"]["parallelism"]:
            self.resizes["growth"] += 1
            window = float(told[FREEZING_WINDOW_KEY].removesuffix("s"))
            if now == last or (last and moment(now) - moment(last) < window):
                self.wrong.append(f"{name}: grew to {size} at {now or 'no moment'}, resized last at {last}")

    def _judge_pod(self, pod: Json, *, gone: bool) -> None:
        metadata, name = pod["metadata"], _name(pod)
        uid, stays = metadata["uid"], not (gone or finished(pod) or "deletionTimestamp" in metadata)
        if pod["status"].get("phase") == "Failed" and uid not in self.excused:
            self.wrong.append(f"{name}: failed, {pod['status']}")
        if condition(pod, "DisruptionTarget").get("status") == "True":
            self._marked.setdefault(uid, (_version(pod), pod))
        if INDEX in labels(pod):
            place = labels(pod)[JOB_NAME], labels(pod)[INDEX]
            if stays and self._live.setdefault(place, uid) != uid:
                self.wrong.append(f"{name}: there are two of its index")
            elif not stays and self._live.get(place) == uid:
                del self._live[place]
        elif (
            GANG in labels(pod)
            and self._attempts.setdefault((labels(pod)[GANG], name, notes(pod)[ATTEMPT]), uid) != uid
        ):
            self.wrong.append(f"{name}: made twice")


def _whose(why: str) -> str:
    """Return for what a job has shrunk, by the reason that the scheduler wrote."""
    if why.startswith("Its room goes to "):
        return "for a pod" if why.startswith("Its room goes to the pod ") else "for a job"
    return why


def _name(document: Json) -> str:
    found: str = document["metadata"]["name"]
    return found


def _version(document: Json) -> int:
    return int(document["metadata"]["resourceVersion"])


class Day:
    """Two TrainingJobs and a Job at any time, those that end followed by others; and home pods that come and go."""

    def __init__(self, plane: ControlPlane, namespace: str, watch: Watch, chance: Random) -> None:
        self.plane, self.namespace, self.watch, self.chance = plane, namespace, watch, chance
        self._numbers = count(1)
        self.running: dict[str, str] = {}
        """Shape -> the name of the job of that shape that goes on."""
        self.ended: list[str] = []
        """The names of the jobs whose instances end well as soon as they run."""
        self.homes: list[str] = []
        self.lost: dict[str, int] = {}
        """TrainingJob -> how many of its pods the test has ended."""
        self._deck: list[Callable[[], None]] = []
        for shape in (*SHAPES, PLAIN):
            self.begin(shape)

    def begin(self, shape: str) -> None:
        """Create the next job of a shape."""
        name = self.running[shape] = f"{shape}-{next(self._numbers)}"
        window = f"{WINDOW_SECONDS}s"
        if shape == PLAIN:
            document = elastic_job(self.namespace, name, *PLAIN_BOUNDS, window=window)
            notes(document)[PRIORITY_LEVEL_KEY] = "Experiment"
            path = JOBS.format(self.namespace)
        else:
            document = training_job(
                name=name, annotations={POOL_KEY: POOL}, freezingWindow=window, backoffLimit=0, **SHAPES[shape]
            )
            document["metadata"]["namespace"] = self.namespace
            path = TRAINING_JOBS.format(self.namespace)
        created = self.plane.api("POST", path, document)
        assert created.status == 201, created.body

    def deed(self) -> None:
        """Do one of the deeds; each comes before any comes again."""
        if not self._deck:
            self._deck = [self.home_comes, self.home_goes, self.training_ends, self.job_ends, self.pod_is_lost]
            self.chance.shuffle(self._deck)
        self._deck.pop()()

    def home_comes(self) -> None:
        if len(self.homes) < HOMES_MAX:
            self.homes.append(f"home-{next(self._numbers)}")
            home = pod_object(self.homes[-1], namespace=self.namespace, cpu="2", memory="64Mi", pool=POOL)
            create_pods(self.plane, self.namespace, [home])

    def home_goes(self) -> None:
        if self.homes:
            self._delete(self.homes.pop(0))

    def training_ends(self) -> None:
        self._end(self.chance.choice(list(SHAPES)))

    def job_ends(self) -> None:
        self._end(PLAIN)

    def _end(self, shape: str) -> None:
        self.ended.append(self.running[shape])
        self.begin(shape)

    def pod_is_lost(self) -> None:
        """End a master or a pserver that its TrainingJob has counted. Nobody can count one that is lost before."""
        found = [
            pod
            for shape in SHAPES
            for name, pod in self.pods(self.running[shape]).items()
            if INDEX not in labels(pod)
            and pod["status"].get("phase") == "Running"
            and self.attempts(self.running[shape]).get(name) == int(notes(pod)[ATTEMPT])
        ]
        if not found:
            return
        pod = self.chance.choice(found)
        self.watch.excused.add(pod["metadata"]["uid"])
        self.lost[labels(pod)[GANG]] = self.lost.get(labels(pod)[GANG], 0) + 1
        if self.chance.random() < 0.5:
            fail(self.plane, pod)
        else:
            self._delete(_name(pod))

    def _delete(self, name: str) -> None:
        deleted = self.plane.api("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        assert deleted.status == 200, deleted.body

    def end_instances(self) -> None:
        """Report that the programs of the jobs that are to end have ended well, as their kubelets do."""
        for name in self.ended:
            for pod in self.instances(name).values():
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": "Succeeded"}}
                    self.plane.api("PATCH", f"/api/v1/namespaces/{self.namespace}/pods/{_name(pod)}/status", body)

    def live(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.end_instances()
            time.sleep(0.1)

    def status(self, name: str) -> Any:
        return self.plane.api("GET", f"{TRAINING_JOBS.format(self.namespace)}/{name}").body.get("status", {})

    def attempts(self, name: str) -> dict[str, int]:
        """Return the attempts of each pod that the record of a TrainingJob has."""
        roles = self.status(name).get("replicaStatuses", ())
        return {f"{name}-{one['role']}-{n}": tries for one in roles for n, tries in enumerate(one.get("attempts", ()))}

    def pods(self, name: str) -> dict[str, Json]:
        """Return all pods of a TrainingJob."""
        found = self.watch.of_kind("pods", self.namespace)
        return {one: pod for one, pod in found.items() if labels(pod).get(GANG) == name}

    def instances(self, name: str) -> dict[str, Json]:
        """Return the pods of an elastic Job, that of a TrainingJob too, by name."""
        found = self.watch.of_kind("pods", self.namespace)
        jobs = name, f"{name}-trainer"
        return {one: pod for one, pod in found.items() if labels(pod).get(JOB_NAME) in jobs}

    def size(self) -> int:
        """Return how many instances of the jobs that go on run."""
        return sum(sum(map(_runs, self.instances(name).values())) for name in self.running.values())

    def job(self, name: str) -> Json:
        """Return the Job of a name, or of a TrainingJob; empty where there is none."""
        found = self.watch.of_kind("jobs", self.namespace)
        return found.get(name) or found.get(f"{name}-trainer") or {}

    def faults(self) -> Iterator[str]:
        """Yield what is not yet as it must be once all has calmed down."""
        self.end_instances()
        for name in self.ended:
            yield from self._faults_of_ended(name)
        for shape, name in self.running.items():
            yield from self._faults_of_running(shape, name)
        pods = self.watch.of_kind("pods", self.namespace)
        yield from (f"{name} does not run" for name in self.homes if not _runs(pods.get(name)))

    def _faults_of_ended(self, name: str) -> Iterator[str]:
        job = self.job(name)
        if condition(job, "Complete").get("status") != "True":
            yield f"{name} is not complete: {job.get('status')}"
        if name.startswith(PLAIN):
            return
        status, size = self.status(name), job["spec"]["parallelism"]
        done = [one["succeeded"] for one in status.get("replicaStatuses", ()) if one["role"] == "trainer"]
        if (status.get("phase"), done) != ("succeeded", [size]):
            yield f"{name} of {size} trainers has the status {status}"
        if left := sorted(self.pods(name)):
            yield f"{name} has ended, and there are {left}"

    def _faults_of_running(self, shape: str, name: str) -> Iterator[str]:
        job = self.job(name)
        if not job:
            yield f"{name} has no Job"
            return
        size, there = job["spec"]["parallelism"], self.instances(name).values()
        if not all(map(_runs, there)) or sorted(int(labels(pod)[INDEX]) for pod in there) != list(range(size)):
            yield f"{name} of {size} has the instances {[_name(pod) for pod in there]}"
        if shape == PLAIN:
            return
        asked, status, pods = SHAPES[shape], self.status(name), self.pods(name)
        roles = sorted(labels(pod)[GANG_ROLE_KEY] for pod in pods.values() if _runs(pod))
        if roles != ["master", *["pserver"] * asked["pservers"], *["trainer"] * size]:
            yield f"{name} of {size} trainers has the pods {list(pods)}"
        counts = {one["role"]: (one["running"], one["pending"]) for one in status.get("replicaStatuses", ())}
        found = status.get("phase"), status.get("trainersReady"), status.get("restarts"), counts
        ready = f"{size}/{size}/{asked['least']}-{asked['most']}"
        all_run = {"master": (1, 0), "pserver": (asked["pservers"], 0), "trainer": (size, 0)}
        if found != ("running", ready, self.lost.get(name, 0), all_run):
            yield f"{name} of {size} trainers, of which {self.lost.get(name, 0)} pods were lost: {found}"


def _runs(pod: Json | None) -> bool:
    return pod is not None and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None) -> None:
    """Create a pool of two nodes of eight CPUs."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [a_node_of_the_team(number) for number in range(NODES)])


def a_node_of_the_team(number: int) -> Json:
    return node_object(f"node-{number}", cpu=str(CPUS), labels={"team": "a"})


@pytest.mark.parametrize("kills", KILLS)
def test_killed_scheduler_and_operator_lose_no_instance_and_evict_none(
    control_plane: ControlPlane, operator: OperatorProgram, daemon: Daemon, kubelets: Part, namespace: str, kills: int
) -> None:
    """Every change is judged as it comes; when all is calm, objects and status say the same.

    On one node more it is calm: pods that run are not moved, and a low minimum may wait long beside higher surplus.
    """
    chance, since = Random(seeds.seed()), control_plane.audit_log.stat().st_size
    with Watch(control_plane) as watch:
        daemon.start()
        day = Day(control_plane, namespace, watch, chance)

        def calm(what: str) -> None:
            watch.wait_until(
                lambda: bool(watch.wrong) or not list(day.faults()), what, CALM_SECONDS, lambda: list(day.faults())
            )
            assert (watch.wrong, watch.evicted()) == ([], [])

        calm("the jobs running")
        watch.wait_until(lambda: day.size() >= FULL, "a full pool", lacks=lambda: watch.sizes)
        day.home_comes()
        for _ in range(kills):
            day.deed()
            day.live(chance.uniform(0.2, 2.5))
            day.deed()
            day.live(chance.choice((0.0, chance.uniform(0.0, 0.1), chance.uniform(0.1, 1.5))))
            programs: list[Daemon | OperatorProgram] = [daemon, operator]
            chance.shuffle(programs)
            for program in programs:
                program.kill()
                day.live(chance.uniform(0.0, 0.5))
            assert watch.wrong == []
            if chance.random() < 0.5:
                day.deed()
            chance.shuffle(programs)
            for program in programs:
                program.start()
        create_nodes(control_plane, [a_node_of_the_team(NODES)])
        calm("all jobs calm")
        day.ended += day.running.values()
        day.running.clear()
        calm("all jobs at their end")
        print(dict(watch.resizes), f"{len(day.ended)} jobs, {sum(day.lost.values())} pods lost")
        assert watch.resizes["growth"]
        assert watch.resizes["for a pod"] + watch.resizes["for a job"]
    asked = Asked.since(control_plane, since).by_object
    assert [about for about in asked if about.startswith(REMOVALS)] == []
