"""The real control plane: etcd, kube-apiserver and kube-controller-manager on loopback, kube-scheduler on request.

Invariants:
- All files and logs are in one temporary directory. All programs end with the control plane or with the process that
  started it.
- A part that was killed, stopped or paused restarts on the same port with the same data.
- The calls block; in a coroutine use `asyncio.to_thread`.
"""

import base64
import http.client
import json
import os
import secrets
import select
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from tests.controlplane import commands
from tests.controlplane.binaries import Binaries
from tests.controlplane.certificates import Authority, Identity, write_service_account_keys
from tests.controlplane.part import POLL_EVERY_SECONDS, READY_WITHIN_SECONDS, Part, PartError
from tests.controlplane.ports import free_ports
from tests.controlplane.warden import Warden

PartName = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]

ANSWER_WITHIN_SECONDS = 30.0
PROBE_ANSWER_WITHIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the API server: the status code and the decoded JSON body, or None if it is not JSON."""

    status: int
    body: Any


class ControlPlane:
    """A control plane for one test session. Use it as a context manager."""

    def __init__(self, binaries: Binaries, *flags: str, scheduler_flags: tuple[str, ...] = ()) -> None:
        """Prepare the parts; `flags` are further flags of the API server, `scheduler_flags` of kube-scheduler."""
        self.binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="control-plane-"))
        self.ports = commands.Ports(*free_ports(5))
        self.url = f"https://127.0.0.1:{self.ports.api_server}"
        self.token = secrets.token_hex(16)
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self.token_kubeconfig = self.directory / "token.kubeconfig"
        self.scheduler_kubeconfig = self.directory / "scheduler.kubeconfig"
        """The kubeconfig of a user without permissions of its own."""
        self.audit_log = self.directory / "audit.log"
        """Every Binding and every request of a scheduler of the tests, one JSON document per line."""
        files, admin = self._write_files()
        self._files = files
        self.authority = files.authority
        self.admin = admin
        self.tls = _client_tls(files.authority, admin)
        self._warden = Warden()
        self._of_thread = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._parts: dict[PartName, Part] = {
            "etcd": self.program("etcd", commands.etcd(binaries, files, self.ports), self._etcd_ready),
            "kube-apiserver": self.program(
                "kube-apiserver", [*commands.kube_apiserver(binaries, files, self.ports), *flags], self._api_ready
            ),
            "kube-controller-manager": self.program(
                "kube-controller-manager",
                commands.kube_controller_manager(binaries, files, self.ports),
                lambda: self._healthy(self.ports.controllers, "/healthz"),
            ),
            "kube-scheduler": self._scheduler("kube-scheduler", scheduler_flags),
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start etcd, the API server and the controller manager, each after the previous is ready. Raises PartError."""
        for name in ("etcd", "kube-apiserver"):
            self._parts[name].start()
        self._wait_until(lambda: self.api("GET", "/api/v1/namespaces/default").status == 200, "the default namespace")
        self._parts["kube-controller-manager"].start()

    def start_kube_scheduler(self) -> None:
        """Start kube-scheduler. Raises PartError."""
        self._parts["kube-scheduler"].start()

    def close(self) -> None:
        """Kill every part and delete the directory with the logs."""
        for connection in self._connections:
            connection.close()
        for part in reversed(self._parts.values()):
            part.kill()
        self._warden.close()
        shutil.rmtree(self.directory)

    def kill(self, part: PartName) -> None:
        """Send SIGKILL and wait for the end."""
        self._parts[part].kill()

    def program(self, name: str, command: list[str], probe: Callable[[], bool]) -> Part:
        """Return another program that ends with the control plane; its log is `NAME.log` in the directory."""
        return Part(name, command, self.directory / f"{name}.log", probe, self._warden)

    def peer(self, *flags: str) -> Part:
        """Return kube-scheduler with further flags, for use instead of the part; its log is `peer.log`."""
        return self._scheduler("peer", flags)

    def volume_controllers(self) -> Part:
        """Return the controllers of claims and volumes, which no other part has: other tests write what they would."""
        return self._controllers("volume-controllers", commands.VOLUME_CONTROLLERS)

    def replica_controllers(self) -> Part:
        """Return the controllers of Deployments, ReplicaSets and StatefulSets, which few tests need."""
        return self._controllers("replica-controllers", commands.REPLICA_CONTROLLERS)

    def stop(self, part: PartName) -> None:
        """Send SIGTERM and wait for the end; an API server with open watches needs up to a minute."""
        self._parts[part].stop()

    def pause(self, part: PartName) -> None:
        """Send SIGSTOP: the connections stay open without responses."""
        self._parts[part].pause()

    def resume(self, part: PartName) -> None:
        """Send SIGCONT."""
        self._parts[part].resume()

    def restart(self, part: PartName, *, gracefully: bool = False) -> None:
        """Kill or gracefully stop a running part, start it and wait until it is ready. Raises PartError."""
        if gracefully and self._parts[part].running():
            self._parts[part].stop()
        self._parts[part].kill()
        self._parts[part].start()

    def running(self, part: PartName) -> bool:
        """Return whether the process of the part exists; a paused process does."""
        return self._parts[part].running()

    def pid(self, part: PartName) -> int:
        """Return the pid of the part. Raises PartError if the part does not run."""
        return self._parts[part].pid

    def log(self, part: PartName) -> str:
        """Return the log of the part."""
        return self._parts[part].log.read_text(errors="replace")

    def heal(self) -> None:
        """Restore the state after `start`: resume or restart the parts, and stop kube-scheduler."""
        self._parts["kube-scheduler"].kill()
        for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
            self._parts[name].heal()

    def kubectl(
        self, *args: str, stdin: str | None = None, kubeconfig: Path | None = None, timeout_seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; the caller checks the exit status."""
        env = {**os.environ, "KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.directory)}
        return subprocess.run(
            [str(self.binaries.kubectl), *args],
            input=stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Send one request as the administrator; PATCH is a merge patch. Raises OSError without a response."""
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else (content_type, json.dumps(body).encode())
        return _request(self._kept_connection(), method, path, content)

    def _kept_connection(self) -> http.client.HTTPConnection:
        """Return the open connection of this thread, or a new one: a handshake needs twice the CPU of a request."""
        kept: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if kept is not None and kept.sock is not None and not select.select([kept.sock], [], [], 0)[0]:
            return kept
        if kept is not None:  # the server has closed it, or the last request failed
            kept.close()
        self._of_thread.connection = made = self.connect()
        self._connections.append(made)
        return made

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection to the API server as the administrator."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self.ports.api_server, timeout=ANSWER_WITHIN_SECONDS, context=self.tls
        )

    def _controllers(self, name: str, controllers: tuple[str, ...]) -> Part:
        command = commands.further_controllers(self.binaries, self._files, controllers)
        return self.program(name, command, lambda: True)

    def _scheduler(self, name: str, flags: tuple[str, ...]) -> Part:
        command = [*commands.kube_scheduler(self.binaries, self._files, self.ports), *flags]
        return self.program(name, command, lambda: self._healthy(self.ports.scheduler, "/readyz"))

    def _write_files(self) -> tuple[commands.Files, Identity]:
        authority = Authority(self.directory)
        admin = authority.client("admin", "system:masters")
        account_key, account_public_key = write_service_account_keys(self.directory)
        tokens = self.directory / "tokens.csv"
        tokens.write_text(f'{self.token},token-admin,token-admin,"system:masters"\n')
        config = self.directory / "kube-scheduler.json"
        config.write_text(json.dumps(commands.scheduler_config(self.kubeconfig)))
        audit_policy = self.directory / "audit-policy.json"
        audit_policy.write_text(json.dumps(commands.audit_policy()))
        scheduler = authority.client(commands.SCHEDULER, "schedulers")
        for path, identity in ((self.kubeconfig, admin), (self.scheduler_kubeconfig, scheduler)):
            certificate = {
                "client-certificate-data": _base64(identity.certificate),
                "client-key-data": _base64(identity.key),
            }
            _write_kubeconfig(path, self.url, authority.certificate, certificate)
        _write_kubeconfig(self.token_kubeconfig, self.url, authority.certificate, {"token": self.token})
        files = commands.Files(
            directory=self.directory,
            authority=authority.certificate,
            serving=authority.server("kube-apiserver"),
            account_key=account_key,
            account_public_key=account_public_key,
            tokens=tokens,
            kubeconfig=self.kubeconfig,
            scheduler_config=config,
            audit_policy=audit_policy,
            audit_log=self.audit_log,
        )
        return files, admin

    def _etcd_ready(self) -> bool:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.ports.etcd_client, timeout=PROBE_ANSWER_WITHIN_SECONDS
        )
        return _says_ok(connection, "/readyz")

    def _api_ready(self) -> bool:
        return self._serves(self.ports.api_server, "/readyz", self.tls)

    def _healthy(self, port: int, path: str) -> bool:
        """Probe a part with a self-signed serving certificate."""
        return self._serves(port, path, ssl._create_unverified_context())

    def _serves(self, port: int, path: str, tls: ssl.SSLContext) -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PROBE_ANSWER_WITHIN_SECONDS, context=tls)
        return _says_ok(connection, path)

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise PartError(f"{what} did not come within {READY_WITHIN_SECONDS:.0f} s")
            time.sleep(POLL_EVERY_SECONDS)


