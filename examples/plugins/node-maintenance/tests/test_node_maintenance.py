"""The plugin in an engine: events go in, and actions come out. No cluster is needed."""

from typing import Any

import pytest

from aischeduler.config.errors import ConfigError
from aischeduler.config.load import parse_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind, Refresh, ReportWaiting
from aischeduler.model.events import Refreshed, Seen
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import ContainerRequest, pod_request

CONFIG = "profiles: [{plugins: {multiPoint: {enabled: [{name: NodeMaintenance}]}}}]"
AMOUNTS = {"cpu": 8000, "memory": 2**33, "pods": 110, "nvidia.com/gpu": 8}
LEAVES = {"example.com/maintenance": "soon"}


def node(name: str, **labels: str) -> Seen:
    return Seen(Node(name, f"uid-{name}", labels, allocatable=AMOUNTS, capacity=AMOUNTS))


def pod(name: str, **requests: int) -> Seen:
    amounts = {key.replace("gpu", "nvidia.com/gpu"): amount for key, amount in requests.items()}
    spec = PodSpec(repr(amounts).encode(), pod_request([ContainerRequest(amounts, sidecar=False)], [], {}, {}))
    return Seen(Pod(f"uid-{name}", "default", name, spec, "ai-scheduler"))


def decided(*events: Any, config: str = CONFIG) -> dict[str, str]:
    """Return pod -> node, or the reason why it waits."""
    scheduler, found = Scheduler(profile_of(parse_config("config", config.encode())), "run"), {}
    for event in (Refreshed(""), *events, Refreshed("")):
        scheduler.observe(event, 0.0)
    while pools := scheduler.ready(0.0):
        for name in pools:
            for action in scheduler.decide(name, 0.0, 64):
                match action:
                    case Bind(bound, where):
                        found[bound.name] = where
                    case ReportWaiting(waits):
                        found[waits.name] = action.message
                    case Refresh(pool):
                        scheduler.observe(Refreshed(pool), 0.0)
    return found


def test_pod_with_a_gpu_waits_rather_than_start_on_a_node_that_leaves() -> None:
    found = decided(node("leaves", **LEAVES), pod("train", cpu=1000, gpu=1))
    assert "1 node(s) were about to leave for maintenance" in found["train"]


def test_pod_without_gpus_prefers_a_node_that_stays_and_takes_the_other_one_if_it_must() -> None:
    found = decided(node("a", **LEAVES), node("b"), pod("first", cpu=8000), pod("second", cpu=8000))
    assert found == {"first": "b", "second": "a"}


def test_label_and_resources_are_arguments() -> None:
    args = "pluginConfig: [{name: NodeMaintenance, args: {label: drain, resources: [cpu]}}]"
    config = f"profiles: [{{plugins: {{filter: {{enabled: [{{name: NodeMaintenance}}]}}}}, {args}}}]"
    found = decided(node("a", drain="x"), pod("p", cpu=1000), config=config)
    assert "about to leave" in found["p"]


def test_unknown_argument_is_refused_with_its_path() -> None:
    args = "pluginConfig: [{name: NodeMaintenance, args: {lable: x}}]"
    config = f"profiles: [{{plugins: {{filter: {{enabled: [{{name: NodeMaintenance}}]}}}}, {args}}}]"
    with pytest.raises(ConfigError, match=r"profiles\[0\].pluginConfig\[0\].args: .*unknown arguments: lable"):
        decided(config=config)
