"""`ai-scheduler plan` and `check` of Device objects, and of pods that ask for devices."""

import json
from pathlib import Path

import pytest
import yaml

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, write_lines
from aischeduler.cli.app import main
from aischeduler.model.events import DevicesListed, Event, Seen
from aischeduler.state.devices import DELIVERY_LABEL
from tests.build import a_node, a_pod
from tests.devices import asks, gpus, has, part_of
from tests.objects import Json

LISTED = {"kubernetes.io/gpu": "200"}
CLUSTER: tuple[Event, ...] = (
    Seen(a_node("n", labels={DELIVERY_LABEL: "koordlet"}, extended=LISTED)),
    Seen(gpus("n", 1)),
    DevicesListed(listed=True),
    Seen(a_pod("old", node="n", devices=asks(60), has=has(part_of(0, 60)))),
    Seen(a_pod("waits", devices=asks(50))),
)


def device(*minors: int, memory: str = "80Gi") -> Json:
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": memory}
    devices = [{"type": "gpu", "id": f"GPU-{at}", "minor": at, "health": True, "resources": amounts} for at in minors]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    return {**kind, "metadata": {"name": "n"}, "spec": {"devices": devices}}


def pod(amount: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"kubernetes.io/gpu": amount}}}
    spec = {"schedulerName": "ai-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": spec}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    lines = write_lines(ClusterSnapshot(1_767_225_600, CLUSTER, ()))
    (tmp_path / "cluster.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    return tmp_path


def plan(files: Path, capsys: pytest.CaptureFixture[str], document: Json) -> Json:
    (files / "f.yaml").write_text(yaml.safe_dump(document))
    options = ["--snapshot", str(files / "cluster.jsonl"), "-f", str(files / "f.yaml"), "-o", "json"]
    assert main(["plan", *options]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    found: Json = json.loads(said.out)
    return found


def test_share_that_fits_beside_the_others_starts(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = {amount: plan(files, capsys, pod(amount))["units"][0]["verdict"] for amount in ("40", "50")}
    assert verdicts == {"40": "starts", "50": "waits"}


def test_further_card_starts_the_pod_that_waits(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = plan(files, capsys, device(0, 1))["alsoStarts"]
    assert len(started) == 1
    assert "waits" in json.dumps(started)


def test_check_names_the_device_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(yaml.safe_dump(device(0, memory="32GB")))
    assert main(["check", "-f", str(path)]) == 1
    assert "spec.devices[0].resources[koordinator.sh/gpu-memory]" in capsys.readouterr().out
