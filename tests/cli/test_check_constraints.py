"""`ai-scheduler check` of hard constraints: which are not supported, and what files cannot tell about claims."""

from pathlib import Path

import pytest

from aischeduler.cli.app import main
from tests.cli.test_check import CONFIG, a_job, a_node

DEVICES = "resourceClaims: [{name: gpu, resourceClaimName: one}]"
VOLUMES = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"
FIELD = "spec.template.spec.resourceClaims"
HOLD = "so the pods wait (unsupportedConstraints: Hold)"
IGNORE = "so the pods are placed as if it were absent (unsupportedConstraints: Ignore)"


def checked(directory: Path, capsys: pytest.CaptureFixture[str], *documents: str) -> tuple[int, list[str], list[str]]:
    path = directory / "f.yaml"
    path.write_text("---\n".join(documents))
    status = main(["check", "-f", str(path)])
    said = capsys.readouterr()
    out, err = ([line.removeprefix(f"{path}:") for line in text.splitlines()] for text in (said.out, said.err))
    return status, out, err


def job(*fields: str) -> str:
    return a_job().replace("restartPolicy: Never", "\n      ".join(("restartPolicy: Never", *fields)))


@pytest.mark.parametrize(("config", "outcome"), [("", HOLD), (f"{CONFIG}unsupportedConstraints: Ignore\n", IGNORE)])
@pytest.mark.parametrize("nodes", [(), (a_node("n"),)])
def test_constraint_that_is_not_supported_is_named_with_what_becomes_of_the_pods(
    config: str, outcome: str, nodes: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = checked(tmp_path, capsys, job(DEVICES), *nodes, *([config] if config else []))
    assert (status, out) == (1, [f"1 Job/train: {FIELD}: is not supported by ai-scheduler, {outcome}"])


def test_constraint_of_a_pod_of_another_scheduler_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = checked(tmp_path, capsys, job(DEVICES).replace("schedulerName: ai-scheduler", ""))
    assert (status, out) == (0, [])


def test_claim_is_no_finding_but_is_told_as_what_files_do_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = checked(tmp_path, capsys, job(VOLUMES), a_node("n"))
    assert (status, out) == (0, [])
    assert err[0] == (
        "1 Job/train: spec.template.spec.volumes[0].persistentVolumeClaim: the pods wait until persistentvolumeclaim "
        '"data" is bound, or its class binds it for its first pod; the files do not show that'
    )


def test_claim_of_an_ephemeral_volume_and_of_a_stateful_set_are_told_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = "{spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
    scratch = job(f"volumes: [{{name: scratch, ephemeral: {{volumeClaimTemplate: {claim}}}}}]")
    many = a_job(kind="StatefulSet").replace(
        "spec:\n  template:", f"spec:\n  volumeClaimTemplates: [{claim}]\n  template:"
    )
    status, out, err = checked(tmp_path, capsys, scratch, many)
    assert (status, out) == (0, [])
    assert err[0].startswith(
        "1 Job/train: spec.template.spec.volumes[0].ephemeral: the pods wait until the claim of each pod"
    )
    assert err[1].startswith("2 StatefulSet/train: spec.volumeClaimTemplates: the pods wait")
