"""The pods of the chart: security, start, probes, stop and spread."""

from typing import Any

import pytest

from aischeduler import __version__
from aischeduler.daemon.journal_file import JournalLimits
from aischeduler.daemon.shutdown import GRACE_SECONDS
from aischeduler.kube.access.server import SERVICE_ACCOUNT
from tests.chart.rendering import Helm, Json, Rendered, Values

RESTRICTED_POD = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
HOST_FIELDS = {"hostNetwork", "hostPID", "hostIPC", "hostUsers"}


def pods(rendered: Rendered) -> list[Json]:
    """Return the specs of the pods of the Deployment and of `helm test`."""
    return [rendered.pod(), *(pod["spec"] for pod in rendered.all("Pod"))]


def test_pods_are_what_the_standard_restricted_demands(defaults: Rendered) -> None:
    for spec in pods(defaults):
        assert spec["securityContext"] == RESTRICTED_POD
        assert [container["securityContext"] for container in spec["containers"]] == [RESTRICTED_CONTAINER]
        assert HOST_FIELDS & spec.keys() == set()
        assert "initContainers" not in spec
        assert {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}} <= ALLOWED_VOLUMES
        ports = [port for container in spec["containers"] for port in container.get("ports", ())]
        assert [port for port in ports if "hostPort" in port] == []


def test_token_lives_for_an_hour_and_comes_where_the_scheduler_looks(defaults: Rendered) -> None:
    assert defaults.one("ServiceAccount")["automountServiceAccountToken"] is False
    for spec in pods(defaults):
        assert spec["automountServiceAccountToken"] is False
        (access,) = [volume for volume in spec["volumes"] if volume["name"] == "access"]
        token, authority, namespace = access["projected"]["sources"]
        assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
        assert authority["configMap"]["name"] == "kube-root-ca.crt"
        assert authority["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
        assert namespace["downwardAPI"]["items"] == [
            {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
        ]
        mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
        assert (mounts["access"]["mountPath"], mounts["access"]["readOnly"]) == (str(SERVICE_ACCOUNT), True)


def test_scheduler_runs_with_the_configuration_that_is_mounted(defaults: Rendered) -> None:
    container = defaults.container()
    assert container["args"] == ["run", "--config", "/etc/ai-scheduler/config.yaml"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["config"] == "/etc/ai-scheduler"
    assert "config.yaml" in defaults.one("ConfigMap")["data"]
    assert defaults.pod()["volumes"][0] == {"name": "config", "configMap": {"name": "ai-scheduler"}}


def test_everything_that_is_mounted_is_a_volume(defaults: Rendered) -> None:
    for spec in pods(defaults):
        mounted = [mount["name"] for mount in spec["containers"][0]["volumeMounts"]]
        assert mounted == [volume["name"] for volume in spec["volumes"]]


def test_only_the_temporary_directory_can_be_written_and_it_is_small(defaults: Rendered) -> None:
    writable = [mount for mount in defaults.container()["volumeMounts"] if not mount.get("readOnly")]
    assert writable == [{"name": "tmp", "mountPath": "/tmp"}]
    (volume,) = [volume for volume in defaults.pod()["volumes"] if volume["name"] == "tmp"]
    assert volume["emptyDir"] == {"sizeLimit": "16Mi"}


@pytest.mark.parametrize("port", [8080, 9443])
def test_probes_service_and_policy_use_the_port_of_the_configuration(helm: Helm, port: int) -> None:
    rendered = helm.render({} if port == 8080 else {"config": {"http": {"address": f":{port}"}}})
    container = rendered.container()
    assert container["ports"] == [{"name": "http", "containerPort": port, "protocol": "TCP"}]
    probes = [container["livenessProbe"]["httpGet"], container["readinessProbe"]["httpGet"]]
    assert probes == [{"path": "/livez", "port": "http"}, {"path": "/readyz", "port": "http"}]
    assert rendered.one("Service")["spec"]["ports"][0]["targetPort"] == "http"
    (ingress,) = rendered.one("NetworkPolicy")["spec"]["ingress"]
    assert ingress["ports"] == [{"port": "http", "protocol": "TCP"}]


def test_image_is_the_version_of_the_package(defaults: Rendered) -> None:
    assert defaults.container()["image"] == f"ghcr.io/aibee/ai-scheduler:{__version__}"
    assert {spec["containers"][0]["image"] for spec in pods(defaults)} == {defaults.container()["image"]}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"image": {"repository": "ai-scheduler"}}, "ai-scheduler"),
        ({"image": {"repository": "registry:5000/ai/scheduler"}}, "registry:5000/ai/scheduler"),
        ({"image": {"registry": "images.example"}}, "images.example/aibee/ai-scheduler"),
        ({"image": {"registry": "images.example", "repository": "ai/scheduler"}}, "images.example/ai/scheduler"),
        ({"image": {"registry": "images.example", "repository": "localhost/ai"}}, "images.example/ai"),
        ({"global": {"imageRegistry": "mirror.example:5000/ghcr"}}, "mirror.example:5000/ghcr/aibee/ai-scheduler"),
        ({"global": {"imageRegistry": "m"}, "image": {"registry": "images.example"}}, "m/aibee/ai-scheduler"),
    ],
)
def test_registry_of_the_parent_chart_or_the_values_takes_the_place_of_that_in_the_repository(
    helm: Helm, values: Values, name: str
) -> None:
    assert helm.render(values).container()["image"] == f"{name}:{__version__}"


def test_kubelet_waits_longer_than_the_scheduler_needs_to_stop(defaults: Rendered) -> None:
    assert defaults.pod()["terminationGracePeriodSeconds"] > GRACE_SECONDS


