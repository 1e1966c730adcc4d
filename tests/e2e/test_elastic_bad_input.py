"""What users see who ask for elastic jobs that cannot be: conditions, events, and the same words in `explain`."""

import time
from typing import Any

import pytest

from aischeduler.model.elastic import (
    ALLOWED_INSTANCES_KEY,
    FREEZING_WINDOW_KEY,
    MAX_INSTANCES_KEY,
    MIN_INSTANCES_KEY,
    PRIORITY_LEVEL_KEY,
)
from aischeduler.model.names import POOL_KEY
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    apply,
    condition,
    create_namespace,
    create_nodes,
    create_pools,
    events,
    kubectl,
    pod,
    wait_until,
)
from tests.e2e.daemon import Daemon
from tests.e2e.elastic_stage import POOL, elastic_job, job
from tests.e2e.operator_program import OURS, OperatorProgram
from tests.e2e.test_access import command
from tests.e2e.test_training_jobs import PADDLE_DEFINITION
from tests.objects import Json, node_object, pool_object
from tests.operator.training_world import PADDLE, SMALL, paddle_job, training_job

CPUS = 12
MIN, MAX = f"metadata.annotations[{MIN_INSTANCES_KEY}]", f"metadata.annotations[{MAX_INSTANCES_KEY}]"
ALLOWED = f"metadata.annotations[{ALLOWED_INSTANCES_KEY}]"
NUMBER = "must be a whole number from 1 to 5000"
ANEW = "Delete the TrainingJob and create it again for that"
REFUSED: dict[str, tuple[Json, str]] = {
    "crossed": (
        {"trainer": {"minInstances": 5, "maxInstances": 2, "resources": SMALL}},
        "spec.trainer.minInstances is 5, more than maxInstances, which is 2: lower it, or raise that",
    ),
    "crossed-pservers": (
        {"pserver": {"minInstances": 3, "maxInstances": 2, "resources": SMALL}},
        "spec.pserver.minInstances is 3, more than maxInstances, which is 2: lower it, or raise that",
    ),
    "no-resources": (
        {"trainer": {"minInstances": 2, "maxInstances": 4, "resources": {}}},
        "spec.trainer.resources has neither requests nor limits, and an instance needs one of them",
    ),
    "no-pserver-resources": (
        {"pserver": {"minInstances": 1}},
        "spec.pserver.resources has neither requests nor limits, and an instance needs one of them",
    ),
    "too-many": (
        {"trainer": {"minInstances": 2, "maxInstances": 5_000, "resources": SMALL}},
        "spec.trainer.maxInstances is 5000: with master and pservers that is 5002 pods, and at most 5000 are possible",
    ),
    "window": (
        {"freezingWindow": "5 minutes"},
        "spec.freezingWindow: must be a duration such as 30s, 5m, 1h30m or 0, not '5 minutes'",
    ),
}
"""TrainingJob -> its spec, and why it is refused."""
INVALID: dict[str, tuple[dict[str, str], str]] = {
    "crossed": ({MIN_INSTANCES_KEY: "5"}, f"{MIN}: must be at most 4, the maximum in {MAX_INSTANCES_KEY}, not 5"),
    "zero": ({MIN_INSTANCES_KEY: "0"}, f"{MIN}: {NUMBER}, not '0'"),
    "negative": ({MAX_INSTANCES_KEY: "-1"}, f"{MAX}: {NUMBER}, not '-1'"),
    "words": ({MIN_INSTANCES_KEY: "two"}, f"{MIN}: {NUMBER}, not 'two'"),
    "no-maximum": ({MAX_INSTANCES_KEY: ""}, f"{MAX}: is missing, and {MIN_INSTANCES_KEY} needs it"),
    "allowed": ({ALLOWED_INSTANCES_KEY: "2 4"}, f"{ALLOWED}: must be whole numbers such as 1,2,4,8, not '2 4'"),
    "level": (
        {PRIORITY_LEVEL_KEY: "High"},
        f"metadata.annotations[{PRIORITY_LEVEL_KEY}]: 'High' is not one of Experiment, Offline, Normal, Production",
    ),
    "window": (
        {FREEZING_WINDOW_KEY: "5 minutes"},
        f"metadata.annotations[{FREEZING_WINDOW_KEY}]: must be a duration such as 30s, 5m, 1h30m or 0, not '5 minutes'",
    ),
}
"""Job -> what it says beside a minimum of 2 and a maximum of 4, and what is wrong."""


