"""The commands, their options, and what becomes of errors.

Laws:
- An error is one sentence on standard error: status 2 for how a command was written, 1 for what went wrong.
- A command that Ctrl-C ends says nothing more.
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

from aischeduler import __version__
from aischeduler.config.load import ConfigError
from aischeduler.config.schema import LogFormat, LogLevel
from aischeduler.kube.errors import ApiError
from aischeduler.observability.logging import printable

INTERRUPTED: Final = 130
"""Exit status of a command that Ctrl-C ended before it was done: 128 and the number of the signal."""
_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}

app = Typer(
    name="ai-scheduler",
    help="A scheduler for Kubernetes clusters that train and serve AI.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
    pretty_exceptions_enable=False,
)
config_app = Typer(help="Look at the configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")
pool_app = Typer(name="kubectl-pool", context_settings=_SETTINGS, add_completion=False, pretty_exceptions_enable=False)

Kubeconfig = Annotated[
    Path | None,
    Option(metavar="FILE", help="Credentials. Without it: $KUBECONFIG, the pod's service account, ~/.kube/config."),
]
Context = Annotated[str | None, Option(metavar="NAME", help="Context of the kubeconfig. Without it: the current one.")]
Output = Literal["table", "wide", "json"]
ConfigFile = Annotated[Path | None, Option(metavar="FILE", help="Configuration. Without it: all defaults.")]


@app.command()
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: ConfigFile = None,
    no_leader_elect: Annotated[
        bool, Option("--no-leader-elect", help="Schedule without an election: run only one of this name at a time.")
    ] = False,
    log_format: Annotated[LogFormat | None, Option(help="Wins over the configuration.")] = None,
    log_level: Annotated[LogLevel | None, Option(help="Wins over the configuration.")] = None,
    http_address: Annotated[
        str | None, Option(metavar="HOST:PORT", help="Where metrics and health are served; none: nowhere.")
    ] = None,
) -> None:
    """Run the scheduler until it is told to stop."""
    gc.disable()  # what is imported and listed stays: walking over it again and again is a tenth of our start
    try:
        from aischeduler.cli.run import Options, run_daemon  # noqa: PLC0415
        from aischeduler.daemon.service import loop_factory  # noqa: PLC0415

        options = Options(kubeconfig, context, config, log_format, log_level, http_address, no_leader_elect)
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_daemon(options))
    finally:
        gc.enable()


@app.command()
def demo(
    keep: Annotated[bool, Option("--keep", help="Leave it running for kubectl, until Ctrl-C.")] = False,
) -> None:
    """Show two Jobs on three pools in a cluster of its own; ends by itself."""
    from aischeduler.cli.demo import run_demo  # noqa: PLC0415

    asyncio.run(run_demo(keep=keep))


@app.command()
def sandbox(
    port: Annotated[int, Option(min=0, max=65535, metavar="N", help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    kubeconfig_out: Annotated[
        Path | None, Option(metavar="FILE", help="Where to write the kubeconfig. Without it: a temporary file.")
    ] = None,
) -> None:
    """Run a Kubernetes API server in memory until Ctrl-C."""
    from aischeduler.cli.sandbox import run_sandbox  # noqa: PLC0415

    asyncio.run(run_sandbox(port, kubeconfig_out))


@app.command()
def pools(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[Output, Option("-o", "--output", help="wide has more columns, json is for programs.")] = "table",
    watch: Annotated[bool, Option("-w", "--watch", help="Show every change, at most once a second.")] = False,
) -> None:
    """Print what every pool has, uses, lends and waits for."""
    from aischeduler.cli.pools import Options, print_pools  # noqa: PLC0415

    options = Options(kubeconfig, context, wide=output == "wide", json=output == "json", watch=watch)
    asyncio.run(print_pools(options))


pool_app.command()(pools)


@app.command()
def check(
    files: Annotated[list[str] | None, Argument(metavar="[FILE]...", help="More files.")] = None,
    file: Annotated[list[str] | None, Option("-f", "--file", metavar="FILE", help="YAML; - is standard input.")] = None,
    kubeconfig: Annotated[
        Path | None, Option(metavar="FILE", help="Look at the nodes and Pools of a cluster too.")
    ] = None,
    context: Context = None,
    config: Annotated[Path | None, Option(metavar="FILE", help="Configuration of the scheduler that is meant.")] = None,
) -> int:
    """Say what is wrong with configurations, Pools and pods before they are applied; status 1 where something is."""
    from aischeduler.cli.check import CheckOptions  # noqa: PLC0415
    from aischeduler.cli.check import check as check_files  # noqa: PLC0415

    return asyncio.run(check_files(CheckOptions([*(file or ()), *(files or ())], kubeconfig, context, config)))


@config_app.command("print")
def config_print(
    config: ConfigFile = None,
    defaults: Annotated[bool, Option("--defaults", help="The defaults, whatever the file says.")] = False,
) -> None:
    """Print every field with the value in force, and its default where that is another."""
    from aischeduler.cli.config import print_config  # noqa: PLC0415

    print_config(config, defaults=defaults)


@app.command()
def version() -> None:
    """Print the version."""
    print(f"ai-scheduler {__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `ai-scheduler`; return its exit status."""
    return _status(app, "ai-scheduler", arguments)


def kubectl_pool(arguments: Sequence[str] | None = None) -> int:
    """Run `kubectl pool`; return its exit status."""
    return _status(pool_app, "kubectl pool", arguments)


def _status(program: Typer, name: str, arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show becomes an escape
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
    if sentence.strip():  # without any argument the help was printed instead
        print(f"{name}: {printable(sentence)}", file=sys.stderr)
    return status
