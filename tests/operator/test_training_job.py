"""What a TrainingJob may say, in both groups, how a refusal names the field, and what has no effect."""

import copy
from typing import Any

import pytest

from aischeduler.operator.owner import Json, Settings, SpecError
from aischeduler.operator.training_job import IMAGE, read_training_job
from tests.operator.training_world import PADDLE, SMALL, paddle_job, training_job

ORIGINAL = "max-instances should be equal to min-instances when fault_tolerant is disabled"


def read(document: Json, settings: Settings | None = None) -> Any:
    named = copy.deepcopy(document)
    named["metadata"]["uid"] = "u1"
    return read_training_job(named, settings or Settings())


def test_least_spec_has_the_defaults_of_paddlepaddle() -> None:
    found = read(training_job(least=3, most=None, pservers=0, fault_tolerant=False))
    assert (found.image, found.port, found.ports_num, found.ports_num_for_sparse) == (IMAGE, 7164, 1, 1)
    assert (found.fault_tolerant, found.passes, found.pservers, found.backoff_limit) == (False, 1, 0, 6)
    assert (found.min_instances, found.max_instances, found.is_elastic, found.gang_min) == (3, 3, False, 3)
    assert (found.level, found.clean, found.window_seconds, found.ignored) == ("Normal", "OnCompletion", 300.0, ())


def test_image_is_that_of_the_spec_else_of_the_operator_else_of_paddlepaddle() -> None:
    operator = Settings(default_image="base:1")
    assert read(training_job(image="own:1"), operator).image == "own:1"
    assert read(training_job(), operator).image == "base:1"
    assert read(training_job()).image == "paddlepaddle/paddlecloud-job"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("5m", 300), ("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5_400), ("1.5h", 5_400), ("250ms", 0.25), ("+1m", 60)],
)
def test_freezing_window_is_a_duration_of_go(said: str, seconds: float) -> None:
    found = read(training_job(freezingWindow=said))
    assert (found.window, found.window_seconds) == (said, pytest.approx(seconds))


@pytest.mark.parametrize(
    ("more", "level", "priority_class"),
    [
        ({}, "Normal", ""),
        ({"priorityLevel": "Production"}, "Production", ""),
        ({"priorityClassName": "high"}, "", "high"),
        ({"priorityLevel": "Offline", "priorityClassName": "high"}, "Offline", "high"),
    ],
)
def test_level_is_normal_unless_a_level_or_a_class_is_said(more: Json, level: str, priority_class: str) -> None:
    found = read(training_job(**more))
    assert (found.level, found.priority_class) == (level, priority_class)


def trainer(**more: Any) -> Json:
    return {"minInstances": 2, "maxInstances": 4, "resources": SMALL, **more}