@pytest.fixture(autouse=True)
def team(control_plane: ControlPlane, clean_cluster: None, pools_served: None, kubelets: Part, daemon: Daemon) -> None:
    """Create a pool of one node, with kubelets and the scheduler."""
    create_pools(control_plane, pool_object(POOL, labels={"team": "a"}))
    create_nodes(control_plane, [node_object("node", cpu=str(CPUS), labels={"team": "a"})])
    daemon.start()


def in_team(**more: Any) -> Json:
    return training_job(annotations={POOL_KEY: POOL}, freezingWindow="1s", **more)


def training(plane: ControlPlane, namespace: str, name: str = "train") -> Any:
    return plane.api("GET", f"/apis/{OURS}/namespaces/{namespace}/trainingjobs/{name}").body


def shows(plane: ControlPlane, namespace: str, **wanted: str) -> bool:
    """Return whether the status of the TrainingJob `train` has these values."""
    status = training(plane, namespace).get("status", {})
    return {name: status.get(name) for name in wanted} == wanted


def explained(plane: ControlPlane, about: str, namespace: str) -> str:
    """Return what `explain` says, without line breaks."""
    shown = command("explain", about, "-n", namespace, "--kubeconfig", str(plane.kubeconfig))
    return " ".join((shown.stdout + shown.stderr).split())


def annotate(plane: ControlPlane, namespace: str, name: str, **terms: str) -> None:
    keys = {"least": MIN_INSTANCES_KEY, "most": MAX_INSTANCES_KEY}
    said = (f"{keys[which]}={value}" for which, value in terms.items())
    kubectl(plane, "annotate", "job", name, "-n", namespace, "--overwrite", *said)


