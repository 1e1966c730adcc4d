"""`ai-scheduler check` of gangs: a malformed field of a PodGroup, a Job, a JobSet or the labels of a pod has a line."""

from pathlib import Path

import pytest
import yaml

from aischeduler.cli.app import main
from aischeduler.model.gang import GANG_KEY, GANG_MIN_KEY
from tests.gang_objects import (
    gang_labels,
    indexed_job_object,
    job_set_object,
    native_pod_group_object,
    pod_group_object,
    volcano_pod_group_object,
)
from tests.objects import Json, pod_object

SIZE = "must be a whole number from 1 to 5000, not"


def checked(directory: Path, capsys: pytest.CaptureFixture[str], document: Json) -> list[str]:
    path = directory / "f.yaml"
    path.write_text(yaml.safe_dump(document))
    main(["check", "-f", str(path)])
    return [line.removeprefix(f"{path}:1 ") for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "document",
    [
        pod_group_object(),
        volcano_pod_group_object(),
        native_pod_group_object(),
        indexed_job_object(),
        job_set_object(jobs={"a": (1, 2)}),
        pod_object(labels=gang_labels("g", "4")),
    ],
)
def test_well_formed_gang_is_silent(document: Json, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, capsys, document) == []


@pytest.mark.parametrize(
    ("labels", "annotations", "line"),
    [
        (
            {f"{GANG_KEY}-mim": "4"},
            {},
            f"Pod/p: metadata.labels[{GANG_KEY}-mim]: has no effect; did you mean {GANG_MIN_KEY}?",
        ),
        (
            {},
            {GANG_MIN_KEY: "4"},
            f"Pod/p: metadata.annotations[{GANG_MIN_KEY}]: has no effect; move it to metadata.labels",
        ),
    ],
)
def test_misspelt_or_misplaced_key_has_a_line(
    labels: dict[str, str], annotations: dict[str, str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, capsys, pod_object(labels=labels, annotations=annotations)) == [line]


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (pod_group_object(min_member=0), f"PodGroup/group: spec.minMember: {SIZE} 0"),
        (volcano_pod_group_object(min_member=-1), f"PodGroup/group: spec.minMember: {SIZE} -1"),
        (
            native_pod_group_object(min_count="x"),
            f"PodGroup/group: spec.schedulingPolicy.gang.minCount: {SIZE} 'x'",
        ),
        (
            indexed_job_object(gang="yes"),
            f"""Job/job: metadata.annotations[{GANG_KEY}]: must be "true" or "false", not 'yes'""",
        ),
        (
            job_set_object(jobs={"a": (1, 6000)}),
            "JobSet/set: spec: has 6000 pods at one time, which is more than 5000",
        ),
        (
            pod_object(labels=gang_labels("g", "x")),
            f"Pod/p: metadata.labels[{GANG_MIN_KEY}]: {SIZE} 'x'",
        ),
    ],
)
def test_malformed_field_has_a_line(
    document: Json, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = checked(tmp_path, capsys, document)
    assert found == line
