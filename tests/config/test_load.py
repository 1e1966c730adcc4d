"""The configuration file: what it may leave out, and the one sentence for each way to get it wrong."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from aischeduler.config.errors import ConfigError
from aischeduler.config.load import FILE_BYTES_MAX, load_config, parse_config
from aischeduler.config.schema import (
    BackoffConfig,
    Config,
    ConstraintRule,
    DefaultPool,
    ElasticConfig,
    ElasticKind,
    EventsConfig,
    EvictionWay,
    GroupRuleConfig,
    Http,
    LeaderElection,
    LogFormat,
    Logging,
    LogLevel,
    NamespaceSelector,
    fields,
)
from aischeduler.kube.watch.cluster_lister import resources
from aischeduler.model.pool import MakeRoomOrder

ROOT = Path(__file__).resolve().parents[2]
TOP = [field.path for field in fields() if "." not in field.path]
FIELDS = f"{', '.join(TOP[:-1])} and {TOP[-1]}"
GREATER = "must be greater than"
NAME = "schedulerName must be a name of lower-case letters, digits, '-' and '.', at most 253 characters, not "
ADDRESS = "http.address must be host:port such as :8080 or 127.0.0.1:8080, or none, not "
LABEL = "must be the key of a node label such as nvidia.com/gpu.product, with at most one *"
LABELS = "gpuTypeLabels must be a list of at most 8 keys of node labels such as nvidia.com/gpu.product, not "
RARE = "rareTypes must be a list of at most 32 card types such as H200 or A100-80GB, not "
GROUPS = (
    "machineGroups must be a list of at most 64 rules such as "
    "{name: vision, namespaceSelector: {matchLabels: {team: vision}}}"
)
KINDS = (
    "elastic.kinds must be a list of at most 16 kinds such as "
    "{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, resource: clonesets}"
)
VISION = {"team": "vision"}
GPUS = "gpuResources must be a list of 1 to 16 resource names such as nvidia.com/gpu, not "


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config("ai.yaml", text.encode())
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "# nothing but a remark\n", "---\n", "logging: {}\n"])
def test_what_is_left_out_has_its_default(text: str) -> None:
    assert parse_config("ai.yaml", text.encode()) == Config()


def test_no_file_means_all_defaults() -> None:
    assert load_config(None) == Config()


def test_every_field_is_read() -> None:
    text = """
    apiVersion: config.resource.aibee.cn/v1alpha1
    kind: AiSchedulerConfiguration
    schedulerName: night-shift
    bindInFlight: 256
    gpuResources: [nvidia.com/gpu, amd.com/gpu]
    gpuTypeLabels: [example.com/card, example.com/mig-*.card]
    rareTypes: [H200]
    machineGroups: [{name: vision, namespaceSelector: {matchLabels: {team: vision}}}]
    elastic: {kinds: [{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, resource: clonesets, ordered: true}]}
    disablePreemption: true
    eviction: Evict
    makeRoom: BorrowThenPreempt
    unsupportedConstraints: Ignore
    requestTimeoutSeconds: 7
    defaultPool: {disableSharing: true}
    backoff: {initialSeconds: 2, maxSeconds: 60}
    events: {perSecond: 50, burst: 60}
    leaderElection: {enabled: false, namespace: ai, leaseName: one, leaseDurationSeconds: 30}
    logging: {format: console, level: debug, valueLengthMax: 200}
    http: {address: "127.0.0.1:9090"}
    """
    assert parse_config("ai.yaml", text.encode()) == Config(
        scheduler_name="night-shift",
        bind_in_flight=256,
        gpu_resources=("nvidia.com/gpu", "amd.com/gpu"),
        gpu_type_labels=("example.com/card", "example.com/mig-*.card"),
        rare_types=("H200",),
        machine_groups=(GroupRuleConfig(name="vision", namespace_selector=NamespaceSelector(match_labels=VISION)),),
        elastic=ElasticConfig(
            kinds=(
                ElasticKind(api_version="apps.kruise.io/v1alpha1", kind="CloneSet", resource="clonesets", ordered=True),
            )
        ),
        disable_preemption=True,
        eviction=EvictionWay.EVICT,
        make_room=MakeRoomOrder.BORROW_THEN_PREEMPT,
        unsupported_constraints=ConstraintRule.IGNORE,
        request_timeout_seconds=7,
        default_pool=DefaultPool(disable_sharing=True),
        backoff=BackoffConfig(initial_seconds=2, max_seconds=60),
        events=EventsConfig(per_second=50, burst=60),
        leader_election=LeaderElection(enabled=False, namespace="ai", lease_name="one", lease_duration_seconds=30),
        logging=Logging(format=LogFormat.CONSOLE, level=LogLevel.DEBUG, value_length_max=200),
        http=Http(address="127.0.0.1:9090"),
    )


def test_example_writes_out_every_default() -> None:
    path = ROOT / "examples" / "config.yaml"
    assert load_config(path) == Config()
    assert yaml.safe_load(path.read_text()) == json.loads(msgspec.json.encode(Config()))


@pytest.mark.parametrize("text", ["bindInFligt: 3", "bindInFlight: 300", "leaderElection: {leaseDurationSeconds: 5}"])
def test_documentation_shows_what_is_said_of_a_wrong_file(text: str) -> None:
    assert f"ai-scheduler: {complaint(text)}\n" in (ROOT / "docs" / "configure.md").read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bindInFligt: 3", "'bindInFligt' is not a field; did you mean bindInFlight?"),
        ("logging: {formt: json}", "'logging.formt' is not a field; did you mean format?"),
        ("logging: {colour: red}", "'logging.colour' is not a field; the fields are format, level and valueLengthMax"),
        ("http: {port: 80}", "'http.port' is not a field; the only field is address"),
        ("http: {address: 8080}", ADDRESS + "8080"),
        ("http: {address: ':65536'}", ADDRESS + "':65536'"),
        ("http: {address: 'http://x:80'}", ADDRESS + "'http://x:80'"),
        ("http: {address: off}", ADDRESS + "false"),
        ('"a\\nb": 1', f"'a\\nb' is not a field; the fields are {FIELDS}"),
        ("bindInFlight: 0", "bindInFlight must be a whole number from 1 to 256, not 0"),
        ("bindInFlight: 257", "bindInFlight must be a whole number from 1 to 256, not 257"),
        ("bindInFlight: '3'", "bindInFlight must be a whole number from 1 to 256, not '3'"),
        ("bindInFlight: 3.0", "bindInFlight must be a whole number from 1 to 256, not 3.0"),
        ("bindInFlight: true", "bindInFlight must be a whole number from 1 to 256, not true"),
        ("bindInFlight:", "bindInFlight must be a whole number from 1 to 256, not empty"),
        ("schedulerName: 0x" + "f" * 5000, NAME + "a number of more than 64 bits"),
        ("schedulerName: &x [*x]", NAME + "a list of 1"),
        ("gpuResources: [gpu]", "gpuResources[0] must be a resource name such as nvidia.com/gpu, not 'gpu'"),
        ("gpuTypeLabels: a", LABELS + "'a'"),
        ("gpuTypeLabels: [a*b*c]", f"gpuTypeLabels[0] {LABEL}, not 'a*b*c'"),
        ("rareTypes: H200", RARE + "'H200'"),
        ("rareTypes: ['?']", "rareTypes[0] must be a card type such as H200 or A100-80GB, not '?'"),
        ("machineGroups: {}", f"{GROUPS}, not a mapping"),
        ("machineGroups: [{name: v}]", "machineGroups[0].namespaceSelector is missing"),
        ('machineGroups: [{"n\\n": v}]',
         "'machineGroups[0].n\\n' is not a field; the fields are name and namespaceSelector"),
        (
            "machineGroups: [{name: v, namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]",
            "machineGroups[0].namespaceSelector.matchExpressions[0].values: In needs at least one value",
        ),
        (
            "machineGroups: [{name: v, namespaceSelector: {matchLabels: {a: 1}}}]",
            "machineGroups[0].namespaceSelector.matchLabels[...] must be a label value of at most 63 characters",
        ),
        ("disablePreemption: 1", "disablePreemption must be true or false, not 1"),
        ("eviction: Drain", "eviction must be Delete or Evict, not 'Drain'"),
        ("unsupportedConstraints: Warn", "unsupportedConstraints must be Hold or Ignore, not 'Warn'"),
        ("makeRoom: Never", "makeRoom must be PreemptThenBorrow or BorrowThenPreempt, not 'Never'"),
        ("defaultPool: {disableSharin: true}",
         "'defaultPool.disableSharin' is not a field; did you mean disableSharing?"),
        ("backoff: {maxSeconds: 301}", "backoff.maxSeconds must be a whole number of seconds from 1 to 300, not 301"),
        ("backoff: {initialSeconds: 11}", "backoff.maxSeconds must be at least initialSeconds (11), not 10"),
        ("events: {burst: 0}", "events.burst must be a whole number from 1 to 100000, not 0"),
        ("requestTimeoutSeconds: 0", "requestTimeoutSeconds must be a whole number of seconds from 1 to 120, not 0"),
        ("leaderElection: {enabled: 1}", "leaderElection.enabled must be true or false, not 1"),
        ("leaderElection: {leaseDurationSeconds: 10}",
         f"leaderElection.leaseDurationSeconds {GREATER} renewDeadlineSeconds (10), not 10"),
        ("leaderElection: {retryPeriodSeconds: 9}",
         f"leaderElection.renewDeadlineSeconds {GREATER} 1.2 times retryPeriodSeconds (9), not 10"),
        ("gpuResources: []", GPUS + "an empty list"),
        ("logging: {format: xml}", "logging.format must be json or console, not 'xml'"),
        ("logging: {level: 3}", "logging.level must be debug, info, warning or error, not 3"),
        ("logging: 2001-01-01", "logging must be a mapping such as level: debug, not '2001-01-01'"),
        ("apiVersion: v1", "apiVersion must be config.resource.aibee.cn/v1alpha1, not 'v1'"),
        ("kind: Pool", "kind must be AiSchedulerConfiguration, not 'Pool'"),
        ("3: 4", "the file has a key that is not a string"),
        ("[a, b]", "must be a mapping such as 'bindInFlight: 32', not a list of 2"),
        ("a: b: c", "is not YAML at line 1, column 5: mapping values are not allowed here"),
        ("schedulerName: 2001-99-99T", f"{NAME}'2001-99-99T'"),
        ("x: \0", "is not YAML: it contains bytes that YAML does not allow"),
        ("[" * 5000, "cannot be read as YAML: it is nested too deeply"),
        ("#" * (FILE_BYTES_MAX + 1), "is larger than 256 KiB and cannot be a configuration"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_wrong_file_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    assert complaint(text) == f"ai.yaml: {sentence}"


@pytest.mark.parametrize("address", ["none", ":0", ":8080", "127.0.0.1:65535", "[::1]:80", "metrics.example:9090"])
def test_address_is_host_and_port_or_none(address: str) -> None:
    assert parse_config("ai.yaml", f"http: {{address: '{address}'}}".encode()).http == Http(address=address)


def kinds(*listed: str) -> str:
    """Return a configuration with these elastic kinds, each as GROUP/VERSION KIND RESOURCE."""
    fields = (dict(zip(("apiVersion", "kind", "resource"), one.split(), strict=True)) for one in listed)
    return yaml.safe_dump({"elastic": {"kinds": list(fields)}})


CLONE_SET = "apps.kruise.io/v1alpha1 CloneSet clonesets"


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [
        (["apps/v1 CloneSet clonesets"],
         "elastic.kinds[0].apiVersion must be a group and a version such as apps.kruise.io/v1alpha1, not 'apps/v1'"),
        ([CLONE_SET, "x.io/v1 A/b as"], "elastic.kinds[1].kind must be a kind such as CloneSet, not 'A/b'"),
        (["x.io/v1 A As"],
         "elastic.kinds[0].resource must be the plural of the kind in paths, such as clonesets, not 'As'"),
        (["batch.volcano.sh/v1alpha1 Job jobs"],
         "elastic.kinds[0].kind: the scheduler knows Job already, and tells kinds apart by their names alone"),
        ([CLONE_SET, "x.io/v1 CloneSet others"],
         "elastic.kinds[1].kind: CloneSet is there twice: kinds are told apart by their names alone"),
        ([CLONE_SET, "apps.kruise.io/v1beta1 Other clonesets"],
         "elastic.kinds[1].resource: clonesets of apps.kruise.io are there twice"),
        ([f"x.io/v1 A{n} a{n}" for n in range(17)],
         f"{KINDS}, not a list of 17"),
    ],
)  # fmt: skip
def test_kind_that_cannot_be_elastic_is_refused(listed: list[str], sentence: str) -> None:
    assert complaint(kinds(*listed)) == f"ai.yaml: {sentence}"


def test_no_kind_that_is_read_already_is_accepted() -> None:
    for kind in {resource.kind.partition(".")[0].partition(" ")[0] for resource in resources()}:
        assert "knows" in complaint(kinds(f"x.io/v1 {kind.lower()} others")), kind


def test_quoted_text_is_cut_and_escaped() -> None:
    assert complaint('schedulerName: "\\e[31m' + "x" * 1000 + '"').endswith("not '\\x1b[31m" + "x" * 55 + "...'")


def test_yaml_tags_run_nothing() -> None:
    assert "could not determine a constructor" in complaint("kind: !!python/object/apply:os.getcwd []")


@pytest.mark.parametrize(("path", "reason"), [("missing.yaml", "No such file or directory"), (".", "Is a directory")])
def test_unreadable_file_is_named_with_the_reason(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / path)
    assert str(caught.value) == f"{tmp_path / path}: cannot be read: {reason}"