def end(plane: ControlPlane, namespace: str, of_job: str) -> None:
    """Report that the programs of a Job's pods have ended well, as their kubelets do."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    for found in plane.api("GET", f"{path}?labelSelector=batch.kubernetes.io/job-name={of_job}").body["items"]:
        plane.api("PATCH", f"{path}/{found['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})


def test_training_job_that_cannot_be_carried_out_has_a_condition_and_an_event(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    documents = []
    for name, (changes, _) in REFUSED.items():
        document = in_team(name=name)
        document["spec"] |= changes
        documents.append(document)
    apply(control_plane, *documents, namespace=namespace)
    sentences = {name: sentence for name, (_, sentence) in REFUSED.items()}
    wait_until(lambda: events(control_plane, namespace, "Invalid") == sentences, "an event of each")
    found = {name: condition(training(control_plane, namespace, name), "Accepted") for name in REFUSED}
    assert {name: one["message"] for name, one in found.items()} == sentences
    assert {one["status"] for one in found.values()} == {"False"}
    assert kubectl(control_plane, "get", "pods,jobs,services", "-n", namespace, "-o", "name") == ""


def test_job_whose_annotations_cannot_be_read_has_an_event_and_explain_says_the_same(
    control_plane: ControlPlane, namespace: str
) -> None:
    documents = []
    for name, (terms, _) in INVALID.items():
        document = elastic_job(namespace, name, 2, 4)
        document["metadata"]["annotations"].update(terms)
        document["spec"] |= {"parallelism": 1, "completions": 1}
        documents.append(document)
    apply(control_plane, *documents)
    sentences = {name: f"{sentence}. It keeps its size." for name, (_, sentence) in INVALID.items()}
    wait_until(lambda: events(control_plane, namespace, "InvalidElastic") == sentences, "an event of each")
    for name, sentence in sentences.items():
        wanted = f"Job/{namespace}/{name} asks to be elastic and is not: {sentence} Correct its annotations."
        assert explained(control_plane, f"job/{name}", namespace).startswith(wanted)
        assert job(control_plane, namespace, name)["spec"]["parallelism"] == 1


def test_sizes_outside_of_the_bounds_are_told_and_the_others_count(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    plain = elastic_job(namespace, "plain", 2, 4)
    plain["metadata"]["annotations"][ALLOWED_INSTANCES_KEY] = "1,2,4,16"
    apply(control_plane, plain, in_team(trainer={"allowedInstances": [1, 2, 4, 16]}), namespace=namespace)
    said = "spec.trainer.allowedInstances: 1, 16 have no effect outside minInstances 2 to maxInstances 4"
    wait_until(lambda: events(control_plane, namespace, "IgnoredField") == {"train": said}, "an event of the first")
    bounds = f"outside {MIN_INSTANCES_KEY} 2 to {MAX_INSTANCES_KEY} 4"
    noted = {"plain": f"{ALLOWED}: 1, 16 have no effect {bounds}"}
    wait_until(lambda: events(control_plane, namespace, "InvalidElastic") == noted, "an event of the second")
    assert noted["plain"] in explained(control_plane, "job/plain", namespace)
    wait_until(lambda: shows(control_plane, namespace, trainersReady="4/4/2-4"), "the TrainingJob grown")
    wait_until(lambda: job(control_plane, namespace, "plain")["spec"]["parallelism"] == 4, "the Job grown")
    assert events(control_plane, namespace, "WaitsForRoom") == {}, "of what starts at once"


def test_minimum_above_what_the_cluster_has_waits_in_the_words_of_the_scheduler(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    apply(control_plane, elastic_job(namespace, "plain", 60, 80), in_team(least=60, most=80), namespace=namespace)
    lacks = "master has 0 of at least 1; pserver has 0 of at least 1; trainer has 0 of at least 60: "
    fit = f"{CPUS} of the 62 pods that start together fit. The next, train-"

    def said() -> str:
        return events(control_plane, namespace, "WaitsForRoom").get("train", "")

    wait_until(lambda: said().startswith(lacks), "an event")
    wait_until(
        lambda: condition(training(control_plane, namespace), "Scheduled")["message"].startswith(lacks + fit),
        "a condition",
    )
    scheduled = condition(training(control_plane, namespace), "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "WaitsForRoom")
    assert "1 Insufficient cpu" in scheduled["message"]
    told = explained(control_plane, "job/plain", namespace)
    assert "Fewer pods than its minimum of 60 are on nodes" in told
    assert f"{CPUS} of the 60 pods that start together fit" in told


def test_edits_of_a_training_job_that_scales_take_effect_or_are_told(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    def edit(**more: Any) -> None:
        apply(control_plane, in_team(**more), namespace=namespace)

    edit(most=6)
    wait_until(lambda: job(control_plane, namespace, "train-trainer").get("spec", {}).get("parallelism") == 6, "growth")
    edit(most=3)
    wait_until(lambda: shows(control_plane, namespace, phase="running", trainersReady="3/3/2-3"), "the new maximum")
    edit(least=1, most=3, pservers=2)
    ignored = "the edit of spec.pserver.minInstances, spec.trainer.minInstances has no effect: "
    ignored += f"the pods that run were started together without it. {ANEW}"
    wait_until(lambda: events(control_plane, namespace, "EditIgnored") == {"train": ignored}, "an event")
    edit(least=5, most=3)
    crossed = "spec.trainer.minInstances is 5, more than maxInstances, which is 3: lower it, or raise that"
    wait_until(lambda: events(control_plane, namespace, "Invalid") == {"train": crossed}, "a refusal")
    assert shows(control_plane, namespace, phase="running", trainersReady="3/3/2-3")
    edit(least=3, most=6)
    wait_until(lambda: shows(control_plane, namespace, phase="running", trainersReady="6/6/3-6"), "the mended bounds")
    assert condition(training(control_plane, namespace), "Accepted")["status"] == "True"
    end(control_plane, namespace, "train-trainer")
    wait_until(lambda: shows(control_plane, namespace, phase="succeeded"), "the end")
    edit(least=3, most=9)
    ended = f"the edit has no effect: the job has ended, and never starts again. {ANEW}"
    wait_until(lambda: events(control_plane, namespace, "EditIgnored") == {"train": ended}, "an event after the end")
    assert kubectl(control_plane, "get", "pods", "-n", namespace, "-o", "name") == ""
    assert shows(control_plane, namespace, phase="succeeded")


def test_edits_of_a_job_that_scales_take_effect_or_are_told(control_plane: ControlPlane, namespace: str) -> None:
    def size() -> Any:
        return job(control_plane, namespace, "train")["spec"]["parallelism"]

    apply(control_plane, elastic_job(namespace, "train", 2, 6, window="1s"))
    wait_until(lambda: size() == 6, "growth")
    annotate(control_plane, namespace, "train", least="8")
    crossed = f"{MIN}: must be at most 6, the maximum in {MAX_INSTANCES_KEY}, not 8. It keeps its size."
    wait_until(lambda: events(control_plane, namespace, "InvalidElastic") == {"train": crossed}, "an event")
    assert crossed in explained(control_plane, "job/train", namespace)
    assert size() == 6
    annotate(control_plane, namespace, "train", least="2", most="3")
    wait_until(lambda: size() == 3, "the new maximum")
    annotate(control_plane, namespace, "train", least="5", most="6")
    wait_until(lambda: size() == 6, "the new minimum, and growth")
    assert job(control_plane, namespace, "train")["status"].get("failed", 0) == 0

    def complete() -> bool:
        end(control_plane, namespace, "train")
        return bool(condition(job(control_plane, namespace, "train"), "Complete"))

    wait_until(complete, "the end")
    annotate(control_plane, namespace, "train", most="9")
    sentence = f"there is no unfinished pod of the Job {namespace}/train"
    assert sentence in explained(control_plane, "job/train", namespace)
    assert (size(), job(control_plane, namespace, "train")["spec"]["completions"]) == (6, 6)


def test_two_of_one_name_in_two_namespaces_run_and_the_deletion_of_one_leaves_the_other(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    other = f"{namespace}-other"
    create_namespace(control_plane, other)
    for where in (namespace, other):
        apply(control_plane, in_team(most=3), namespace=where)
    for where in (namespace, other):
        wait_until(lambda: shows(control_plane, where, trainersReady="3/3/2-3"), f"the one in {where}")  # noqa: B023
    kept = {name: pod(control_plane, other, name)["metadata"]["uid"] for name in ("train-master-0", "train-pserver-0")}
    kubectl(control_plane, "delete", "tj", "train", "-n", namespace, "--timeout=10s")
    left = ("get", "tj,jobs,pods,services", "-n", namespace, "-o", "name")
    wait_until(lambda: kubectl(control_plane, *left) == "", "nothing left")
    assert shows(control_plane, other, phase="running", trainersReady="3/3/2-3")
    assert kept == {name: pod(control_plane, other, name)["metadata"]["uid"] for name in kept}


def test_job_of_paddlepaddle_is_told_once_what_is_wrong_and_what_is_misplaced(
    control_plane: ControlPlane, namespace: str, operator: OperatorProgram
) -> None:
    """Its definition keeps no status, and the operator looks at it again after each of its own writes."""
    apply(control_plane, PADDLE_DEFINITION)
    wait_until(lambda: control_plane.api("GET", f"/apis/{PADDLE}/trainingjobs").status == 200, "the definition served")
    document = paddle_job({POOL_KEY: POOL}, host_network=False)
    document["spec"]["trainer"] |= {"passes": 3, "min-instance": 7, "resources": SMALL}
    del document["spec"]["NodeSelector"]
    apply(control_plane, document, namespace=namespace)
    crossed = "spec.trainer.min-instance is 7, more than max-instance, which is 6: lower it, or raise that"
    wait_until(lambda: events(control_plane, namespace, "Invalid") == {"train": crossed}, "a refusal")
    time.sleep(2.0)
    document["spec"]["trainer"]["min-instance"] = 2
    apply(control_plane, document, namespace=namespace)
    misplaced = "spec.trainer.passes has no effect; the field is spec.passes"
    wait_until(lambda: events(control_plane, namespace, "MisplacedField") == {"train": misplaced}, "an event")
    wait_until(lambda: job(control_plane, namespace, "train-trainer")["spec"]["parallelism"] == 6, "growth")
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    told = [one["reason"] for one in control_plane.api("GET", path).body["items"]]
    assert (told.count("Invalid"), told.count("MisplacedField")) == (1, 1)
    kubectl(control_plane, "delete", "trainingjobs.v1.paddlepaddle.org", "train", "-n", namespace)
    kubectl(control_plane, "delete", "crd", PADDLE_DEFINITION["metadata"]["name"])
