"""The samples of a scrape, parsed by prometheus-client's own parsers."""

from collections.abc import Iterable

import pytest
from prometheus_client import parser
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser

from aischeduler import __version__
from aischeduler.engine.counters import Result
from aischeduler.kube.watch.watched_resources import ReflectorCounts
from aischeduler.model.actions import Evict, EvictionCause
from aischeduler.model.names import CPU, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, CardCount
from aischeduler.model.proposal import LenderRefusal
from aischeduler.model.tenant_queue import CARDS_MAX, CardUse
from aischeduler.observability.metrics_server import Form, encode
from tests.observability.world import StillReflector, World, bind, pod, queue_report, summary

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FPGA = "example.com/fpga"


def scraped(world: World, accept: str = OPENMETRICS) -> list[Metric]:
    form = Form.accepted(accept)
    text = world.scrape(form)
    if form is Form.OPENMETRICS:
        return list(openmetrics_parser.text_string_to_metric_families(text.decode()))  # type: ignore[no-untyped-call]
    return list(parser.text_string_to_metric_families(text.decode()))


def values(world: World, name: str) -> dict[tuple[str, ...], float]:
    """Return every sample of this name: the values of its labels, in the order of the labels' names, and its value."""
    return by_labels(scraped(world), name)


def by_labels(families: Iterable[Metric], name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(text for _, text in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def busy_world() -> World:
    """Return a world in which every metric has a sample."""
    gpu = summary(
        "gpu",
        nodes=2,
        cards=(CardCount("A100", 8, 300),),
        capacity={CPU: 64_000, GPU: 8, FPGA: 1},
        pending={PODS: 3},
        sharing=False,
    )
    world = World(gpu, summary("cpu", nodes=1))
    counters = world.engine.counters
    counters.attempts["gpu", Result.BOUND] = 7
    counters.borrow_attempts["gpu"] = 4
    counters.borrow_refusals["gpu", LenderRefusal.NOT_SHARING] = 3
    counters.evictions["gpu", EvictionCause.RECLAIMED] = 2
    counters.net_saves["cpu"] = 1
    counters.violations["I1"] = 1
    world.engine.queues = {"gpu": {"parked": 2, "active": 1}}
    world.engine.lent = {("cpu", "gpu"): 1}
    world.engine.conflicting = {"cpu": 1}
    world.recorder.record_attempts("gpu", attempts=4, seconds=0.004)
    action = bind("a", "cpu", home="gpu", waited_seconds=12.0)
    world.recorder.record_outcome(action, "Accepted", 0.25)
    world.recorder.record_outcome(action, "Taken", 0.25)
    evictions = [Evict(pod(uid), "n", "gpu", "cpu", EvictionCause.RECLAIMED, pod("owner"), "d1") for uid in ("x", "y")]
    world.recorder.record_victims(evictions)
    world.recorder.record_outcome(evictions[0], "Evicted", 0.5)
    world.reports.written, world.reports.dropped, world.reports.refused = 5, 1, 2
    world.reflectors["Pod"] = StillReflector(3, ReflectorCounts(lists=2, old_events=9, unreadable_objects=1))
    world.recorder.internal_errors["binder"] += 1
    world.recorder.plugin_errors["Far"] += 1
    world.queues = ["vision", "speech"]
    world.recorder.record_queues([queue_report("vision", CardUse("H200", 300, 8), pending_pods=2, over=True)])
    world.recorder.record_reclaims("vision", 4)
    world.recorder.plugin_calls["Far"], world.recorder.plugin_seconds["Far"] = 4, 0.5
    return world


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain",
        "*/*",
        OPENMETRICS,
        "text/plain; version=1.0.0",
        "application/openmetrics-text; version=abc",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
        "=;,;=,q=x",
    ],
)
def test_every_answer_is_of_the_format_that_its_type_names(accept: str) -> None:
    families = {family.name for family in scraped(busy_world(), accept)}
    assert {"ai_scheduler_pool_resource", "ai_scheduler_bind_duration_seconds"} <= families


def test_both_formats_have_the_same_samples() -> None:
    world = busy_world()
    plain, openmetrics = scraped(world, ""), scraped(world, OPENMETRICS)
    names = {sample.name for family in plain for sample in family.samples}
    ours = {name for name in names if name.startswith("ai_scheduler_")}
    assert ours == {s.name for family in openmetrics for s in family.samples if s.name.startswith("ai_scheduler_")}
    for name in sorted(ours):
        assert by_labels(plain, name) == by_labels(openmetrics, name)


def test_amounts_are_in_base_units() -> None:
    gib = 2**30
    world = World(
        summary(
            "gpu",
            capacity={CPU: 64_500, MEMORY: gib, GPU: 8},
            used={CPU: 1_250},
            free={GPU: 7, "nvidia.com/gpu/100": 50},
        )
    )
    told = values(world, "ai_scheduler_pool_resource")  # kind, pool, resource
    assert told["capacity", "gpu", CPU] == 64.5
    assert told["capacity", "gpu", MEMORY] == gib
    assert told["used", "gpu", CPU] == 1.25
    assert told["free", "gpu", GPU] == 7.5