def test_new_pods_come_before_old_ones_go(defaults: Rendered) -> None:
    deployment = defaults.one("Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_without_an_election_the_old_pod_goes_first(helm: Helm) -> None:
    rendered = helm.render({"replicaCount": 1, "config": {"leaderElection": {"enabled": False}}})
    assert rendered.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_replicas_of_a_rollout_prefer_different_nodes_unless_the_values_say_otherwise(
    helm: Helm, defaults: Rendered
) -> None:
    def spread(*constraints: Json) -> list[Json]:
        found: list[Json] = helm.render({"topologySpreadConstraints": constraints}).pod()["topologySpreadConstraints"]
        return found

    (constraint,) = defaults.pod()["topologySpreadConstraints"]
    selector = defaults.one("Deployment")["spec"]["selector"]
    by_node = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    assert constraint == by_node | {"labelSelector": selector, "matchLabelKeys": ["pod-template-hash"]}
    assert "affinity" not in defaults.pod()
    by_zone = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    assert spread(by_node, by_zone) == [constraint, by_zone]
    chosen: Json = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert helm.render({"affinity": chosen}).pod()["affinity"] == chosen


def test_journal_goes_to_a_volume_of_its_own(helm: Helm) -> None:
    def volume(**values: Any) -> Json:
        rendered = helm.render({"journal": {"enabled": True, **values}})
        (path,) = [word.partition("=")[2] for word in rendered.container()["args"] if word.startswith("--journal=")]
        (mount,) = [mount for mount in rendered.container()["volumeMounts"] if mount["mountPath"] == path]
        (found,) = [volume for volume in rendered.pod()["volumes"] if volume["name"] == mount["name"]]
        return {kind: source for kind, source in found.items() if kind != "name"}

    assert volume() == {"emptyDir": {"sizeLimit": "2Gi"}}
    assert volume(sizeLimit="5Gi") == {"emptyDir": {"sizeLimit": "5Gi"}}
    assert volume(existingClaim="journals") == {"persistentVolumeClaim": {"claimName": "journals"}}


def test_volume_of_the_journal_is_larger_than_all_its_files(helm: Helm) -> None:
    limits = JournalLimits()
    (volume,) = [
        one for one in helm.render({"journal": {"enabled": True}}).pod()["volumes"] if one["name"] == "journal"
    ]
    assert volume["emptyDir"]["sizeLimit"] == "2Gi"
    assert limits.all_bytes + limits.file_bytes < 2 * 1024**3


def test_pods_on_the_network_of_their_node_stop_before_new_ones_need_the_port(helm: Helm) -> None:
    rendered = helm.render({"hostNetwork": True})
    pod, strategy = rendered.pod(), rendered.one("Deployment")["spec"]["strategy"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_startup_probe_asks_whether_the_scheduler_lives(helm: Helm, defaults: Rendered) -> None:
    assert "startupProbe" not in defaults.container()
    probe = helm.render({"startupProbe": {"failureThreshold": 24}}).container()["startupProbe"]
    assert probe == {"httpGet": {"path": "/livez", "port": "http"}, "failureThreshold": 24}


def test_every_selector_finds_the_schedulers_pods_and_not_the_test(defaults: Rendered) -> None:
    template = defaults.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    (test,) = defaults.all("Pod")
    selectors = [
        defaults.one("Deployment")["spec"]["selector"]["matchLabels"],
        defaults.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        defaults.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        defaults.one("Service")["spec"]["selector"],
    ]
    for selector in selectors:
        assert selector.items() <= template.items()
        assert not selector.items() <= test["metadata"]["labels"].items()


def test_policy_lets_the_pods_reach_the_api_server_and_dns(helm: Helm, defaults: Rendered) -> None:
    spec = defaults.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    api, dns = spec["egress"]
    assert [port["port"] for port in api["ports"]] == [443, 6443, 8443, 16443]
    assert [(port["port"], port["protocol"]) for port in dns["ports"]] == [(53, "UDP"), (53, "TCP")]
    own = helm.render({"networkPolicy": {"apiServerPorts": [7443]}}).one("NetworkPolicy")["spec"]
    assert own["egress"][0]["ports"] == [{"port": 7443, "protocol": "TCP"}]


def test_policy_lets_only_the_named_peers_read_the_metrics_and_nobody_without_a_name(
    helm: Helm, defaults: Rendered
) -> None:
    def readers(peers: list[Json]) -> list[list[Json]]:
        policy = helm.render({"networkPolicy": {"metricsFrom": peers}}).one("NetworkPolicy")
        return [rule["from"] for rule in policy["spec"]["ingress"]]

    (rule,) = defaults.one("NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    asked: list[Json] = [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}]
    assert readers(asked) == [asked]
    assert readers([]) == []


def test_policies_let_the_pods_reach_what_the_values_add(helm: Helm) -> None:
    proxy = {"to": [{"ipBlock": {"cidr": "10.0.0.8/32"}}], "ports": [{"port": 3128, "protocol": "TCP"}]}
    rendered = helm.render({"operator": {"enabled": True}, "networkPolicy": {"extraEgress": [proxy]}})
    policies = rendered.all("NetworkPolicy")
    assert [policy["spec"]["egress"][-1] for policy in policies] == [proxy, proxy]
    assert [len(policy["spec"]["egress"]) for policy in policies] == [3, 3]


def test_helm_test_asks_for_the_pools_as_the_scheduler(defaults: Rendered) -> None:
    (test,) = defaults.all("Pod")
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert test["spec"]["serviceAccountName"] == defaults.pod()["serviceAccountName"]
    assert test["spec"]["containers"][0]["args"] == ["pools"]
    assert test["spec"]["restartPolicy"] == "Never"
