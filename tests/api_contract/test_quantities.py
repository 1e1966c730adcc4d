"""Quantities: the server stores the canonical form of `model.quantity`, and refuses what that parser refuses."""

from collections.abc import Sequence

import pytest

from aischeduler.model.quantity import QuantityError, canonical, parse_nano
from tests.api_contract.world import World
from tests.objects import node_object, pod_object
from tests.quantities import CANONICAL, REFUSED

MORE = (
    *("0.0", "-0", "0Gi", "0m", "0e3", "00", "01", "1.0", "1.50", "0.001", "100", "128974849"),
    *("1m", "10m", "1000000m", "1000u", "1.5k", "1000k", "0.1k", "1M", "1.5G", "2T", "3P", "4E", "9223372036854775807"),
    *("1e-3", "1.5e3", "12e6", "129E6", "129M", "1e0", "1e9", "1500e3", "1000e3", "1e-1", "15e2", "+1e3", "01e3"),
    *("1023", "1024", "1025Ki", "1536Mi", "1Gi", "1Ti", "1Pi", "1.5Ki", "0.1Gi", "0.25Mi", "1048576Ki"),
)
TEXTS = tuple(text for text in (*CANONICAL, *MORE) if parse_nano(text) % 10**6 == 0)
"""Whole thousandths: a real API server stores nothing finer in a resource list."""
READ_AS_ZERO = (".", "Gi", "+", "-")
"""Texts that a real API server reads as 0 and `model.quantity` refuses; the scheduler never gets these texts."""


def stored_memory(world: World, texts: Sequence[str]) -> dict[str, str]:
    """Return the stored form of each text as a memory request: there is one container for each."""
    document = pod_object("a", namespace=world.namespace)
    (main,) = document["spec"]["containers"]
    document["spec"]["containers"] = [
        {**main, "name": f"c{number}", "resources": {"requests": {"memory": text}}} for number, text in enumerate(texts)
    ]
    containers = world.create(document)["spec"]["containers"]
    requests = [container["resources"]["requests"]["memory"] for container in containers]
    return dict(zip(texts, requests, strict=True))


def test_every_quantity_is_stored_in_its_canonical_form(world: World) -> None:
    assert stored_memory(world, TEXTS) == {text: canonical(text) for text in TEXTS}


def test_amounts_of_a_node_are_stored_in_canonical_form(world: World) -> None:
    node = world.create(node_object(world.named("n"), cpu="4000m", memory="0.5Gi"))
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "512Mi", "pods": "110"}


def test_invalid_quantity_is_refused_by_server_and_parser(world: World) -> None:
    for text in sorted({*REFUSED} - {*READ_AS_ZERO, " 1"}):
        with pytest.raises(QuantityError):
            parse_nano(text)
        document = pod_object("a", namespace=world.namespace)
        document["spec"]["containers"][0]["resources"]["requests"] = {"memory": text}
        answer = world.try_create(document)
        assert (answer.status, answer.reason) == (400, "BadRequest"), (text, answer)


def test_number_is_accepted_as_a_quantity(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["containers"][0]["resources"]["requests"] = {"cpu": 1.5, "memory": 1024}
    requests = world.create(document)["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "1500m", "memory": "1024"}


def test_quantities_of_a_pod_are_stored_in_canonical_form(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, cpu="1000m", memory="0.5Gi"))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "512Mi"}
