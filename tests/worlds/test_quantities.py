"""Quantities: what is stored is what our own parser calls canonical, and what is refused there is refused here."""

import pytest

from aischeduler.model.quantity import QuantityError, canonical, parse_nano
from tests.objects import node_object, pod_object
from tests.quantities import CANONICAL, REFUSED
from tests.worlds.world import World

MORE = (
    *("0.0", "-0", "0Gi", "0m", "0e3", "00", "01", "1.0", "1.50", "0.001", "100", "128974849"),
    *(
        "999n",
        "1000n",
        "1000u",
        "1500u",
        "1m",
        "10m",
        "1000000m",
        "1.5k",
        "1000k",
        "0.1k",
        "1M",
        "1.5G",
        "2T",
        "3P",
        "4E",
    ),
    *("1e+3", "1e-3", "1.5e3", "12e6", "129M", "1e0", "1e9", "1500e3"),
    *("1023", "1024", "1025Ki", "1536Mi", "1Gi", "1Ti", "1Pi", "1.5Ki", "0.1Gi", "0.25Mi", "1048576Ki"),
)
TEXTS = (*CANONICAL, *MORE)


def test_every_quantity_is_stored_in_the_form_that_our_parser_gives(world: World) -> None:
    name = world.named("n")
    world.create(node_object(name))
    stored = {}
    for text in TEXTS:
        node = world.patch(world.url("Node", name, "status"), {"status": {"allocatable": {"memory": text}}})
        stored[text] = node["status"]["allocatable"]["memory"]
    assert stored == {text: canonical(text) for text in TEXTS}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_quantity_is_refused_here_and_by_our_parser(world: World, text: str) -> None:
    with pytest.raises(QuantityError):
        parse_nano(text)
    answer = world.try_create(pod_object("a", namespace=world.namespace, cpu="1", memory=text))
    assert (answer.status, answer.reason) == (400, "BadRequest"), answer
    assert 'Pod in version "v1" cannot be handled as a Pod' in answer.message


def test_number_is_taken_as_a_quantity(world: World) -> None:
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["containers"][0]["resources"]["requests"] = {"cpu": 1.5, "memory": 1024}
    requests = world.create(document)["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "1500m", "memory": "1024"}


def test_quantities_of_a_pod_are_stored_in_canonical_form(world: World) -> None:
    pod = world.create(pod_object("a", namespace=world.namespace, cpu="1000m", memory="0.5Gi"))
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "512Mi"}
