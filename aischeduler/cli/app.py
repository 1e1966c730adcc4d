"""The commands, their options, and how an error ends them.

Invariants:
- An error is one sentence on standard error. Exit status 2: the command line is wrong. 1: the command failed.
- A command that Ctrl-C ends prints nothing more.
- Importing this module is quick: a command imports what it needs when it runs.
"""

import asyncio
import gc
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final, Literal

from typer import Argument, Option, Typer, TyperException
from typer import Context as TyperContext

from aischeduler import __version__
from aischeduler.config.errors import ConfigError
from aischeduler.config.schema import LogFormat, LogLevel
from aischeduler.kube.http.errors import ApiError
from aischeduler.observability.logging import printable

INTERRUPTED: Final = 130
"""Exit status of a command that Ctrl-C ends: 128 and the number of the signal."""
PYDANTIC_LEAD: Final = "Value error, "
"""What Typer puts before its sentence about a choice that does not exist."""
_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}

app = Typer(
    name="ai-scheduler",
    help="A Kubernetes scheduler for AI training and inference.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
)
config_app = Typer(help="Show the configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")
pool_app = Typer(name="kubectl-pool", context_settings=_SETTINGS, add_completion=False, pretty_exceptions_enable=False)

Kubeconfig = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, then ~/.kube/config, then the service account of the pod.",
    ),
]
DaemonKubeconfig = Annotated[
    Path | None,
    Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. Default: $KUBECONFIG, then the service account of the pod, then ~/.kube/config.",
    ),
]
Context = Annotated[str | None, Option(metavar="NAME", help="Context of the kubeconfig. Default: the current context.")]
SnapshotFile = Annotated[
    Path | None, Option(metavar="FILE", help="File that snapshot wrote, to read instead of a cluster.")
]
Output = Annotated[
    Literal["table", "wide", "json"],
    Option("-o", "--output", help="Output format: wide adds columns, json is for programs."),
]
Watch = Annotated[bool, Option("-w", "--watch", help="Show the pools again on every change, at most once a second.")]
ConfigFile = Annotated[
    Path | None, Option(metavar="FILE", help="Configuration file. Without it, every field has its default.")
]


@app.command()
def run(
    kubeconfig: DaemonKubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
    no_leader_elect: Annotated[
        bool, Option("--no-leader-elect", help="Schedule without leader election: run only one replica.")
    ] = False,
    log_format: Annotated[LogFormat | None, Option(help="Log format. Overrides the configuration.")] = None,
    log_level: Annotated[LogLevel | None, Option(help="Lowest level to log. Overrides the configuration.")] = None,
    http_address: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="Address for metrics and health, or none. Overrides the configuration."),
    ] = None,
    journal: Annotated[
        Path | None, Option(metavar="DIR", help="Directory for a journal of all decisions, which replay reads.")
    ] = None,
) -> None:
    """Run the scheduler until SIGTERM or Ctrl-C."""
    gc.disable()  # imported modules and listed objects stay, and collecting takes a tenth of the start
    try:
        from aischeduler.cli.run import RunOptions, run_daemon  # noqa: PLC0415
        from aischeduler.daemon.service import loop_factory  # noqa: PLC0415

        options = RunOptions(
            kubeconfig=kubeconfig,
            context=context,
            config=config,
            log_format=log_format,
            log_level=log_level,
            http_address=http_address,
            no_leader_elect=no_leader_elect,
            journal=journal,
        )
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_daemon(options))
    finally:
        gc.enable()


@app.command()
def operator(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    scheduler_name: Annotated[
        str, Option(metavar="NAME", help="schedulerName of the pods that it makes.")
    ] = "ai-scheduler",
    default_image: Annotated[
        str, Option(metavar="IMAGE", help="Image of pods whose spec names none. Without it a BatchProcess is refused.")
    ] = "",
    health_address: Annotated[
        str, Option(metavar="HOST:PORT", help="Address for health checks at /healthz, or none.")
    ] = "none",
    log_format: Annotated[LogFormat, Option(help="Log format.")] = LogFormat.JSON,
    log_level: Annotated[LogLevel, Option(help="Lowest level to log.")] = LogLevel.INFO,
) -> None:
    """Run the operator of BatchProcess and TrainingJob until SIGTERM or Ctrl-C: it makes pods. Run one replica."""
    from aischeduler.cli.operator import run_operator  # noqa: PLC0415

    run_operator(
        kubeconfig=kubeconfig,
        context=context,
        scheduler_name=scheduler_name,
        default_image=default_image,
        health_address=health_address,
        log_format=log_format,
        log_level=log_level,
    )


