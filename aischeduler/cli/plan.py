"""`ai-scheduler plan`: what the scheduler would do if these files were applied, or these nodes drained, now.

Invariants:
- The plan is made in a copy of the cluster: nothing is written, and the daemon is not asked.
- Each variant is planned in a copy of its own.
- Exit status 0: there is a plan, whatever it says. 1: there is none. 2: the command line is wrong.
"""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

from msgspec import Struct
from typer import TyperException

from aischeduler.analysis.cluster_copy import ClusterCopy
from aischeduler.analysis.cluster_snapshot import ClusterSnapshot
from aischeduler.analysis.plan import Plan, PlanError, plan
from aischeduler.cli.cluster_source import ClusterSource, read_cluster
from aischeduler.cli.documents import read_files, usage_error
from aischeduler.cli.output import console
from aischeduler.cli.plan_documents import FindingsError, PlanInput, Variant, change_of, plan_input
from aischeduler.cli.plan_output import plan_json, print_plans
from aischeduler.config.load import load_config
from aischeduler.config.schema import Config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.profile import Profile
from aischeduler.model.names import can_be_pool_name
from aischeduler.observability.logging import printable

FAILED: Final = 1
"""Exit status without a plan."""
VARIANTS_MAX: Final = 12


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The command line."""

    files: Sequence[str]
    source: ClusterSource
    config: Path | None = None
    replicas: Sequence[int] = ()
    pools: Sequence[str] = ()
    without: Sequence[str] = ()
    json: bool = False


async def print_plan(options: PlanOptions) -> int:
    """Print the plan and return the exit status; raises ConfigError, ApiError and TyperException."""
    variants = _variants(options)
    config = load_config(options.config)
    try:
        given = _read_files(options.files)
        snapshot = await read_cluster(options.source, config.elastic.kinds, cached=True)
        plans = [(variant, _plan(given, snapshot, config, variant, options)) for variant in variants]
    except FindingsError as error:
        for finding in error.findings:
            print(finding.line(), file=sys.stderr)
        return FAILED
    except PlanError as error:
        raise TyperException(str(error)) from error
    if left_out := left_out_plugins(profile_of(config)):
        print(printable(f"plugins that a plan does not run: {left_out}"), file=sys.stderr)
    if ignored := given.ignored():
        print(printable(f"not planned: {ignored}"), file=sys.stderr)
    to = console(width_min=1)
    if options.json:
        to.out(plan_json(plans, snapshot.taken_seconds, snapshot.gaps), highlight=False)
    else:
        print_plans(to, plans)
    return 0


def left_out_plugins(profile: Profile) -> str:
    """Return the plugins that only the daemon runs, with their points; empty where there are none."""
    points = (("PreBind", "pre_binds"), ("Bind", "binds"), ("PostBind", "post_binds"))
    found: dict[str, list[str]] = {}
    for plugins in (profile.plugins, *profile.others.values()):
        for point, field in points:
            for plugin in getattr(plugins, field):
                if point not in found.setdefault(plugin.name, []):
                    found[plugin.name].append(point)
    return ", ".join(f"{'/'.join(points)} of {name}" for name, points in sorted(found.items()))


def _variants(options: PlanOptions) -> list[Variant]:
    """Return the variants; raises TyperException where the options do not fit together."""
    if not options.files and not options.without:
        raise usage_error("there is nothing to plan: use -f FILE, or --without NODE")
    if not options.files and (options.replicas or options.pools):
        raise usage_error("--replicas and --pool change the pods of a file: use them with -f FILE")
    if not all(map(can_be_pool_name, options.pools)):
        raise usage_error("--pool: this is not the name of a Pool")
    replicas, pools = dict.fromkeys(options.replicas or (None,)), dict.fromkeys(options.pools or (None,))
    variants = [Variant(number, pool) for number, pool in product(replicas, pools)]
    if len(variants) > VARIANTS_MAX:
        raise usage_error(f"--replicas and --pool make {len(variants)} variants, and a plan has at most {VARIANTS_MAX}")
    return variants


def _read_files(names: Sequence[str]) -> PlanInput:
    documents, findings = read_files(names)
    if findings:
        raise FindingsError(findings)
    return plan_input(documents)


def _plan(given: PlanInput, snapshot: ClusterSnapshot, config: Config, variant: Variant, options: PlanOptions) -> Plan:
    return plan(ClusterCopy(profile_of(config), snapshot), change_of(given, snapshot, variant, options.without))
