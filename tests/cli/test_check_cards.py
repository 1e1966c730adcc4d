"""`ai-scheduler check` of card types and machine groups: annotations of pods, rules of Pools and configurations."""

from pathlib import Path

import pytest

from tests.cli.test_check import CONFIG, a_job, a_node, a_pool
from tests.cli.test_check_constraints import checked

GPU_TYPE = "resource.aibee.cn/gpu-type"
GROUP = "resource.aibee.cn/machine-group"
V100 = a_node("v", "{nvidia.com/gpu.product: Tesla-V100}")
ANNOTATIONS = "spec.template.metadata.annotations"


def job(annotations: str) -> str:
    return a_job().replace("{annotations: {}}", f"{{annotations: {{{annotations}}}}}")


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (job(f"{GPU_TYPE}: V100, {GPU_TYPE}-policy: Preferred"), ""),
        (job(f"{GPU_TYPE}s: V100"), f"{ANNOTATIONS}[{GPU_TYPE}s]: has no effect; did you mean {GPU_TYPE}?"),
        (
            a_job().replace("{annotations: {}}", f"{{labels: {{{GROUP}: vision}}}}"),
            f"spec.template.metadata.labels[{GROUP}]: has no effect; move it to metadata.annotations",
        ),
        (
            a_job().replace("{name: train}", f"{{name: train, annotations: {{{GPU_TYPE}: V100}}}}"),
            f"metadata.annotations[{GPU_TYPE}]: does not reach the pods; move it to {ANNOTATIONS}",
        ),
        (
            job(f"{GPU_TYPE}: A100"),
            (
                "spec.template.spec: cannot run even when all nodes are empty: 0/1 nodes are available: "
                "1 node(s) didn't match the GPU type A100."
            ),
        ),
        (
            job(f"{GPU_TYPE}: V100, {GPU_TYPE}-policy: Always"),
            f"{ANNOTATIONS}[{GPU_TYPE}-policy]: 'Always' is not Required or Preferred",
        ),
    ],
)
def test_annotation_is_checked_where_it_stands(
    document: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = checked(tmp_path, capsys, V100, document)
    told = [line.removeprefix("2 Job/train: ") for line in out if "Job/train" in line]
    assert [line[: len(found)] for line in told] == ([found] if found else [])


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (a_pool("a", "{rareTypes: ['?']}"), "1 Pool/a: spec.rareTypes[0]: "),
        (a_pool("a", "{machineGroups: [{name: vision}]}"), "1 Pool/a: spec.machineGroups[0].namespaceSelector: "),
        (f"{CONFIG}machineGroups: [{{name: vision}}]\n", "machineGroups[0].namespaceSelector is missing"),
    ],
)
def test_wrong_rule_is_named_with_its_field(
    document: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = checked(tmp_path, capsys, document)
    assert status == 1
    assert found in out[0]
