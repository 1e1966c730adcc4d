"""Images of pods and nodes, and the features of kubelets, as they are read."""

from typing import Any

import pytest

from aischeduler.kube.decode.pod_spec import HOST_NETWORK_USERS, RESTART_ALL
from aischeduler.model.images import NodeImage, image_id, normalized_image
from tests.kube import api_objects
from tests.kube.test_decode import container, decode_node, decode_pod

DIGEST = "registry.example/app@sha256:0123"


def ids(*names: str) -> tuple[int, ...]:
    return tuple(sorted(image_id(name) for name in names))


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("app", "app:latest"),
        ("app:1", "app:1"),
        ("registry.example:5000/app", "registry.example:5000/app:latest"),
        ("registry.example:5000/app:1", "registry.example:5000/app:1"),
        (DIGEST, DIGEST),
    ],
)
def test_image_without_tag_has_the_tag_latest(name: str, named: str) -> None:
    assert normalized_image(name) == named


def test_images_of_containers_init_containers_and_volumes_are_read() -> None:
    volumes = [
        {"name": "v", "image": {"reference": "models/llm", "pullPolicy": "Always"}},
        {"name": "w", "emptyDir": {}},
        {"name": "x", "image": {"reference": None}},
    ]
    spec = {
        "containers": [container("a", image="app"), container("b", image="app")],
        "initContainers": [container("i", image="tool:2")],
        "volumes": volumes,
    }
    found = decode_pod(api_objects.pod(spec=spec)).spec
    assert (found.images, found.containers) == (ids("app:latest", "app:latest", "models/llm:latest", "tool:2"), 3)
    broken = decode_pod(api_objects.pod(spec=spec | {"volumes": [{"image": {"reference": 5}}]})).spec
    assert (broken.images, broken.invalid) == (ids("app:latest", "app:latest", "tool:2"), "")


def test_pods_of_other_images_are_of_other_classes_and_names_of_volumes_do_not_count() -> None:
    def key(image: str, volume: str, reference: str = "m") -> bytes:
        volumes = [{"name": volume, "image": {"reference": reference}}]
        return decode_pod(api_objects.pod(spec={"containers": [container(image=image)], "volumes": volumes})).spec.key

    assert key("a", "v") == key("a", "w")
    assert len({key("a", "v"), key("b", "v"), key("a", "v", "n")}) == 3


def test_nodes_with_equal_images_share_them() -> None:
    images: list[Any] = [{"names": ["app:1", DIGEST, "app:1"], "sizeBytes": 7}, {"names": ["tool:2"]}, {"names": None}]
    first, second = (decode_node(api_objects.node(name, status={"images": images})) for name in "ab")
    assert first.images == (NodeImage((image_id("app:1"), image_id(DIGEST)), 7), NodeImage(ids("tool:2"), 0))
    assert all(image is other for image, other in zip(first.images, second.images, strict=True))


@pytest.mark.parametrize("images", [5, [5], [{"names": 5}], [{"names": ["a"], "sizeBytes": "x"}], None])
def test_images_that_cannot_be_read_count_as_none(images: Any) -> None:
    found = decode_node(api_objects.node(status={"images": images, "allocatable": {"cpu": "4"}}))
    assert (found.images, found.allocatable, found.invalid) == ((), {"cpu": 4000}, "")


RESTARTS = [{"action": "Restart"}, {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        ({}, ()),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostNetwork": True, "hostUsers": False}, (HOST_NETWORK_USERS,)),
        ({"containers": [container(restartPolicyRules=RESTARTS)]}, (RESTART_ALL,)),
        ({"containers": [container(restartPolicyRules=RESTARTS[:1])]}, ()),
        ({"containers": [container(restartPolicyRules=5)]}, ()),
        (
            {"initContainers": [container(restartPolicyRules=RESTARTS)], "hostNetwork": True, "hostUsers": False},
            (RESTART_ALL, HOST_NETWORK_USERS),
        ),
    ],
)
def test_features_that_a_pod_needs_are_inferred_as_in_kubernetes(spec: dict[str, Any], needs: tuple[str, ...]) -> None:
    plain = decode_pod(api_objects.pod(spec={"containers": [container()]})).spec
    found = decode_pod(api_objects.pod(spec={"containers": [container()]} | spec)).spec
    assert found.features == needs
    assert (found.key != plain.key) == bool(needs or "initContainers" in spec)


@pytest.mark.parametrize(("declared", "features"), [(["b", "a"], ("a", "b")), (None, ()), (5, ()), ([5], ())])
def test_features_that_a_node_declares_are_read(declared: Any, features: tuple[str, ...]) -> None:
    assert decode_node(api_objects.node(status={"declaredFeatures": declared})).features == features
