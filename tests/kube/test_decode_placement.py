"""The annotations that decide where a pod may run: card types, their policy, the machine group."""

import json
from typing import Any

import msgspec
import pytest

from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.model.names import GPU_TYPE_KEY, GPU_TYPE_POLICY_KEY, MACHINE_GROUP_KEY
from aischeduler.model.pod import PodSpec
from aischeduler.model.workload import CARD_NAME_KEY
from tests.kube import api_objects

LONG = "|".join(f"A{number}" for number in range(17))


def spec_of(specs: SpecCache | None = None, /, **annotations: str) -> PodSpec:
    """Return the spec of a pod with these annotations: `types`, `policy`, `group` and `cards`."""
    keys = {"types": GPU_TYPE_KEY, "policy": GPU_TYPE_POLICY_KEY, "group": MACHINE_GROUP_KEY, "cards": CARD_NAME_KEY}
    metadata: dict[str, Any] = {"annotations": {keys[name]: text for name, text in annotations.items()}}
    document = json.dumps(api_objects.pod("p", metadata=metadata)).encode()
    return read_pod(msgspec.json.decode(document, type=PodDocument), specs or SpecCache()).spec


def test_types_are_read_by_their_full_names_in_their_order_each_once() -> None:
    found = spec_of(types="NVIDIA A100-SXM4-80GB | v100|V100")
    assert (found.gpu_types, found.gpu_type_required, found.invalid) == (("A100-SXM4-80GB", "V100"), True, "")
    assert not spec_of(types="A100", policy="Preferred").gpu_type_required
    assert spec_of(types="A100", policy="Required").gpu_type_required
    assert spec_of(group="vision").machine_group == "vision"


@pytest.mark.parametrize(
    ("annotations", "types", "required"),
    [
        ({"cards": "NVIDIA-H200 | A100|NVIDIA-A100"}, ("H200", "A100"), True),
        ({"cards": "NVIDIA-H200/mig-1g.18gb-mixed"}, ("H200-MIG-1g.18gb",), True),
        ({"cards": "NVIDIA-GeForce-RTX-4090/mps-24g*1/2"}, ("RTX-4090",), True),
        ({"cards": f"{'A' * 60}-{'B' * 50}/mps-24g*1/2"}, (f"{'A' * 60}-{'B' * 50}",), True),
        ({"cards": "H200", "policy": "Preferred"}, ("H200",), True),
        ({"cards": "H200", "types": "A100", "policy": "Preferred"}, ("A100",), False),
        ({"cards": "?", "types": "A100"}, ("A100",), True),
        ({"cards": ""}, (), True),
    ],
)
def test_cards_in_the_form_of_volcano_are_required_where_no_type_is_named(
    annotations: dict[str, str], types: tuple[str, ...], required: bool
) -> None:
    found = spec_of(**annotations)
    assert (found.gpu_types, found.gpu_type_required, found.invalid) == (types, required, "")


def test_cards_and_types_of_one_name_make_one_class() -> None:
    specs = SpecCache()
    assert spec_of(specs, cards="H200").key == spec_of(specs, types="H200").key
    assert spec_of(specs, cards="H200").key != spec_of(specs, cards="A100").key


def test_empty_annotations_and_a_policy_without_types_say_nothing() -> None:
    plain = spec_of()
    assert spec_of(types="", policy="", group="") == plain
    assert spec_of(policy="Preferred") == plain


def test_equal_wishes_make_one_class_and_others_another() -> None:
    specs = SpecCache()
    wishes = [{}, {"types": "A100"}, {"types": "V100"}, {"types": "A100", "policy": "Preferred"}, {"group": "A100"}]
    keys = [spec_of(specs, **wish).key for wish in wishes]
    assert len(set(keys)) == len(wishes)
    assert [spec_of(specs, **wish).key for wish in wishes] == keys
    assert spec_of(specs, types="NVIDIA-A100").key == spec_of(specs, types="a100").key


@pytest.mark.parametrize(
    ("annotations", "key", "why"),
    [
        ({"types": "A100|"}, GPU_TYPE_KEY, "'' is not the name of a card type such as A100 or A100-80GB"),
        ({"types": "|"}, GPU_TYPE_KEY, "'' is not the name of a card type"),
        ({"types": "A100;V100"}, GPU_TYPE_KEY, "'A100;V100' is not the name of a card type"),
        ({"types": "nvidia"}, GPU_TYPE_KEY, "'nvidia' is not the name of a card type"),
        ({"types": "A" * 64}, GPU_TYPE_KEY, "is longer than 63 characters"),
        ({"cards": "A100|"}, CARD_NAME_KEY, "'' is not the name of a card such as"),
        ({"cards": "A" * 129}, CARD_NAME_KEY, "is longer than 128 characters"),
        ({"cards": LONG}, CARD_NAME_KEY, "names 17 types, which is more than 16"),
        ({"types": LONG}, GPU_TYPE_KEY, "names 17 types, which is more than 16"),
        ({"types": "A100", "policy": "required"}, GPU_TYPE_POLICY_KEY, "'required' is not Required or Preferred"),
        ({"policy": "Always"}, GPU_TYPE_POLICY_KEY, "'Always' is not Required or Preferred"),
        ({"group": "a group"}, MACHINE_GROUP_KEY, "'a group' is not the name of a machine group"),
        ({"group": "\0"}, MACHINE_GROUP_KEY, "is not the name of a machine group"),
    ],
)
def test_malformed_annotation_makes_the_pod_invalid_and_is_named(
    annotations: dict[str, str], key: str, why: str
) -> None:
    found = spec_of(**annotations)
    assert found.invalid.startswith(f"metadata.annotations[{key}]: ")
    assert why in found.invalid
