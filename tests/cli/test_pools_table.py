"""The table of all pools, as a user sees it."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from aischeduler.cli.output import print_trimmed
from aischeduler.cli.pools_output import amount, flags, pool_table
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from aischeduler.model.pool_summary import GPU, CardCount, PoolSummary

GIB = 2**30


def resources(cpu_milli: int, gpu: int, memory_bytes: int, storage_bytes: int, pods: int) -> dict[str, int]:
    return {CPU: cpu_milli, GPU: gpu, MEMORY: memory_bytes, EPHEMERAL_STORAGE: storage_bytes, PODS: pods}


NOTHING = resources(cpu_milli=0, gpu=0, memory_bytes=0, storage_bytes=0, pods=0)
CPU_POOL = PoolSummary(
    name="cpu-pool",
    nodes=7,
    capacity=resources(cpu_milli=336_000, gpu=0, memory_bytes=7 * 256 * GIB, storage_bytes=7 * 2**40, pods=770),
    allocatable=resources(cpu_milli=294_000, gpu=0, memory_bytes=7 * 240 * GIB, storage_bytes=6 * 2**40, pods=770),
    used=resources(cpu_milli=289_634, gpu=0, memory_bytes=10**9, storage_bytes=0, pods=153),
    own=resources(cpu_milli=120_000, gpu=0, memory_bytes=10**9, storage_bytes=0, pods=120),
    shared=resources(cpu_milli=162_634, gpu=0, memory_bytes=0, storage_bytes=0, pods=26),
    system=resources(cpu_milli=7_000, gpu=0, memory_bytes=0, storage_bytes=0, pods=7),
    borrowed=resources(cpu_milli=0, gpu=24, memory_bytes=0, storage_bytes=0, pods=3),
    free=resources(cpu_milli=4_366, gpu=0, memory_bytes=GIB, storage_bytes=6 * 2**40, pods=617),
    pending=resources(cpu_milli=9_620_000, gpu=0, memory_bytes=9620 * 10**8, storage_bytes=0, pods=9620),
    pending_pods=9620,
    pods=153,
    preemption=True,
    borrowing=True,
    sharing=True,
)
GPU_POOL = PoolSummary(
    name="gpu-pool",
    nodes=15,
    capacity=resources(cpu_milli=720_000, gpu=114, memory_bytes=15 * 512 * GIB, storage_bytes=0, pods=1650),
    allocatable=resources(cpu_milli=644_000, gpu=114, memory_bytes=15 * 500 * GIB, storage_bytes=0, pods=1650),
    used=NOTHING,
    own=NOTHING,
    shared=NOTHING,
    system=NOTHING,
    borrowed=NOTHING,
    free=resources(cpu_milli=644_000, gpu=114, memory_bytes=15 * 500 * GIB, storage_bytes=0, pods=1650),
    pending=NOTHING,
    pending_pods=0,
    pods=0,
    preemption=False,
    borrowing=True,
    sharing=False,
)

GOLDEN = """
Pools     Resource  Capacity  Allocatable     Used   Shared  Pending  Total
───────────────────────────────────────────────────────────────────────────
cpu-pool  cpu            336          294  289.634  162.634    9,620    938
p✓ b✓ s✓  gpu              0            0        0        0        0    114
          mem          1.8Ti        1.6Ti  953.7Mi        0  895.9Gi    9Ti
          storage        7Ti          6Ti        0        0        0    6Ti
          nodes            7            7        -        -        -     22
          pods           770          770      153       26    9,620  2,420

gpu-pool  cpu            720          644        0        0        0    938
p✗ b✓ s✗  gpu            114          114        0        0        0    114
          mem          7.5Ti        7.3Ti        0        0        0    9Ti
          storage          0            0        0        0        0    6Ti
          nodes           15           15        -        -        -     22
          pods         1,650        1,650        0        0        0  2,420