def test_every_pool_has_every_kind_of_amount() -> None:
    told = values(World(summary("a"), summary("b")), "ai_scheduler_pool_resource")
    kinds = {"capacity", "allocatable", "used", "own", "shared", "system", "borrowed", "free", "pending"}
    assert {(kind, pool) for kind, pool, _ in told} == {(kind, pool) for kind in kinds for pool in "ab"}


def test_queues_and_attempts_of_an_idle_pool_are_zero() -> None:
    world = World(summary("idle"))
    pending = values(world, "ai_scheduler_pending_pods")
    assert pending == {("idle", queue): 0 for queue in ("active", "backoff", "parked", "nominated", "held", "gated")}
    assert set((values(world, "ai_scheduler_scheduling_attempts_total")).values()) == {0}
    assert (values(world, "ai_scheduler_evictions_total"))["Reclaimed", "idle"] == 0


def test_tenant_queue_has_its_newest_numbers_until_it_is_deleted_and_reclaims_from_its_first_scrape() -> None:
    world = busy_world()
    world.recorder.record_queues([queue_report("vision", CardUse("H200", 450, 8), CardUse("V100", 100))])
    cards = {("H200", "quota", "vision"): 8, ("H200", "used", "vision"): 4.5, ("V100", "used", "vision"): 1}
    assert values(world, "ai_scheduler_queue_cards") == cards
    assert values(world, "ai_scheduler_queue_over_quota") == {("vision",): 0}
    assert values(world, "ai_scheduler_queue_pending_pods") == {("vision",): 0}
    assert values(world, "ai_scheduler_queue_reclaims_total") == {("vision",): 4, ("speech",): 0}
    world.queues.remove("vision")
    assert values(world, "ai_scheduler_queue_cards") == {}
    assert values(world, "ai_scheduler_queue_reclaims_total") == {("speech",): 0}


def test_tenant_queue_with_many_cards_has_few_series_and_those_with_a_quota_first() -> None:
    world = World(summary("gpu"))
    world.queues = ["q"]
    cards = [CardUse(f"A{number:03}", 100) for number in range(CARDS_MAX)]
    world.recorder.record_queues([queue_report("q", *cards, CardUse("H200", 300, 8))])
    told = values(world, "ai_scheduler_queue_cards")
    assert told["H200", "used", "q"] == 3
    assert told["other", "used", "q"] == 1
    assert len(told) == CARDS_MAX + 2


def test_counts_of_engine_and_shell_are_exposed() -> None:
    families = scraped(busy_world())
    for name, labels, value in (
        ("pool_nodes", ("gpu",), 2),
        ("pool_switch_on", ("gpu", "sharing"), 0),
        ("pool_conflict_nodes", ("cpu",), 1),
        ("pending_pods", ("gpu", "parked"), 2),
        ("loans", ("gpu", "cpu"), 1),  # home, lender
        ("scheduling_attempts_total", ("gpu", "bound"), 7),
        ("borrow_attempts_total", ("gpu",), 4),
        ("borrow_refusals_total", ("gpu", "NotSharing"), 3),
        ("evictions_total", ("Reclaimed", "gpu"), 2),
        ("net_saves_total", ("cpu",), 1),
        ("invariant_violations_total", ("I1",), 1),
        ("reports_total", ("refused",), 2),
        ("leader", (), 1),
        ("backlog", ("inbox",), 5),
        ("watched_objects", ("Pod",), 3),
        ("lists_total", ("Pod",), 2),
        ("old_events_total", ("Pod",), 9),
        ("unreadable_objects_total", ("Pod",), 1),
    ):
        assert by_labels(families, f"ai_scheduler_{name}")[labels] == value, name
    (build,) = by_labels(families, "ai_scheduler_build_info")
    assert build[1] == __version__
    assert by_labels(families, "process_resident_memory_bytes")[()] > 0


def test_durations_and_sizes_are_histograms() -> None:
    families = scraped(busy_world())
    for name, labels, count, total in (
        ("scheduling_attempt_duration_seconds", ("gpu",), 4, 0.004),
        ("queue_wait_seconds", ("gpu",), 1, 12.0),
        ("bind_duration_seconds", ("Accepted", "cpu"), 1, 0.25),
        ("bind_duration_seconds", ("Taken", "cpu"), 1, 0.25),
        ("eviction_duration_seconds", ("Evicted",), 1, 0.5),
        ("preemption_victims", ("gpu",), 1, 2),
    ):
        assert by_labels(families, f"ai_scheduler_{name}_count")[labels] == count
        assert by_labels(families, f"ai_scheduler_{name}_sum")[labels] == pytest.approx(total)
        assert by_labels(families, f"ai_scheduler_{name}_bucket")["+Inf", *labels] == count


