"""The days of the corpus with what pods ask of devices: GPUs that the kubelet gives by count are given as before.

The corpus was recorded when GPUs were amounts only: its pods say nothing else of devices, and no node has a Device.
"""

import json
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from aischeduler.engine.journal import Observed, new_scheduler, read_call
from aischeduler.model.device import NodeDevices
from aischeduler.model.device_request import device_request
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from tests.build import replace
from tests.device_rules import COUNTED, DELIVERY
from tests.devices import gpus
from tests.golden.record import journals
from tests.golden.test_decisions import ACCEPTED_FROM, decided, normal

PARTS: Final = 6
DECISIONS: Final = {"Bind": 2, "Evict": 1, "Nominate": 2}
"""The actions that decide, and how many of their fields say about which pod, and on which node."""


def asking(event: Event) -> Iterator[Event]:
    """Yield the event, of a pod with what it asks of devices."""
    if isinstance(event, Seen) and isinstance(event.object, Pod):
        pod = event.object
        event = Seen(replace(pod, spec=replace(pod.spec, devices=device_request(pod.spec.request.amounts))))
    yield event


def with_devices(event: Event) -> Iterator[Event]:
    """Yield the event as `asking` does, and of a node before it that of a Device object with as many GPUs."""
    match event:
        case Seen(Node() as node):
            count = node.allocatable.get(COUNTED, 0)
            event = Seen(replace(node, labels={**node.labels, DELIVERY: "device-plugin"}))
            yield Seen(gpus(node.name, count))
        case Gone("Node", (name,)):
            yield event
            event = gone(NodeDevices, name)
    yield from asking(event)


def decisions(lines: list[bytes]) -> list[list[str]]:
    """Return which pods are bound, evicted and nominated, and where."""
    actions = [json.loads(line) for line in lines]
    return [action[: 1 + DECISIONS[action[0]]] for action in actions if action[0] in DECISIONS]


def replay(part: int, told: Callable[[Event], Iterator[Event]], of: Callable[[list[bytes]], object]) -> bytes:
    """Replay a part of the corpus with other events, and compare what `of` says of the actions; return all of these."""
    every: list[bytes] = []
    for number, lines in enumerate(journals()):
        if number % PARTS != part:
            continue
        scheduler = new_scheduler(lines[0])
        accepted_from, _ = ACCEPTED_FROM.get(number, (len(lines) + 1, ""))
        for at, line in enumerate(lines[1:], 2):
            call = read_call(at, line)
            if isinstance(call, Observed):
                for event in told(call.event):
                    scheduler.observe(event, call.now)
                continue
            actions = decided(scheduler, call)
            every += actions
            if at < accepted_from:
                assert of(normal(actions)) == of(normal(call.actions)), f"journal {number}, line {at}"
    return b"\n".join(every)


@pytest.mark.parametrize("part", range(PARTS))
def test_pods_that_ask_by_count_are_decided_as_the_corpus_says(part: int) -> None:
    assert b"nvidia.com/gpu" in replay(part, asking, lambda lines: lines)


@pytest.mark.parametrize("part", range(PARTS))
def test_device_objects_of_nodes_that_give_by_count_change_no_decision(part: int) -> None:
    said = replay(part, with_devices, decisions)
    assert b"Insufficient gpu devices" in said
    assert b'"devices":' in said
