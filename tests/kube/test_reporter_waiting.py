"""A pending pod whose message changes: its Events, and the transition time of its condition."""

from tests.build import a_pod, replace
from tests.kube.reporter_world import STATUS, World, waiting, written


async def test_transition_time_of_a_pending_pod_does_not_change_with_the_message() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        for message in ("a", "b"):
            reports.report_waiting(waiting(message))
            await written(reports)
            world.wall += 7.0
        told = replace(waiting("c"), pod=replace(a_pod("p", uid="u-p"), said_to_wait=True))
        reports.report_waiting(told)
        await written(reports)
    conditions = [patch.json["status"]["conditions"][0] for patch in world.script.asked("patch")]
    first = "2026-01-02T03:04:05Z"
    assert [condition["message"] for condition in conditions] == ["a", "b", "c"]
    assert [condition.get("lastTransitionTime") for condition in conditions] == [first, first, None]


def no_room(nodes: int, cpu: int, tainted: int) -> str:
    parts = sorted((f"{cpu} Insufficient cpu", f"{tainted} node(s) had untolerated taint(s)"))
    return f"0/{nodes} nodes are available: {', '.join(parts)}. preemption: 0/{nodes} nodes are available."


async def test_other_counts_alone_make_no_event_for_five_minutes_but_change_the_condition() -> None:
    world = World().accept_all()
    texts = [no_room(3, 1, 2), no_room(3, 2, 1), no_room(12, 10, 2), no_room(13, 11, 2)]
    async with world.running() as reports:
        for text, seconds in zip(texts, (0.0, 100.0, 199.0, 2.0), strict=True):
            world.waits.now += seconds
            reports.report_waiting(waiting(text))
            reports.report_waiting(waiting(text, "q"))
            await written(reports)
    of_p = [event["note"] for event in world.events if event["regarding"]["name"] == "p"]
    assert of_p == [f"pool cpu: {text}" for text in (texts[0], texts[-1])]
    assert len(world.events) == 4
    told = [patch.json["status"]["conditions"][0]["message"] for patch in world.script.asked("patch", STATUS)]
    assert told == [f"pool cpu: {text}" for text in texts]


async def test_alternating_reasons_cause_one_event_each() -> None:
    world = World().accept_all()
    async with world.running() as reports:
        for number in range(1, 4):
            for reason in ("Insufficient cpu", "Insufficient memory"):
                reports.report_waiting(waiting(f"0/{number} nodes are available: {number} {reason}."))
                await written(reports)
    notes = [event["note"] for event in world.events]
    assert [note.rpartition("Insufficient ")[2] for note in notes] == ["cpu.", "memory."]
    assert len(world.script.asked("patch")) == 6