def test_names_of_pools_that_do_not_exist_never_become_labels() -> None:
    world = World(summary("real"))
    for number in range(10_000):
        world.engine.counters.attempts[f"no-such-{number}", Result.BOUND] = 1
        world.engine.lent["real", f"no-such-{number}"] = 1
        world.recorder.record_attempts(f"no-such-{number}", attempts=1, seconds=0.001)
        world.recorder.record_outcome(bind(f"u{number}", f"no-such-{number}"), "Accepted", 0.1)
    labels = {
        value
        for family in scraped(world)
        for sample in family.samples
        for label, value in sample.labels.items()
        if label in ("pool", "home", "lender")
    }
    assert labels == {"real"}


def test_pods_evicted_for_no_pod_are_not_counted_as_victims() -> None:
    world = World(summary("gpu"))
    world.recorder.record_victims([Evict(pod("x"), "n", "gpu", "cpu", EvictionCause.LOAN_ENDED, None, "d1")])
    assert values(world, "ai_scheduler_preemption_victims_count") == {}


def test_series_of_a_deleted_pool_are_gone_and_restart_at_zero() -> None:
    world = busy_world()
    both = world.engine.summaries
    world.engine.summaries = both[1:]
    told = scraped(world)
    assert {s.labels["pool"] for family in told for s in family.samples if "pool" in s.labels} == {"cpu"}
    world.engine.summaries = both
    assert ("gpu",) not in values(world, "ai_scheduler_queue_wait_seconds_count")


def test_pools_above_the_limit_are_summed_up_as_other() -> None:
    pools = [summary(f"p{number}", nodes=1, used={PODS: 10}) for number in range(5)]
    world = World(*pools, limit=3)
    world.engine.lent = {("p0", "p3"): 1, ("p0", "p4"): 2}
    for pool in pools:
        world.engine.counters.net_saves[pool.name] = 1
    assert values(world, "ai_scheduler_pool_nodes") == {("p0",): 1, ("p1",): 1, ("p2",): 1, ("other",): 2}
    assert (values(world, "ai_scheduler_pool_resource"))["used", "other", PODS] == 20
    assert (values(world, "ai_scheduler_net_saves_total"))[("other",)] == 2
    assert (values(world, "ai_scheduler_loans"))["other", "p0"] == 3


def test_pool_keeps_its_label_when_pools_before_it_come_and_go() -> None:
    world = World(summary("m"), summary("z"), limit=2)
    scraped(world)
    world.engine.summaries = (summary("a"), *world.engine.summaries)
    assert set(values(world, "ai_scheduler_pool_nodes")) == {("other",), ("m",), ("z",)}
    world.engine.summaries = (summary("a"), summary("z"))
    assert set(values(world, "ai_scheduler_pool_nodes")) == {("a",), ("z",)}


def test_resources_that_only_pods_name_never_become_labels() -> None:
    strange = {f"example.com/r{number}": 1 for number in range(1000)}
    world = World(summary("gpu", capacity={FPGA: 2}, pending={**strange, FPGA: 1}))
    told = values(world, "ai_scheduler_pool_resource")
    assert {resource for _, _, resource in told} == {CPU, MEMORY, "ephemeral-storage", PODS, GPU, FPGA}
    assert told["pending", "gpu", FPGA] == 1


def test_number_of_resources_is_limited() -> None:
    many = {f"example.com/r{number:03}": 1 for number in range(1000)}
    told = values(World(summary("gpu", capacity=many)), "ai_scheduler_pool_resource")
    assert len({resource for _, _, resource in told}) == 32


def test_pool_with_odd_characters_cannot_break_a_line() -> None:
    world = World(summary('a"b\\c\nd'))
    assert (values(world, "ai_scheduler_pool_nodes")) == {('a"b\\c\nd',): 0}


def test_numbers_are_those_of_the_time_of_take() -> None:
    world = busy_world()
    world.collector.take()
    counters = world.engine.counters
    counters.attempts["gpu", Result.BOUND] = 8
    counters.net_saves["cpu"] = 9
    world.recorder.internal_errors["binder"] += 1
    world.recorder.plugin_errors["Far"] += 1
    world.recorder.plugin_calls["Far"], world.recorder.plugin_seconds["Far"] = 4, 0.5
    world.reports.written = 6
    world.engine.queues["gpu"]["active"] = 5
    text = encode(world.recorder.registry, Form.OPENMETRICS).decode()
    families = list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    for name, labels, value in (
        ("scheduling_attempts_total", ("gpu", "bound"), 7),
        ("net_saves_total", ("cpu",), 1),
        ("internal_errors_total", ("binder",), 1),
        ("reports_total", ("written",), 5),
        ("pending_pods", ("gpu", "active"), 1),
    ):
        assert by_labels(families, f"ai_scheduler_{name}")[labels] == value, name


def test_pool_that_is_deleted_while_it_decides_changes_no_other_count() -> None:
    world = World(summary("a"), summary("b"), limit=1)
    world.recorder.record_attempts("b", attempts=2, seconds=0.001)
    world.recorder.record_attempts("b", attempts=-5, seconds=0.001)
    counts = values(world, "ai_scheduler_scheduling_attempt_duration_seconds_count")
    assert list(counts.values()) == [2]
