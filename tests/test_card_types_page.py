"""The page on card types is true: its examples do what it says, and its names are those of the table of names."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aischeduler.kube.decode.api_types import PodDocument, PoolDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.kube.decode.pool import read_pool
from aischeduler.model.card_types import card_names
from aischeduler.model.names import GPU_TYPE_LABELS, MACHINE_GROUP_KEY
from aischeduler.model.pod import Pod
from tests.build import a_node, a_pod, replace
from tests.engine.session import Session, binds

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "card-types.md").read_text()
PRODUCT = GPU_TYPE_LABELS[0]


def documents(kind: str) -> list[dict[str, Any]]:
    """Return the objects of one kind on the page."""
    found = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    return [document for document in found if document["kind"] == kind]


def pod_of(document: dict[str, Any], name: str) -> Pod:
    """Return a pod of a document: itself, or of its template."""
    body = document["spec"]["template"] if document["kind"] == "Job" else document
    for container in body["spec"]["containers"]:
        container["resources"]["requests"] = container["resources"]["limits"]  # as the API server does
    metadata = {"namespace": "default", **body["metadata"], "name": name, "uid": name}
    text = msgspec.json.encode({"metadata": metadata, "spec": body["spec"]})
    return read_pod(msgspec.json.decode(text, type=PodDocument), SpecCache())


def test_labels_are_those_that_are_read() -> None:
    assert tuple(re.findall(r"^\| `(\S+)` \| (?:NVIDIA|the same|Koordinator)", PAGE, re.MULTILINE)) == GPU_TYPE_LABELS


NAMED = re.findall(r"^\| `(\S+)` \| (`.*`) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", NAMED, ids=lambda row: str(row[0]))
def test_card_has_the_names_of_the_table(row: tuple[str, str]) -> None:
    assert card_names(row[0]) == tuple(re.findall(r"`(.+?)`", row[1]))


def test_job_of_the_page_takes_an_a100_first_and_a_v100_then() -> None:
    (job,) = documents("Job")
    cards = {"a": "NVIDIA-A100-SXM4-80GB", "t": "Tesla-T4", "v": "Tesla-V100-SXM2-32GB"}
    session = Session(*(a_node(name, gpu=1, labels={PRODUCT: card}) for name, card in cards.items()))
    session.see(*(pod_of(job, name) for name in ("p", "q", "r")))
    assert binds(session.decide()) == {"p": "a", "q": "v"}


def test_rare_pool_of_the_page_is_closed_to_pods_that_name_no_type() -> None:
    pool = read_pool(msgspec.convert(documents("Pool")[0], PoolDocument))
    assert (pool.rare_types, pool.lend_rare_types, pool.invalid) == (("H200", "A100-80GB"), False, "")
    cards = {"rare": "NVIDIA-A100-SXM4-80GB", "common": "NVIDIA-A100-PCIE-40GB"}
    nodes = (a_node(name, gpu=1, labels={"team": "research", PRODUCT: card}) for name, card in cards.items())
    session = Session(replace(pool, uid="uid"), *nodes)
    for name, types in (("plain", ()), ("wide", ("A100",)), ("exact", ("A100-SXM4-80GB",))):
        session.see(a_pod(name, cpu="3", pool="research", gpu_types=types))
    assert binds(session.decide()) == {"plain": "common", "exact": "rare"}


def test_pod_of_the_page_runs_in_its_group_only() -> None:
    (document,) = documents("Pod")
    session = Session(a_node("n", gpu=8), a_node("g", gpu=1, labels={MACHINE_GROUP_KEY: "vision"}))
    session.see(pod_of(document, "p"))
    assert binds(session.decide()) == {"p": "g"}


def test_rule_of_the_page_is_one_for_the_namespaces_of_the_team() -> None:
    (rule,) = read_pool(msgspec.convert(documents("Pool")[1], PoolDocument)).machine_groups
    assert (rule.name, str(rule.namespaces)) == ("vision", "team=vision")