WRONG: list[tuple[Json, str]] = [
    ({"trainer": None}, r"spec\.trainer must be an object"),
    ({"trainer": {}}, r"spec\.trainer\.minInstances is missing"),
    ({"trainer": trainer(minInstances=0)}, r"spec\.trainer\.minInstances must be a whole number from 1 to 5000, not 0"),
    ({"trainer": trainer(minInstances=-1)}, r"spec\.trainer\.minInstances must be .*, not -1"),
    ({"trainer": trainer(maxInstances=0)}, r"spec\.trainer\.maxInstances must be"),
    ({"trainer": trainer(minInstances="2")}, r"spec\.trainer\.minInstances must be"),
    (
        {"trainer": trainer(minInstances=5)},
        r"spec\.trainer\.minInstances is 5, more than maxInstances, which is 4: lower it, or raise that",
    ),
    ({"trainer": trainer(maxInstances=5_001)}, r"spec\.trainer\.maxInstances must be"),
    (
        {"trainer": trainer(maxInstances=5_000)},
        r"spec\.trainer\.maxInstances is 5000: .* 5002 pods, and at most 5000 are",
    ),
    ({"trainer": trainer(allowedInstances="2,4")}, r"spec\.trainer\.allowedInstances must be a list"),
    (
        {"trainer": trainer(allowedInstances=[2] * 513)},
        r"spec\.trainer\.allowedInstances must be a list of at most 512",
    ),
    ({"trainer": trainer(allowedInstances=[2, "4"])}, r"spec\.trainer\.allowedInstances\[1\] must be a whole number"),
    (
        {"trainer": trainer(resources=None)},
        r"spec\.trainer\.resources has neither requests nor limits, and an instance needs one of them",
    ),
    ({"trainer": trainer(resources={"limits": {}})}, r"spec\.trainer\.resources has neither requests nor limits"),
    ({"trainer": trainer(resources={"limits": {"cpu": "two"}})}, r"spec\.trainer\.resources\.limits\.cpu: .*quantity"),
    ({"trainer": trainer(resources={"requests": {"cpu": "-1"}})}, r"spec\.trainer\.resources\.requests\.cpu .* below"),
    ({"trainer": trainer(entrypoint=["train"])}, r"spec\.trainer\.entrypoint must be a text"),
    ({"pserver": {"minInstances": 2}}, r"spec\.pserver\.resources has neither requests nor limits"),
    ({"pserver": {"minInstances": -1}}, r"spec\.pserver\.minInstances must be a whole number from 0"),
    (
        {"pserver": {"minInstances": 2, "maxInstances": 1, "resources": SMALL}},
        r"spec\.pserver\.minInstances is 2, more than maxInstances, which is 1: lower it",
    ),
    ({"master": {"resources": {"limits": {"memory": "x"}}}}, r"spec\.master\.resources\.limits\.memory"),
    ({"faultTolerant": "yes"}, r"spec\.faultTolerant must be true or false"),
    (
        {"faultTolerant": False},
        r"spec\.trainer: maxInstances should be equal to minInstances when faultTolerant is disabled",
    ),
    ({"passes": 0}, r"spec\.passes must be a whole number from 1"),
    ({"port": 65_536}, r"spec\.port must be"),
    ({"port": 65_535}, r"spec\.port is 65535, so that the last port is 65536, more than 65535"),
    ({"portsNum": 0}, r"spec\.portsNum must be"),
    ({"portsNumForSparse": -1}, r"spec\.portsNumForSparse must be"),
    ({"priorityLevel": "High"}, r"spec\.priorityLevel must be Experiment, Offline, Normal or Production, not 'High'"),
    ({"freezingWindow": "5"}, r"spec\.freezingWindow: must be a duration such as .*, not '5'"),
    ({"freezingWindow": "-5m"}, r"spec\.freezingWindow: must be .* not '-5m'"),
    ({"freezingWindow": "5 m"}, r"spec\.freezingWindow: must be .* not '5 m'"),
    ({"freezingWindow": "9" * 30 + "h"}, r"spec\.freezingWindow: must be a duration"),
    ({"freezingWindow": 5}, r"spec\.freezingWindow must be a text"),
    ({"cleanPodPolicy": "always"}, r"spec\.cleanPodPolicy must be Always, Never, OnCompletion or OnFailure"),
    ({"backoffLimit": -1}, r"spec\.backoffLimit must be a whole number from 0"),
    ({"pool": 7}, r"spec\.pool must be a name"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_field_that_cannot_be_carried_out_is_named(changes: Json, sentence: str) -> None:
    document = training_job()
    document["spec"] |= changes
    with pytest.raises(SpecError, match=f"^{sentence}"):
        read(document)


@pytest.mark.parametrize("spec", [None, {}, "all", [], 7])
def test_spec_of_any_shape_is_refused_and_not_an_error(spec: Any) -> None:
    for document in (training_job(), paddle_job()):
        document["spec"] = spec
        with pytest.raises(SpecError, match=r"^spec"):
            read(document)


def test_what_has_no_effect_is_told_once_for_each_reason() -> None:
    document = training_job(trainer={"allowedInstances": [1, 2, 3, 16]})
    document["spec"]["pserver"]["maxInstances"] = 3
    found = read(document)
    ((reason, note),) = found.ignored
    assert (reason, note.split("; ")) == (
        "IgnoredField",
        [
            "spec.pserver.maxInstances 3 has no effect: the pservers stay at minInstances, 1",
            "spec.trainer.allowedInstances: 1, 16 have no effect outside minInstances 2 to maxInstances 4",
        ],
    )
    assert (found.allowed, found.pservers) == ((2, 3), 1)


def test_minimum_is_always_an_allowed_size() -> None:
    assert read(training_job(trainer={"allowedInstances": [4, 4]})).allowed == (2, 4)
    assert read(training_job(trainer={"allowedInstances": [16]})).allowed == (2,)
    assert read(training_job()).allowed == ()


def test_pods_get_pool_and_queue_of_the_spec_before_those_of_annotations_and_none_of_the_terms() -> None:
    key = "resource.aibee.cn/"
    annotations = {f"{key}pool": "a", f"{key}gang-span": "true", f"{key}min-instances": "1", "example.com/x": "y"}
    found = read(training_job(annotations=annotations, pool="b", queue="q"))
    assert found.annotations == {f"{key}pool": "b", f"{key}queue": "q", f"{key}gang-span": "true"}


def test_spec_of_paddlepaddle_is_read_with_its_own_names() -> None:
    found = read(paddle_job())
    assert (found.api_version, found.fault_tolerant, found.pservers, found.masters) == (PADDLE, True, 2, 1)
    assert (found.min_instances, found.max_instances, found.gang_min) == (2, 6, 5)
    assert (found.ports_num, found.entrypoint, found.workspace) == (2, "python train.py", "/home/job-1")
    assert found.pod["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert (found.pod["nodeSelector"], found.pod["hostNetwork"]) == ({"disk": "fast"}, True)
    assert found.mounts == [{"name": "data", "mountPath": "/data"}]
    assert found.master_resources == {"requests": {"cpu": "200m", "memory": "500Mi"}}
    assert found.ignored == ()


def test_other_spellings_of_paddlepaddle_mean_the_same() -> None:
    document = paddle_job()
    spec = document["spec"]
    spec["Volumes"], spec["volumeMounts"], spec["nodeSelector"] = (
        spec.pop(name) for name in ("volumes", "VolumeMounts", "NodeSelector")
    )
    assert read(document) == read(paddle_job())


def test_zeros_of_paddlepaddle_are_the_defaults() -> None:
    zeros: Json = {"image": "", "port": 0, "ports_num": 0, "ports_num_for_sparse": 0, "passes": 0}
    found = read(paddle_job(pserver={"min-instance": 0, "max-instance": 0}, **zeros))
    assert (found.image, found.port, found.ports_num, found.ports_num_for_sparse) == (IMAGE, 7164, 1, 1)
    assert (found.passes, found.pservers) == (1, 0)


def test_misplaced_passes_and_the_endpoint_of_etcd_are_told_in_the_names_of_paddlepaddle() -> None:
    document = paddle_job()
    document["spec"]["trainer"]["passes"] = 10
    document["spec"]["master"]["etcd-endpoint"] = "http://etcd:2379"
    document["spec"]["pserver"]["max-instance"] = 4
    found = read(document)
    assert found.passes == 1
    misplaced, (reason, note) = found.ignored
    assert misplaced == ("MisplacedField", "spec.trainer.passes has no effect; the field is spec.passes")
    assert (reason, note.split("; ")) == (
        "IgnoredField",
        [
            "spec.pserver.max-instance 4 has no effect: the pservers stay at min-instance, 2",
            "spec.master.etcd-endpoint has no effect: the master has an etcd of its own",
        ],
    )


def test_annotations_say_what_the_spec_of_paddlepaddle_has_no_field_for() -> None:
    key = "resource.aibee.cn/"
    annotations = {
        f"{key}priority-level": "Offline",
        f"{key}freezing-window": "30s",
        f"{key}allowed-instances": "2, 4",
        f"{key}pool": "gpu",
    }
    found = read(paddle_job(annotations))
    assert (found.level, found.window, found.allowed) == ("Offline", "30s", (2, 4))
    assert found.annotations == {f"{key}pool": "gpu"}


WRONG_PADDLE: list[tuple[Json, dict[str, str] | None, str]] = [
    ({"fault_tolerant": False}, None, rf"spec\.trainer: {ORIGINAL}$"),
    ({"fault_tolerant": 1}, None, r"spec\.fault_tolerant must be true or false"),
    ({"ports_num": -1}, None, r"spec\.ports_num must be"),
    ({"trainer": {"min-instance": 0, "resources": SMALL}}, None, r"spec\.trainer\.min-instance must be"),
    (
        {"trainer": {"min-instance": 3, "max-instance": 2, "resources": SMALL}},
        None,
        r"spec\.trainer\.min-instance is 3, more than max-instance, which is 2: lower it",
    ),
    ({}, {"resource.aibee.cn/priority-level": "x"}, r"metadata\.annotations\[resource.aibee.cn/priority-level\] must"),
    ({}, {"resource.aibee.cn/freezing-window": "x"}, r"metadata\.annotations\[resource.aibee.cn/freezing-window\]: "),
    ({}, {"resource.aibee.cn/allowed-instances": "x"}, r"metadata\.annotations\[.*/allowed-instances\] must be a list"),
]


@pytest.mark.parametrize(
    ("changes", "annotations", "sentence"), WRONG_PADDLE, ids=[sentence for *_, sentence in WRONG_PADDLE]
)
def test_refusal_of_a_job_of_paddlepaddle_has_its_names(
    changes: Json, annotations: dict[str, str] | None, sentence: str
) -> None:
    with pytest.raises(SpecError, match=f"^{sentence}"):
        read(paddle_job(annotations, **changes))
