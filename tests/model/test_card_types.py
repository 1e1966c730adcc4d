"""The names of card types: one spelling of each, from what drivers and device plugins write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.model.card_types import TYPE_LENGTH_MAX, TypeNameError, card_names, covered_names, type_name

WORDS = st.sampled_from(
    [
        *("NVIDIA", "Tesla", "A100", "a100", "V100", "H", "RTX", "4090", "Ti", "SXM4", "PCIe", "80GB", "40G", "HBM3e"),
        *("SHARED", "MIG-1g.10gb", "mig-2g", "MIG", "MIXED", "/", "+", "/mps-1", "1"),
    ]
)


@pytest.mark.parametrize(
    ("product", "names"),
    [
        ("NVIDIA A100-SXM4-80GB", ("A100-SXM4-80GB", "A100-SXM4", "A100-80GB", "A100")),
        ("NVIDIA-A100-80GB-PCIe", ("A100-PCIE-80GB", "A100-PCIE", "A100-80GB", "A100")),
        ("NVIDIA-A100-SXM4-80GB-SHARED", ("A100-SXM4-80GB", "A100-SXM4", "A100-80GB", "A100")),
        ("Tesla-V100-SXM3-32GB-H", ("V100-SXM3-32GB-H", "V100-SXM3-32GB", "V100-SXM3", "V100-32GB", "V100")),
        ("NVIDIA-H100-80GB-HBM3", ("H100-80GB-HBM3", "H100-80GB", "H100")),
        ("NVIDIA-GH200-144G-HBM3e", ("GH200-144GB-HBM3E", "GH200-144GB", "GH200")),
        ("NVIDIA-H200", ("H200",)),
        ("H200", ("H200",)),
        ("Tesla-T4", ("T4",)),
        ("NVIDIA-GeForce-RTX-4090", ("RTX-4090",)),
        ("NVIDIA-GeForce-RTX-4090-D", ("RTX-4090-D",)),
        ("NVIDIA-RTX-6000-Ada-Generation", ("RTX-6000-ADA",)),
        ("AMD_Instinct_MI300X_OAM", ("MI300X-OAM", "MI300X")),
        ("NVIDIA-H200/mig-1g.18gb-mixed", ("H200-MIG-1g.18gb",)),
        ("NVIDIA-H200/mps-140g*1/8", ("H200",)),
        (
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me",
            (
                "A100-SXM4-40GB-MIG-1g.5gb.me",
                "A100-SXM4-MIG-1g.5gb.me",
                "A100-40GB-MIG-1g.5gb.me",
                "A100-MIG-1g.5gb.me",
            ),
        ),
        ("NVIDIA", ()),
        ("", ()),
    ],
)
def test_names_of_a_card_begin_with_the_full_one_and_leave_parts_out(product: str, names: tuple[str, ...]) -> None:
    assert card_names(product) == names


@pytest.mark.parametrize("text", ["a100 80gb", "NVIDIA-A100-80G", "nvidia_a100_80GB", "80GB", "A100-80GB-SHARED"])
def test_case_vendor_and_separators_do_not_matter(text: str) -> None:
    assert card_names(f"A100-{text}" if text == "80GB" else text)[0] == "A100-80GB"


@given(st.lists(WORDS, max_size=7), st.sampled_from(["-", " ", "_"]))
def test_normalising_twice_is_normalising_once(words: list[str], separator: str) -> None:
    names = card_names(separator.join(words))
    assert card_names(names[0] if names else "") == names
    assert len(set(names)) == len(names)
    assert set(names) <= covered_names(separator.join(words))


def test_slice_is_no_whole_card_and_is_rare_where_the_card_is() -> None:
    one = "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    assert "A100" not in card_names(one)
    assert covered_names(one) >= {"A100", "A100-80GB", "A100-MIG-1g.10gb"}
    assert covered_names("A100") == {"A100"}


@pytest.mark.parametrize("text", ["", "NVIDIA", "80GB", "-A100", "A100;", "Ä100", "A" * (TYPE_LENGTH_MAX + 1)])
def test_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(TypeNameError):
        type_name(text)
