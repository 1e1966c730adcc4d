"""`ai-scheduler jobs`: the elastic jobs, the least served first, with their sizes and what each has received.

Invariants:
- The cluster is listed with the caller's rights, or read from a snapshot file. Nothing is written, no daemon is asked.
- The order is that of all jobs, whatever namespace is shown.
"""

import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from aischeduler.analysis.cluster_snapshot import loaded
from aischeduler.analysis.deciding import decide_all
from aischeduler.analysis.elastic_jobs import elastic_jobs
from aischeduler.cli.cluster_source import ClusterSource, read_cluster
from aischeduler.cli.jobs_output import jobs_json, jobs_table
from aischeduler.cli.output import console, print_trimmed
from aischeduler.config.load import load_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.model.elastic import MAX_INSTANCES_KEY, MIN_INSTANCES_KEY
from aischeduler.observability.logging import printable

NONE: Final = f"no job asks to be elastic, by the annotations {MIN_INSTANCES_KEY} and {MAX_INSTANCES_KEY}"


class JobsOptions(Struct, frozen=True, kw_only=True):
    """The command line; an empty namespace means all."""

    source: ClusterSource
    config: Path | None = None
    namespace: str = ""
    json: bool = False


async def print_jobs(options: JobsOptions) -> None:
    """Print the elastic jobs; raises AccessError, ListError, ConfigError and TyperException."""
    config = load_config(options.config)
    profile = profile_of(config)
    snapshot = await read_cluster(options.source, config.elastic.kinds, cached=True)
    scheduler, now = loaded(profile, snapshot), float(snapshot.taken_seconds)
    decide_all(scheduler, now)
    found = [row for row in elastic_jobs(scheduler.cluster, now) if options.namespace in ("", row.namespace)]
    if options.json:
        console().out(jobs_json(found), highlight=False)
    else:
        print_trimmed(console(), jobs_table(found, snapshot.taken_seconds))
    if not found:
        where = f" in the namespace {options.namespace}" if options.namespace else ""
        print(printable(f"{NONE}{where}"), file=sys.stderr, flush=True)
