"""The device reporter in the chart: off by default, a pod on each node that reads and has few rights."""

import pytest

from tests.chart.rendering import Helm, Json, Rendered
from tests.chart.test_pods import RESTRICTED_CONTAINER
from tests.chart.test_rights import granted

NAME = "ai-scheduler-device-reporter"


@pytest.fixture
def on(helm: Helm) -> Rendered:
    return helm.render({"deviceReporter": {"enabled": True}})


def pod_of(rendered: Rendered) -> Json:
    spec: Json = rendered.one("DaemonSet", NAME)["spec"]["template"]["spec"]
    return spec


def test_reporter_is_off_by_default_and_changes_nothing_else(defaults: Rendered, on: Rendered) -> None:
    known = {(one["kind"], one["metadata"]["name"]): one for one in on.objects}
    assert [one for one in defaults.objects if known[(one["kind"], one["metadata"]["name"])] != one] == []
    assert sorted(set(known) - {(one["kind"], one["metadata"]["name"]) for one in defaults.objects}) == [
        ("ClusterRole", NAME),
        ("ClusterRoleBinding", NAME),
        ("DaemonSet", NAME),
        ("NetworkPolicy", NAME),
        ("ServiceAccount", NAME),
    ]


def test_reporter_has_the_rights_that_its_requests_need_and_no_others(on: Rendered) -> None:
    assert sorted(granted(on.one("ClusterRole", NAME))) == [
        ("", "nodes", "get"),
        ("", "nodes", "patch"),
        ("", "nodes/status", "patch"),
        ("", "pods", "list"),
        ("scheduling.koordinator.sh", "devices", "create"),
        ("scheduling.koordinator.sh", "devices", "get"),
        ("scheduling.koordinator.sh", "devices", "patch"),
    ]
    binding = on.one("ClusterRoleBinding", NAME)
    assert (binding["roleRef"]["name"], [one["name"] for one in binding["subjects"]]) == (NAME, [NAME])
    assert pod_of(on)["serviceAccountName"] == NAME


def test_pod_sees_the_node_and_can_write_nothing_of_it(on: Rendered) -> None:
    spec = pod_of(on)
    (container,) = spec["containers"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    root = next(word.partition("=")[2] for word in container["args"] if word.startswith("--host-root="))
    assert sorted(paths.values()) == ["/sys", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"]
    assert [name for name in paths if mounts[name]["mountPath"] != root + paths[name]] == []
    assert [name for name in mounts if mounts[name].get("readOnly") is not True] == []
    assert container["securityContext"] == RESTRICTED_CONTAINER
    assert spec["securityContext"] == {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}}


def test_pod_knows_its_node_and_reaches_the_driver(helm: Helm, on: Rendered) -> None:
    spec = pod_of(on)
    (container,) = spec["containers"]
    env = {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert env == {
        "NODE_NAME": "spec.nodeName",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "utility",
    }
    assert spec["runtimeClassName"] == "nvidia"
    without = helm.render({"deviceReporter": {"enabled": True, "runtimeClassName": ""}})
    assert "runtimeClassName" not in pod_of(without)


def test_values_reach_the_pod(helm: Helm) -> None:
    there = {"nodeSelector": {"nvidia.com/gpu.present": "true"}, "tolerations": [{"key": "gpu"}]}
    values = {"deviceReporter": {"enabled": True, "intervalSeconds": 10, "priorityClassName": "agents", **there}}
    spec = pod_of(helm.render({**values, "config": {"logging": {"level": "debug", "format": "console"}}}))
    assert spec["containers"][0]["args"] == [
        "device-reporter",
        "--interval=10",
        "--host-root=/host",
        "--log-format=console",
        "--log-level=debug",
    ]
    assert spec["priorityClassName"] == "agents"
    assert spec["tolerations"] == there["tolerations"]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"}


def test_no_selector_of_one_program_finds_the_pods_of_the_other(on: Rendered) -> None:
    daemon_set, deployment = on.one("DaemonSet", NAME)["spec"], on.one("Deployment")["spec"]
    labels = daemon_set["template"]["metadata"]["labels"]
    assert daemon_set["selector"]["matchLabels"].items() <= labels.items()
    assert on.one("NetworkPolicy", NAME)["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    assert not deployment["selector"]["matchLabels"].items() <= labels.items()
    assert not daemon_set["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()


def test_nobody_reaches_the_reporter_without_rbac_and_policies_it_is_a_pod_and_an_account(
    helm: Helm, on: Rendered
) -> None:
    spec = on.one("NetworkPolicy", NAME)["spec"]
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress", "Egress"], [])
    assert spec["egress"] == on.one("NetworkPolicy")["spec"]["egress"]
    values = {"deviceReporter": {"enabled": True}, "rbac": {"create": False}, "networkPolicy": {"enabled": False}}
    names = [one["kind"] for one in helm.render(values).objects if one["metadata"]["name"] == NAME]
    assert sorted(names) == ["DaemonSet", "ServiceAccount"]
