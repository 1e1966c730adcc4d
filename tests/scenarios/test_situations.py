"""The three use cases of pools, and a pool of control-plane nodes that shares nothing."""

from tests.scenarios.stage import Stage


def test_cpu_jobs_use_idle_gpu_machines_until_gpu_jobs_come(stage: Stage) -> None:
    stage.node("cpu1", pool="cpu", cpu="8")
    stage.node("gpu1", pool="gpu", cpu="8", gpu=8)
    stage.pools("cpu", "gpu")
    stage.job("batch", pool="cpu", cpu="4", completions=4, parallelism=4)
    stage.until(lambda: stage.jobs_nodes("batch") == {"cpu1": 2, "gpu1": 2})
    stage.job("training", pool="gpu", cpu="8", gpu=8)
    stage.until(lambda: stage.jobs_nodes("training") == {"gpu1": 1})
    assert len(stage.victims()) == 2
    assert stage.jobs_nodes("batch")["cpu1"] == 2


def test_one_gpu_jobs_use_idle_eight_gpu_machines_until_eight_gpu_jobs_come(stage: Stage) -> None:
    stage.node("one1", pool="one", cpu="64", gpu=4)
    stage.node("eight1", pool="eight", cpu="64", gpu=8)
    stage.node("eight2", pool="eight", cpu="64", gpu=8)
    stage.pools("one", "eight")
    stage.job("small", pool="one", gpu=1, completions=7, parallelism=7)
    stage.until(lambda: stage.bound("small") == 7)
    packed = stage.jobs_nodes("small")
    assert packed["one1"] == 4
    assert sorted((packed["eight1"], packed["eight2"])) == [0, 3], "GPU pods pack, so that a machine stays whole"
    stage.job("large", pool="eight", gpu=8)
    stage.until(lambda: stage.bound("large") == 1)
    assert stage.victims() == []
    stage.job("larger", pool="eight", gpu=8)
    stage.until(lambda: stage.bound("larger") == 1)
    assert len(stage.victims()) == 3
    assert stage.jobs_nodes("small")["one1"] == 4


def test_idle_team_lends_its_nodes_and_reclaims_them_when_it_needs_them(stage: Stage) -> None:
    for team in ("team-a", "team-b"):
        for number in range(2):
            stage.node(f"{team}-{number}", pool=team, cpu="4")
    stage.pools("team-a", "team-b")
    stage.job("a-job", pool="team-a", cpu="4", completions=4, parallelism=4)
    stage.until(lambda: stage.bound("a-job") == 4)
    stage.until(lambda: stage.amount("team-b", "shared") == "8")
    stage.job("b-job", pool="team-b", cpu="4", completions=2, parallelism=2)
    stage.until(lambda: stage.jobs_nodes("b-job") == {"team-b-0": 1, "team-b-1": 1})
    assert stage.jobs_nodes("a-job")["team-a-0"] == stage.jobs_nodes("a-job")["team-a-1"] == 1
    stage.delete("Job", "b-job", propagationPolicy="Background")
    stage.job("a-more", pool="team-a", cpu="4", completions=2, parallelism=2)
    stage.until(lambda: stage.bound("a-job") + stage.bound("a-more") == 4)


def test_pool_of_masters_neither_lends_nor_borrows(stage: Stage) -> None:
    off = {"disablePreemption": True, "disableBorrowing": True, "disableSharing": True}
    stage.node("master1", pool="masters", cpu="8")
    stage.pools("masters", **off)
    stage.node("a1", pool="a", cpu="2")
    stage.pools("a")
    stage.pod("p", pool="a", cpu="4")
    stage.waits("p", "Insufficient cpu")
    stage.pod("system", pool="masters", cpu="8")
    stage.goes(system="master1")
    stage.pod("more", pool="masters", cpu="1", priority=10)
    stage.waits("more", "0/1 nodes are available: 1 Insufficient cpu.")
    assert stage.victims() == []
