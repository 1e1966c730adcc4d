"""Validation of the values, and the objects that they render."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from aischeduler.config.load import parse_config
from aischeduler.config.schema import Config
from tests.chart.rendering import CHART, Helm, RefusedError, Rendered, Values
from tools.chart import described_values

CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
EVERYTHING_ON: Values = {
    "replicaCount": 3,
    "image": {"registry": "images.example:5000/ai", "tag": "v9", "digest": "sha256:" + "a" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "commonLabels": {"team": "platform"},
    "deploymentAnnotations": {"example.com/owner": "platform"},
    "podLabels": {"team": "scheduling", "tier": "control"},
    "podAnnotations": {"example.com/scrape": "no"},
    "config": {"schedulerName": "gpu-scheduler", "eviction": "Evict", "http": {"address": ":9090"}},
    "extraArgs": ["--log-level=debug"],
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraContainers": [{"name": "proxy", "image": "images.example/proxy:1", "securityContext": CONFINED}],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}],
    "journal": {"enabled": True},
    "startupProbe": {"periodSeconds": 5},
    "serviceAccount": {"annotations": {"example.com/who": "us"}},
    "rbac": {"poolsForEveryone": True},
    "apiPriority": True,
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "scheduler"}},
        }
    ],
    "devices": {"installCRD": True},
    "operator": {"enabled": True, "defaultImage": "images.example/base:1"},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "metrics": {
        "serviceAnnotations": {"example.com/port": "9090"},
        "serviceMonitor": {"enabled": True, "labels": {"prometheus": "main"}},
        "prometheusRule": {"enabled": True, "labels": {"prometheus": "main"}, "runbookUrl": "https://docs.example/r"},
    },
    "grafanaDashboard": {"enabled": True, "annotations": {"example.com/folder": "AI"}},
    "networkPolicy": {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.8/32"}}], "ports": [{"port": 3128}]}],
    },
}
EVERYTHING_OFF: Values = {
    "replicaCount": 1,
    "config": {"leaderElection": {"enabled": False}, "disablePreemption": True},
    "serviceAccount": {"create": False},
    "rbac": {"create": False, "poolRoles": False},
    "apiPriority": False,
    "crds": {"install": False},
    "podDisruptionBudget": {"enabled": False},
    "metrics": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "priorityClassName": "",
    "tolerations": [],
}

PATTERN = "does not match pattern|Does not match pattern"


def unknown(name: str) -> str:
    return f"additional properties '{name}' not allowed|Additional property {name} is not allowed"


def missing(name: str) -> str:
    return f"missing propert(y|ies) .*'{name}'|{name} is required"


def other_type(given: str, wanted: str) -> str:
    return f"got {given}, want {wanted}|Expected: {wanted}, given: {given}"


def at_least(least: int) -> str:
    return f"minimum: got .*, want {least}$|Must be greater than or equal to {least}$"


def at_most(most: str) -> str:
    return f"maximum: got .*, want {most}$|Must be less than or equal to {most}$"


def one_of(*words: str) -> str:
    quoted = ", ".join(f"['\"]{word}['\"]" for word in words)
    return f"must be one of (the following: )?{quoted}"


WRONG: list[tuple[Values, str, str]] = [
    ({"replicas": 3}, "", unknown("replicas")),
    ({"replicaCount": "two"}, "replicaCount", other_type("string", "integer")),
    ({"replicaCount": -1}, "replicaCount", at_least(0)),
    ({"image": {"name": "x"}}, "image", unknown("name")),
    ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy", one_of("Always", "IfNotPresent", "Never")),
    ({"image": {"digest": "sha256:short"}}, "image.digest", PATTERN),
    ({"image": {"repository": "Upper/Case"}}, "image.repository", PATTERN),
    ({"imagePullSecrets": ["pull"]}, "imagePullSecrets.0", other_type("string", "object")),
    ({"fullnameOverride": "Not A Name"}, "fullnameOverride", PATTERN),
    ({"podLabels": {"team": "no spaces"}}, "podLabels.team", PATTERN),
    ({"podAnnotations": {"a": 1}}, "podAnnotations.a", other_type("(number|integer)", "string")),
    ({"config": {"bindInFligt": 3}}, "config", unknown("bindInFligt")),
    ({"config": {"bindInFlight": 300}}, "config.bindInFlight", at_most("256")),
    ({"config": {"eviction": "delete"}}, "config.eviction", one_of("Delete", "Evict")),
    ({"config": {"schedulerName": "Upper"}}, "config.schedulerName", PATTERN),
    ({"config": {"logging": {"level": "loud"}}}, "config.logging.level", one_of("debug", "error", "info", "warning")),
    ({"config": {"http": {"address": "127.0.0.1:8080"}}}, "config.http.address", PATTERN),
    ({"config": {"http": {"address": "none"}}}, "config.http.address", PATTERN),
    ({"config": {"http": {"address": ":0"}}}, "config.http.address", PATTERN),
    (
        {"config": {"leaderElection": {"enabled": "yes"}}},
        "config.leaderElection.enabled",
        other_type("string", "boolean"),
    ),
    ({"config": {"apiVersion": "v1"}}, "config.apiVersion", r"config\.resource\.aibee\.cn/v1alpha1"),
    ({"leaderElection": {"enabled": False}}, "", unknown("leaderElection")),
    ({"extraEnv": [{"value": "x"}]}, "extraEnv.0", missing("name")),
    (
        {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]},
        "extraVolumes.0.name",
        "'not' failed|Must not validate the schema",
    ),
    ({"extraVolumeMounts": [{"name": "x"}]}, "extraVolumeMounts.0", missing("mountPath")),
    (
        {"extraContainers": [{"name": "ai-scheduler"}]},
        "extraContainers.0.name",
        "'not' failed|Must not validate the schema",
    ),
    ({"extraObjects": [{"kind": "ConfigMap"}]}, "extraObjects.0", missing("apiVersion")),
    ({"journal": {"sizeLimit": "2 Gi"}}, "journal.sizeLimit", PATTERN),
    ({"startupProbe": {"httpGet": {}}}, "startupProbe", unknown("httpGet")),
    ({"hostNetwork": "yes"}, "hostNetwork", other_type("string", "boolean")),
    ({"global": {"imageRegistry": "a b"}}, "global.imageRegistry", PATTERN),
    ({"serviceAccount": {"token": True}}, "serviceAccount", unknown("token")),
    ({"rbac": {"create": "yes"}}, "rbac.create", other_type("string", "boolean")),
    ({"crds": {"installed": True}}, "crds", unknown("installed")),
    ({"devices": {"installCRD": "yes"}}, "devices.installCRD", other_type("string", "boolean")),
    ({"resources": {"limit": {}}}, "resources", unknown("limit")),
    ({"resources": {"limits": {"memory": "1 Gi"}}}, "resources.limits.memory", PATTERN),
    ({"nodeSelector": {"gpu": True}}, "nodeSelector.gpu", other_type("boolean", "string")),
    (
        {"tolerations": [{"effect": "Never"}]},
        "tolerations.0.effect",
        one_of("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    ),
    ({"affinity": {"antiAffinity": {}}}, "affinity", unknown("antiAffinity")),
    ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "topologySpreadConstraints.0", missing("topologyKey")),
    ({"terminationGracePeriodSeconds": 5}, "terminationGracePeriodSeconds", at_least(26)),
    ({"podSecurityContext": {"runAsRoot": True}}, "podSecurityContext", unknown("runAsRoot")),
    ({"securityContext": {"capabilities": {"keep": []}}}, "securityContext.capabilities", unknown("keep")),
    ({"operator": {"enable": True}}, "operator", unknown("enable")),
    ({"operator": {"defaultImage": "a b"}}, "operator.defaultImage", PATTERN),
    ({"operator": {"replicas": -1}}, "operator.replicas", at_least(0)),
    ({"podDisruptionBudget": {"maxUnavailable": "many"}}, "podDisruptionBudget.maxUnavailable", PATTERN),
    ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "metrics.serviceMonitor.interval", PATTERN),
    ({"metrics": {"prometheusRule": {"runbookUrl": "x#y"}}}, "metrics.prometheusRule.runbookUrl", PATTERN),
    ({"grafanaDashboard": {"enabled": 1}}, "grafanaDashboard.enabled", other_type("(number|integer)", "boolean")),
    ({"networkPolicy": {"apiServerPorts": [70000]}}, "networkPolicy.apiServerPorts.0", at_most("65,?535")),
    (
        {"networkPolicy": {"apiServerPorts": []}},
        "networkPolicy.apiServerPorts",
        "minItems: got 0, want 1|must have at least 1 items",
    ),
    ({"networkPolicy": {"metricsFrom": [{"pods": {}}]}}, "networkPolicy.metricsFrom.0", unknown("pods")),
    ({"networkPolicy": {"extraEgress": [{"from": []}]}}, "networkPolicy.extraEgress.0", unknown("from")),
]
"""Values, the path of the wrong value, and a pattern of the message."""

CONTRADICTIONS: list[tuple[Values, str]] = [
    (
        {"config": {"leaderElection": {"enabled": False}}},
        "config.leaderElection.enabled is false: without leader election all replicas would bind pods.",
    ),
    ({"extraArgs": ["--no-leader-elect"]}, "set config.leaderElection.enabled."),
    ({"extraArgs": ["--http-address=:9"]}, "set config.http.address."),
    (
        {"extraArgs": ["--config", "/other"]},
        "extraArgs contains --config, but other objects of the chart depend on its value: set config.",
    ),
    (
        {"journal": {"enabled": True}, "extraArgs": ["--journal=/other"]},
        "extraArgs contains --journal and journal.enabled is true: the scheduler writes one journal.",
    ),
    (
        {"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}},
        "metrics.serviceMonitor.enabled is true and metrics.enabled is false: there is no Service to scrape.",
    ),
    (
        {"rbac": {"poolRoles": False, "poolsForEveryone": True}},
        "rbac.poolsForEveryone is true and rbac.poolRoles is false: no cluster role exists that grants viewing Pools.",
    ),
]


def complaints(said: str) -> dict[str, str]:
    """Return the messages of Helm by path: Helm 4 writes "at '/image/tag': ...", Helm 3 "image.tag: ..."."""
    found: dict[str, str] = {}
    for line in said.partition("chart(s):")[2].splitlines():
        match = re.fullmatch(r" *- (?:at '(?P<pointer>[^']*)'|(?P<path>[^ ]+)): (?P<text>.*)", line)
        if match:
            path = match["path"] or match["pointer"][1:].replace("/", ".")
            path = "" if path == "(root)" else path
            found[path] = f"{found.get(path, '')}{match['text']}\n"
    return found


@pytest.mark.parametrize(("values", "path", "pattern"), WRONG, ids=[f"{path}: {pattern}" for _, path, pattern in WRONG])
def test_wrong_value_is_named_by_the_schema(helm: Helm, values: Values, path: str, pattern: str) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.render(values)
    assert "values don't meet the specifications of the schema" in str(refused.value)
    said = complaints(str(refused.value))
    assert path in said
    assert re.search(pattern, said[path], re.MULTILINE)


def test_label_that_the_chart_sets_itself_is_refused_by_its_name(helm: Helm) -> None:
    with pytest.raises(RefusedError, match=r"(?s)the specifications of the schema.*app\.kubernetes\.io/name"):
        helm.render({"commonLabels": {"app.kubernetes.io/name": "x"}})


@pytest.mark.parametrize(("values", "sentence"), CONTRADICTIONS, ids=[sentence for _, sentence in CONTRADICTIONS])
def test_values_that_contradict_each_other_are_told_in_one_sentence(helm: Helm, values: Values, sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.render(values)
    assert sentence in str(refused.value)


def test_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(RefusedError) as refused:
        helm.render({}, "--kube-version=1.30.9")
    assert "kubeVersion: >=1.31.0-0 which is incompatible with Kubernetes v1.30.9" in str(refused.value)
    assert helm.render({}, "--kube-version=1.31.0-eks-1").all("Deployment") != []


@pytest.mark.parametrize("values", [{}, EVERYTHING_ON, EVERYTHING_OFF], ids=["defaults", "everything", "nothing"])
def test_lint_is_content(helm: Helm, values: Values, tmp_path: Path) -> None:
    said = helm.run(["lint", "--strict", str(CHART), "-f", "-"], values)
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


SWITCHES: list[tuple[str, tuple[Any, ...]]] = [
    ("replicaCount", (1, 3)),
    ("config", ({}, {"eviction": "Evict"}, {"disablePreemption": True})),
    ("rbac", ({}, {"create": False}, {"poolsForEveryone": True})),
    ("metrics", ({}, {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}})),
]
MATRIX = [
    dict(zip([name for name, _ in SWITCHES], chosen, strict=True)) for chosen in product(*(c for _, c in SWITCHES))
]


def test_every_combination_renders_objects_with_a_name_and_a_release(helm: Helm) -> None:
    assert len(MATRIX) == 36
    for values in [*MATRIX, EVERYTHING_ON, EVERYTHING_OFF]:
        rendered = helm.render(values)
        known = [(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in rendered.objects]
        assert len(set(known)) == len(known), values
        given = [found["metadata"]["name"] for found in values.get("extraObjects", ())]
        own = [found["metadata"] for found in rendered.objects if not found["metadata"]["name"].endswith("-more")]
        assert len(own) == len(rendered.objects) - len(given)
        assert {found["labels"]["app.kubernetes.io/instance"] for found in own} == {"ai-scheduler"}, values


def test_defaults_are_the_objects_of_an_installation(defaults: Rendered) -> None:
    assert [(found["kind"], found["metadata"]["name"]) for found in defaults.objects] == [
        ("NetworkPolicy", "ai-scheduler"),
        ("PodDisruptionBudget", "ai-scheduler"),
        ("ServiceAccount", "ai-scheduler"),
        ("ConfigMap", "ai-scheduler"),
        ("CustomResourceDefinition", "pools.resource.aibee.cn"),
        ("CustomResourceDefinition", "queues.resource.aibee.cn"),
        ("ClusterRole", "ai-scheduler"),
        ("ClusterRole", "ai-scheduler-pool-viewer"),
        ("ClusterRole", "ai-scheduler-pool-editor"),
        ("ClusterRoleBinding", "ai-scheduler"),
        ("Role", "ai-scheduler-election"),
        ("RoleBinding", "ai-scheduler-election"),
        ("Service", "ai-scheduler"),
        ("Deployment", "ai-scheduler"),
        ("FlowSchema", "ai-scheduler"),
        ("FlowSchema", "ai-scheduler-events"),
        ("FlowSchema", "ai-scheduler-election"),
        ("Pod", "ai-scheduler-test-pools"),
    ]


def test_what_is_switched_off_is_absent(helm: Helm) -> None:
    assert helm.render(EVERYTHING_OFF).kinds() == ["ConfigMap", "Deployment", "Pod"]


def test_what_is_switched_on_is_there(helm: Helm) -> None:
    rendered = helm.render(EVERYTHING_ON)
    assert {"ServiceMonitor", "PrometheusRule"} <= set(rendered.kinds())
    assert rendered.one("ConfigMap", "ai-scheduler-dashboard")["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert rendered.one("Service")["spec"]["ports"][0]["port"] == 9090
    assert rendered.one("ConfigMap", "ai-scheduler-more") != {}
    assert [container["name"] for container in rendered.pod()["containers"]] == ["ai-scheduler", "proxy"]
    assert rendered.one("Deployment")["metadata"]["annotations"] == {"example.com/owner": "platform"}
    assert rendered.container()["image"] == "images.example:5000/ai/aibee/ai-scheduler:v9@sha256:" + "a" * 64
    assert rendered.one("PodDisruptionBudget")["spec"]["maxUnavailable"] == "50%"
    everyone = rendered.one("ClusterRoleBinding", "ai-scheduler-pool-viewer")
    assert [subject["name"] for subject in everyone["subjects"]] == ["system:authenticated"]
    scraped = rendered.one("ServiceMonitor")["spec"]
    service = rendered.one("Service")
    assert scraped["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert [endpoint["port"] for endpoint in scraped["endpoints"]] == [service["spec"]["ports"][0]["name"]]


@pytest.mark.parametrize(
    ("value", "namespaces"),
    [({}, ["kube-system"]), ({"apiPriority": True}, ["kube-system", "ai"]), ({"apiPriority": False}, [])],
    ids=["default", "on", "off"],
)
def test_objects_of_the_cluster_about_priority_come_by_themselves_in_kube_system_only(
    helm: Helm, value: Values, namespaces: list[str]
) -> None:
    found = {space: helm.render(value, f"--namespace={space}").all("FlowSchema") for space in ("kube-system", "ai")}
    assert [space for space, flows in found.items() if flows] == namespaces
    for space in namespaces:
        account = {"name": "ai-scheduler", "namespace": space}
        rules = [rule for flow in found[space] for rule in flow["spec"]["rules"]]
        subjects = [subject for rule in rules for subject in rule["subjects"]]
        assert subjects == [{"kind": "ServiceAccount", "serviceAccount": account}] * 3


def test_labels_of_all_objects_give_way_to_those_of_the_pods(helm: Helm) -> None:
    labels = helm.render(EVERYTHING_ON).one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["tier"]) == ("scheduling", "control")


def test_other_names_are_used_throughout(helm: Helm) -> None:
    rendered = helm.render({}, "--namespace=ai", release="blue")
    names = {found["metadata"]["name"] for found in rendered.objects if found["kind"] != "CustomResourceDefinition"}
    assert {name for name in names if not name.startswith("blue-ai-scheduler")} == set()
    spaces = {found["metadata"].get("namespace", "ai") for found in rendered.objects}
    assert spaces == {"ai"}
    assert rendered.pod()["serviceAccountName"] == "blue-ai-scheduler"
    short = helm.render({"fullnameOverride": "pools"})
    assert short.pod()["volumes"][0]["configMap"]["name"] == "pools"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"eviction": "Evict", "bindInFlight": 200, "gpuResources": ["nvidia.com/gpu", "amd.com/gpu"]},
        {"leaderElection": {"leaseName": "blue", "leaseDurationSeconds": 30}, "logging": {"level": "debug"}},
        {"apiVersion": "config.resource.aibee.cn/v1alpha1", "kind": "AiSchedulerConfiguration"},
    ],
)
def test_configuration_is_what_the_scheduler_reads(helm: Helm, config: Values) -> None:
    text = helm.render({"config": config}).config()
    said = yaml.safe_load(text)
    assert (said["apiVersion"], said["kind"]) == ("config.resource.aibee.cn/v1alpha1", "AiSchedulerConfiguration")
    assert {name: said[name] for name in config} == config
    parsed = parse_config("config.yaml", text.encode())
    assert (parsed == Config()) == (not config or "kind" in config)


def test_what_templates_take_for_the_default_of_the_configuration_is_its_default() -> None:
    config = Config()
    assert (config.scheduler_name, config.http.address, config.eviction) == ("ai-scheduler", ":8080", "Delete")
    assert (config.disable_preemption, config.leader_election.enabled) == (False, True)
    assert (config.leader_election.namespace, config.leader_election.lease_name) == ("", "")


def test_another_configuration_restarts_the_pods_and_the_same_does_not(helm: Helm) -> None:
    def sum_of(values: Values) -> str:
        annotations = helm.render(values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
        found: str = annotations["checksum/config"]
        return found

    assert sum_of({"replicaCount": 3}) == sum_of({})
    assert sum_of({"config": {"eviction": "Evict"}}) != sum_of({})


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text()
    described = {value.key for value in described_values(text)}

    def leaves(prefix: str, values: dict[str, Any]) -> list[str]:
        found = []
        for name, value in values.items():
            key = f"{prefix}{name}"
            inner = isinstance(value, dict) and value and key not in described
            found += leaves(f"{key}.", value) if inner else [key]
        return found

    assert [key for key in leaves("", yaml.safe_load(text)) if key not in described] == []