@app.command("device-reporter")
def device_reporter(
    node_name: Annotated[
        str, Option(envvar="NODE_NAME", metavar="NAME", help="The node of this machine. Default: $NODE_NAME.")
    ],
    interval: Annotated[float, Option(min=1, metavar="SECONDS", help="Time between two reports.")] = 30.0,
    host_root: Annotated[
        Path, Option(metavar="DIR", help="Where the root folder of the node is mounted, for sys and var/lib/kubelet.")
    ] = Path("/"),
    once: Annotated[bool, Option("--once", help="Report once.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print one report as YAML and write nothing.")] = False,
    kubeconfig: DaemonKubeconfig = None,
    context: Context = None,
    log_format: Annotated[LogFormat, Option(help="Log format.")] = LogFormat.JSON,
    log_level: Annotated[LogLevel, Option(help="Lowest level to log.")] = LogLevel.INFO,
) -> None:
    """Report the GPUs and other devices of a node until SIGTERM or Ctrl-C: run one on each node with devices."""
    from aischeduler.cli.device_reporter import run_device_reporter  # noqa: PLC0415
    from aischeduler.device_reporter.program import Settings  # noqa: PLC0415

    settings = Settings(node_name, interval, host_root, kubeconfig, context)
    run_device_reporter(settings, once=once, dry_run=dry_run, log_format=log_format, log_level=log_level)


@app.command()
def demo(
    keep: Annotated[bool, Option("--keep", help="Keep the cluster running for kubectl until Ctrl-C.")] = False,
) -> None:
    """Schedule two Jobs in three Pools of a cluster in memory, and show the result."""
    from aischeduler.cli.demo import run_demo  # noqa: PLC0415

    asyncio.run(run_demo(keep=keep))


@app.command()
def sandbox(
    port: Annotated[int, Option(min=0, max=65535, metavar="N", help="Port on 127.0.0.1; 0 takes a free port.")] = 0,
    kubeconfig_out: Annotated[
        Path | None, Option(metavar="FILE", help="File to write the kubeconfig to. Default: a temporary file.")
    ] = None,
) -> None:
    """Run a Kubernetes API server in memory until Ctrl-C."""
    from aischeduler.cli.sandbox import run_sandbox  # noqa: PLC0415

    asyncio.run(run_sandbox(port, kubeconfig_out))


@app.command()
def pools(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
    watch: Watch = False,
) -> None:
    """Print the amounts of every Pool: capacity, allocatable, used, lent to other Pools, pending."""
    from aischeduler.cli.pools import print_pools  # noqa: PLC0415
    from aischeduler.cli.shown_numbers import ShowOptions  # noqa: PLC0415

    options = ShowOptions(kubeconfig=kubeconfig, context=context, json=output == "json", watch=watch)
    asyncio.run(print_pools(options, wide=output == "wide"))


@pool_app.callback(invoke_without_command=True)
def pool(
    invoked: TyperContext,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = "table",
    watch: Watch = False,
) -> None:
    """Print the amounts of every Pool: capacity, allocatable, used, lent to other Pools, pending."""
    if invoked.invoked_subcommand is None:
        pools(kubeconfig, context, output, watch)