def _says_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    with closing(connection):
        try:
            return _request(connection, "GET", path, None).status == 200
        except (OSError, http.client.HTTPException):
            return False


def _request(
    connection: http.client.HTTPConnection, method: str, path: str, content: tuple[str, bytes] | None
) -> Answer:
    """Send one request, and close the connection if that fails; `content` is (type, bytes)."""
    try:
        if content is None:
            connection.request(method, path)
        else:
            connection.request(method, path, body=content[1], headers={"Content-Type": content[0]})
        response = connection.getresponse()
        raw = response.read()
    except BaseException:
        connection.close()
        raise
    is_json = (response.getheader("Content-Type") or "").startswith("application/json")
    return Answer(response.status, json.loads(raw) if is_json else None)


def _client_tls(authority: Path, identity: Identity) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def _write_kubeconfig(path: Path, url: str, authority: Path, credentials: Mapping[str, str]) -> None:
    """Write a kubeconfig with embedded credentials, as JSON."""
    cluster = {"server": url, "certificate-authority-data": _base64(authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "loopback", "cluster": cluster}],
        "users": [{"name": "admin", "user": dict(credentials)}],
        "contexts": [{"name": "loopback", "context": {"cluster": "loopback", "user": "admin"}}],
        "current-context": "loopback",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
