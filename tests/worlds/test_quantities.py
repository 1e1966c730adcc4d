"""Quantities: what is stored is what our own parser calls canonical, and what is refused there is refused here."""

from collections.abc import Sequence

import pytest

from aischeduler.model.quantity import QuantityError, canonical, parse_milli, parse_nano
from tests.objects import node_object, pod_object
from tests.quantities import CANONICAL, REFUSED
from tests.worlds.world import World

MORE = (
    *("0.0", "-0", "0Gi", "0m", "0e3", "00", "01", "1.0", "1.50", "0.001", "100", "128974849"),
    *("1m", "10m", "1000000m", "1000u", "1.5k", "1000k", "0.1k", "1M", "1.5G", "2T", "3P", "4E", "9223372036854775807"),
    *("1e-3", "1.5e3", "12e6", "129E6", "129M", "1e0", "1e9", "1500e3", "1000e3", "1e-1", "15e2", "+1e3", "01e3"),
    *("1023", "1024", "1025Ki", "1536Mi", "1Gi", "1Ti", "1Pi", "1.5Ki", "0.1Gi", "0.25Mi", "1048576Ki"),
)
FINE = {text: form for text, form in CANONICAL.items() if parse_nano(text) % 10**6}
"""What a list of resources is too coarse to hold: less than thousandths."""
TEXTS = tuple(text for text in (*CANONICAL, *MORE) if text not in FINE)
READ_AS_ZERO = (".", "Gi", "+", "-")
"""What the server takes for nothing and our parser does not; we never see it, for it is stored as 0."""


def stored_memory(world: World, texts: Sequence[str]) -> dict[str, str]:
    """What becomes of each text as a request for memory: one container asks for each."""
    document = pod_object("a", namespace=world.namespace)
    (main,) = document["spec"]["containers"]
    document["spec"]["containers"] = [
        {**main, "name": f"c{number}", "resources": {"requests": {"memory": text}}} for number, text in enumerate(texts)
    ]
    containers = world.create(document)["spec"]["containers"]
    requests = [container["resources"]["requests"]["memory"] for container in containers]
    return dict(zip(texts, requests, strict=True))


def test_every_quantity_is_stored_in_the_form_that_our_parser_gives(world: World) -> None:
    assert stored_memory(world, TEXTS) == {text: canonical(text) for text in TEXTS}


def test_less_than_a_thousandth_is_stored_as_one_as_our_parser_counts_it(world: World) -> None:
    stored = stored_memory(world, tuple(FINE))
    assert stored == {text: canonical(f"{parse_milli(text)}m") for text in FINE}


def test_text_without_digits_is_stored_as_nothing(world: World) -> None:
    assert stored_memory(world, READ_AS_ZERO) == dict.fromkeys(READ_AS_ZERO, "0")


def test_amounts_of_a_node_are_stored_in_canonical_form(world: World) -> None:
    node = world.create(node_object(world.named("n"), cpu="4000m", memory="0.5Gi"))
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "512Mi", "pods": "110"}


@pytest.mark.parametrize("text", sorted({*REFUSED} - {*READ_AS_ZERO, " 1"}))
def test_what_is_no_quantity_is_refused_here_and_by_our_parser(world: World, text: str) -> None:
    with pytest.raises(QuantityError):
        parse_nano(text)
    document = pod_object("a", namespace=world.namespace)
    document["spec"]["containers"][0]["resources"]["requests"] = {"memory": text}
    answer = world.try_create(document)
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