@app.command()
def queues(
    name: Annotated[str, Argument(metavar="[NAME]", help="A Queue, with all below it. Default: all.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["table", "json"], Option("-o", "--output", help="Output format: json is for programs.")
    ] = "table",
    watch: Annotated[
        bool, Option("-w", "--watch", help="Show the queues again on every change, at most once a second.")
    ] = False,
    config: Annotated[
        Path | None, Option(metavar="FILE", help="Configuration of the scheduler, by which Volcano's queues count.")
    ] = None,
) -> None:
    """Print the quota of every Queue and what its pods use of it, in cards by model, CPU and memory."""
    from aischeduler.cli.queues import print_queues  # noqa: PLC0415
    from aischeduler.cli.shown_numbers import ShowOptions  # noqa: PLC0415

    options = ShowOptions(kubeconfig=kubeconfig, context=context, json=output == "json", watch=watch)
    asyncio.run(print_queues(options, name, config))


@app.command()
def jobs(
    namespace: Annotated[
        str, Option("-n", "--namespace", metavar="NAMESPACE", help="The jobs of this namespace. Default: all.")
    ] = "",
    output: Annotated[
        Literal["table", "json"], Option("-o", "--output", help="Output format: json is for programs.")
    ] = "table",
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
) -> None:
    """Print the elastic jobs, the least served first: level, service, share, size, freezing window and state."""
    from aischeduler.cli.cluster_source import ClusterSource  # noqa: PLC0415
    from aischeduler.cli.jobs import JobsOptions, print_jobs  # noqa: PLC0415

    source = ClusterSource(kubeconfig, context, snapshot)
    asyncio.run(print_jobs(JobsOptions(source=source, config=config, namespace=namespace, json=output == "json")))


@app.command()
def devices(
    node: Annotated[str, Argument(metavar="[NODE]", help="The devices of this node. Default: of all.")] = "",
    output: Annotated[
        Literal["table", "json"], Option("-o", "--output", help="Output format: json is for programs.")
    ] = "table",
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
) -> None:
    """Print every GPU and other device that a Device object has: its health, what is used of it, and by which pods."""
    from aischeduler.cli.cluster_source import ClusterSource  # noqa: PLC0415
    from aischeduler.cli.devices import print_devices  # noqa: PLC0415

    source = ClusterSource(kubeconfig, context, snapshot)
    asyncio.run(print_devices(source, node, config=config, json=output == "json"))


@app.command()
def explain(
    target: Annotated[
        str,
        Argument(
            metavar="[POD]", help="A pod, or the pods of a workload: job/NAME, tj/NAME, jobset/NAME, deployment/NAME."
        ),
    ] = "",
    namespace: Annotated[str, Option("-n", "--namespace", metavar="NAMESPACE", help="Namespace.")] = "default",
    all_pods: Annotated[bool, Option("--all", help="Explain every pod that waits in the Pool of --pool.")] = False,
    pool: Annotated[str, Option("--pool", metavar="POOL", help="The Pool of --all.")] = "",
    output: Annotated[
        Literal["text", "json"], Option("-o", "--output", help="Output format: json is for programs.")
    ] = "text",
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
) -> None:
    """Explain why a pod waits or runs where it does, and what would start it. It reads the cluster and writes nothing.

    Exit status 3: there is no such object. 4: the pod belongs to another scheduler. 5: it has finished.
    """
    gc.disable()  # listed objects stay, and collecting takes a tenth of the time
    from aischeduler.cli.cluster_source import ClusterSource  # noqa: PLC0415
    from aischeduler.cli.explain import ExplainOptions, explain_pods  # noqa: PLC0415

    source = ClusterSource(kubeconfig, context, snapshot)
    options = ExplainOptions(
        source=source,
        config=config,
        target=target,
        namespace=namespace,
        pool=pool,
        all_pods=all_pods,
        json=output == "json",
    )
    try:
        asyncio.run(explain_pods(options))
    finally:
        gc.enable()


pool_app.command()(explain)


@app.command()
def check(
    files: Annotated[list[str] | None, Argument(metavar="FILE", help="Files to check, as with -f.")] = None,
    file: Annotated[
        list[str] | None, Option("-f", "--file", metavar="FILE", help="YAML file to check; - is standard input.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, Option(metavar="FILE", help="Kubeconfig of a cluster. The checks use its nodes and Pools too.")
    ] = None,
    context: Annotated[
        str | None, Option(metavar="NAME", help="Context of a cluster. The checks use its nodes and Pools too.")
    ] = None,
    config: Annotated[
        Path | None,
        Option(metavar="FILE", help="Configuration of the scheduler. Default: the first configuration in the files."),
    ] = None,
) -> int:
    """Find mistakes in configurations, Pools and pods before you apply them. Exit status 1: there are findings."""
    from aischeduler.cli.check import check as check_files  # noqa: PLC0415

    return asyncio.run(
        check_files([*(file or ()), *(files or ())], kubeconfig=kubeconfig, context=context, config=config)
    )


@app.command()
def plan(
    file: Annotated[
        list[str] | None,
        Option("-f", "--file", metavar="FILE", help="YAML or JSON file of what to apply; - is standard input."),
    ] = None,
    without: Annotated[
        list[str] | None, Option(metavar="NODE", help="Plan without this node: where its pods would go.")
    ] = None,
    replicas: Annotated[
        list[int] | None, Option(min=0, metavar="N", help="Plan each template with N pods. Repeat it to compare.")
    ] = None,
    pool: Annotated[
        list[str] | None, Option(metavar="POOL", help="Plan the pods in this pool. Repeat it to compare.")
    ] = None,
    output: Annotated[
        Literal["table", "json"], Option("-o", "--output", help="Output format: json is for programs.")
    ] = "table",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    snapshot: SnapshotFile = None,
    config: ConfigFile = None,
) -> int:
    """Show what applying files or draining nodes would start, move and evict, without doing it."""
    from aischeduler.cli.cluster_source import ClusterSource  # noqa: PLC0415
    from aischeduler.cli.plan import PlanOptions, print_plan  # noqa: PLC0415

    source = ClusterSource(kubeconfig, context, snapshot)
    options = PlanOptions(
        files=file or (),
        source=source,
        config=config,
        replicas=replicas or (),
        pools=pool or (),
        without=without or (),
        json=output == "json",
    )
    return asyncio.run(print_plan(options))


@app.command()
def snapshot(
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE", help="File to write; a name that ends in .gz is compressed.")
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
) -> None:
    """Write what scheduling reads of a cluster into a file, for explain, plan and devices. Nothing else is in it."""
    from aischeduler.cli.cluster_source import ClusterSource, write_snapshot  # noqa: PLC0415

    asyncio.run(write_snapshot(ClusterSource(kubeconfig, context), output, config))


@app.command()
def replay(file: Annotated[Path, Argument(metavar="FILE", help="A file that run --journal wrote.")]) -> int:
    """Repeat the decisions of a journal and show the first that differs. Exit status 1: a decision differs."""
    from aischeduler.cli.replay import replay_file  # noqa: PLC0415

    return replay_file(file)


@config_app.command("print")
def config_print(
    config: ConfigFile = None,
    defaults: Annotated[bool, Option("--defaults", help="Print the defaults and ignore --config.")] = False,
) -> None:
    """Print every field with its value, and the default of each value that differs from it."""
    from aischeduler.config.load import as_yaml, load_config  # noqa: PLC0415
    from aischeduler.config.schema import Config  # noqa: PLC0415

    print(as_yaml(Config() if defaults else load_config(config)), end="")


@app.command()
def version() -> None:
    """Print the version."""
    print(f"ai-scheduler {__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ai-scheduler`; return its exit status."""
    return _run(app, "ai-scheduler", arguments)


def kubectl_pool(arguments: Sequence[str] | None = None) -> int:
    """Run `kubectl pool`; return its exit status."""
    return _run(pool_app, "kubectl pool", arguments)


def _run(program: Typer, name: str, arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a character that the terminal cannot show is escaped
    try:
        status = program(args=arguments, prog_name=name, standalone_mode=False)
    except TyperException as error:
        return _failed(name, error.format_message(), error.exit_code)
    except (ConfigError, ApiError) as error:
        return _failed(name, str(error), 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _failed(name: str, sentence: str, status: int) -> int:
    if sentence.strip():  # empty where the help is printed instead
        print(f"{name}: {printable(sentence.replace(PYDANTIC_LEAD, ''))}", file=sys.stderr)
    return status