"""


GOLDEN_WIDE = """
Pools     Resource  Capacity  Allocatable     Used      Own   Shared  System  Borrowed   Free  Pending  Total
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
cpu-pool  cpu            336          294  289.634      120  162.634       7         0  4.366    9,620    294
p✓ b✓ s✓  gpu              0            0        0        0        0       0        24      0        0      0
          mem          1.8Ti        1.6Ti  953.7Mi  953.7Mi        0       0         0    1Gi  895.9Gi  1.6Ti
          storage        7Ti          6Ti        0        0        0       0         0    6Ti        0    6Ti
          nodes            7            7        -        -        -       -         -      -        -      7
          pods           770          770      153      120       26       7         3    617    9,620    770
"""


def shown(*pools: PoolSummary, width: int = 120, wide: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(pool_table(pools, wide=wide))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_table_shows_every_pool_in_human_units_beside_the_cluster() -> None:
    assert shown(CPU_POOL, GPU_POOL) == GOLDEN.strip("\n")


def test_wide_table_also_tells_whose_the_used_amounts_are_and_what_is_borrowed_and_free() -> None:
    assert shown(CPU_POOL, width=200, wide=True) == GOLDEN_WIDE.strip("\n")


def test_total_is_the_sum_of_what_is_allocatable() -> None:
    lines = shown(CPU_POOL, GPU_POOL).splitlines()
    assert [line.split()[-1] for line in lines if " cpu " in line] == ["938", "938"]
    assert [line.split()[-1] for line in lines if " nodes " in line] == ["22", "22"]


def test_flags_say_what_is_on() -> None:
    assert flags(GPU_POOL).plain == "p✗ b✓ s✗"


def test_table_fits_a_terminal_of_eighty_columns() -> None:
    assert max(len(line) for line in shown(CPU_POOL, GPU_POOL, width=200).splitlines()) <= 80


@pytest.mark.parametrize(
    ("resource", "count", "text"),
    [
        (CPU, 0, "0"),
        (CPU, 1, "0.001"),
        (CPU, 500, "0.5"),
        (CPU, 1_000, "1"),
        (CPU, 1_920_000_000, "1,920,000"),
        (MEMORY, 0, "0"),
        (MEMORY, 1023, "1,023"),
        (MEMORY, 1024, "1Ki"),
        (MEMORY, 100_000_000, "95.4Mi"),
        (MEMORY, 64 * GIB, "64Gi"),
        (MEMORY, 2**60 * 5000, "5,000Ei"),
        (EPHEMERAL_STORAGE, 2**40 + 2**39, "1.5Ti"),
        (GPU, 123_400, "1,234"),
        (GPU, 123_450, "1,234.5"),
        (PODS, 110, "110"),
    ],
)
def test_amounts_are_written_for_people(resource: str, count: int, text: str) -> None:
    assert amount(resource, count) == text


def test_no_line_ends_in_blanks_without_a_terminal() -> None:
    out = io.StringIO()
    print_trimmed(Console(file=out, width=120), "", pool_table([CPU_POOL]))
    lines = out.getvalue().split("\n")
    assert lines[0] == lines[-1] == ""
    assert "Pools     Resource" in lines[1]
    assert [line for line in lines if line != line.rstrip()] == []


def test_wide_table_has_a_row_for_each_card_type_with_the_total_of_all_pools() -> None:
    cards = (CardCount("A100", 64, 300), CardCount("V100", 50, 0))
    pools = [replace(GPU_POOL, cards=cards), replace(CPU_POOL, cards=(CardCount("V100", 4, 400),))]
    text = io.StringIO()
    print_trimmed(Console(file=text, width=200), pool_table(pools, wide=True))
    rows = [line.split() for line in text.getvalue().splitlines() if "00 " in line and "- " in line]
    assert [row for row in rows if row[0] == "-"] == [
        ["-", "A100", "-", "64", "3", "-", "-", "-", "-", "-", "-", "64"],
        ["-", "V100", "-", "50", "0", "-", "-", "-", "-", "-", "-", "54"],
        ["-", "V100", "-", "4", "4", "-", "-", "-", "-", "-", "-", "54"],
    ]
    narrow = io.StringIO()
    print_trimmed(Console(file=narrow, width=200), pool_table(pools))
    assert "A100" not in narrow.getvalue()
