"""Gangs on the real API server: each example of the page starts whole, and a killed scheduler leaves no half."""

import json
import re
from collections import Counter
from random import Random  # noqa: TID251 - seeded by the run

import pytest
import yaml

from tests import seeds
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import CPU_POOL, GPU_POOL, ROOT, apply, create_pods, events, kubectl, pod
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.gang_objects import coscheduling_crd, gang_labels, pod_group_object, volcano_crd
from tests.objects import Json, pod_object

pytestmark = pytest.mark.usefixtures("cluster")

PAGE = (ROOT / "docs" / "gangs.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
KILLS = [3, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
MEMBERS = 4


@pytest.fixture
def definitions(control_plane: ControlPlane) -> None:
    """Install the PodGroups of Coscheduling and of Volcano."""
    crds = (coscheduling_crd(), volcano_crd())
    apply(control_plane, *crds)
    names = [f"crd/{one['metadata']['name']}" for one in crds]
    kubectl(control_plane, "wait", "--for=condition=Established", *names, "--timeout=60s")


def size_of(example: str) -> tuple[int, int]:
    """Return how many pods an example has, and how many of them start together."""
    documents = list(yaml.safe_load_all(example))
    jobs = sum(one["spec"]["parallelism"] for one in documents if one["kind"] == "Job")
    pods = jobs + sum(one["kind"] == "Pod" for one in documents)
    return pods, next((one["spec"]["minMember"] for one in documents if one["kind"] == "PodGroup"), pods)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_of_the_page_starts_whole(
    control_plane: ControlPlane, namespace: str, definitions: None, daemon: Daemon, history: History, number: int
) -> None:
    daemon.start()
    kubectl(control_plane, "apply", "-n", namespace, "-f", "-", stdin=EXAMPLES[number])
    pods, together = size_of(EXAMPLES[number])
    history.wait_for_bound(namespace, pods)
    decisions = Counter(one["decision"] for one in daemon.said("bind") if one["namespace"] == namespace)
    assert max(decisions.values()) >= together
    assert {node.partition("-")[0] for node in history.bound(namespace).values()} == {"gpu"}


def test_gang_that_does_not_fit_waits_whole_and_its_pod_group_says_why(
    control_plane: ControlPlane, namespace: str, definitions: None, daemon: Daemon, history: History
) -> None:
    daemon.start()
    group = pod_group_object("big", namespace=namespace, min_member=3, timeout_seconds=2)
    apply(control_plane, group, namespace=namespace)
    labels = {"scheduling.x-k8s.io/pod-group": "big"}
    cards = [1, 1, 99]
    pods = [
        pod_object(f"big-{turn}", namespace=namespace, cpu="1", gpu=count, pool=GPU_POOL, labels=labels)
        for turn, count in enumerate(cards)
    ]
    create_pods(control_plane, namespace, pods)
    part = "2 of the 3 pods that start together fit. The next, big-2: "

    def told() -> bool:
        return part in events(control_plane, namespace, "FailedScheduling").get("big-0", "")

    history.wait_until(told, "the reason with the largest part that fits")
    assert history.bound(namespace) == {}

    def failed() -> bool:
        shown = control_plane.kubectl("get", "podgroups.scheduling.x-k8s.io", "big", "-n", namespace, "-o", "json")
        return bool(json.loads(shown.stdout).get("status", {}).get("phase") == "Failed")

    history.wait_until(failed, "the phase Failed after the timeout")
    assert "did not start within 2 s" in events(control_plane, namespace, "FailedScheduling")["big"]


def gang(namespace: str, name: str) -> list[Json]:
    labels = gang_labels(name, str(MEMBERS))
    return [
        pod_object(f"{name}-{turn}", namespace=namespace, cpu="100m", memory="64Mi", pool=CPU_POOL, labels=labels)
        for turn in range(MEMBERS)
    ]


@pytest.mark.parametrize("kills", KILLS)
def test_scheduler_that_is_killed_many_times_leaves_no_half_gang_and_binds_no_pod_twice(
    control_plane: ControlPlane, namespace: str, daemon: Daemon, history: History, kills: int
) -> None:
    chance = Random(seeds.number("kills of a scheduler of gangs"))
    for turn in range(kills):
        daemon.start()
        for number in range(3):
            create_pods(control_plane, namespace, gang(namespace, f"g{turn}-{number}"))
        seen = turn * 3 * MEMBERS + chance.randrange(1, 3 * MEMBERS)
        history.wait_until(lambda seen=seen: len(history.bound(namespace)) >= seen, "some more Bindings", 60.0)  # type: ignore[misc]
        daemon.kill()
    daemon.start()
    history.wait_for_bound(namespace, kills * 3 * MEMBERS, seconds=120.0)
    sizes = Counter(name.rpartition("-")[0] for name in history.bound(namespace))
    assert set(sizes.values()) == {MEMBERS}
    assert [nodes for nodes in history.nodes_of().values() if len(nodes) > 1] == []
    assert history.overcommitted() == []
    assert pod(control_plane, namespace, "g0-0-0")["spec"]["nodeName"]
