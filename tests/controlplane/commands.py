"""The command lines of the control plane's parts.

Laws:
- Loopback only; every port is an argument; nothing elects a leader.
- The API server limits nothing, so that what a benchmark measures is the scheduler and the API server's own cost.
- ServiceAccount admission is off because no controller makes the `default` account; TaintNodesByCondition is off so
  that a node made through the API stays untainted without a kubelet.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.binaries import Binaries
from tests.controlplane.certificates import Identity

CONTROLLERS = (
    "job-controller",
    "pod-garbage-collector-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "disruption-controller",
)
PEER_QPS = 5_000
PEER_BURST = 10_000


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1."""

    etcd_client: int
    etcd_peer: int
    api_server: int
    controllers: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Files:
    """What the parts read."""

    directory: Path
    authority: Path
    serving: Identity
    account_key: Path
    account_public_key: Path
    tokens: Path
    kubeconfig: Path
    scheduler_config: Path
    audit_policy: Path
    audit_log: Path


def etcd(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """One member, no fsync: its data need not survive the machine, only the process."""
    client, peer = f"http://127.0.0.1:{ports.etcd_client}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        str(binaries.etcd),
        "--name=only",
        f"--data-dir={files.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=only={peer}",
        "--unsafe-no-fsync=true",
        f"--quota-backend-bytes={8 * 1024**3}",
        "--log-level=warn",
    ]


def kube_apiserver(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """Client certificates, static tokens and RBAC, on our own serving certificate."""
    return [
        str(binaries.kube_apiserver),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd_client}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        f"--tls-cert-file={files.serving.certificate}",
        f"--tls-private-key-file={files.serving.key}",
        f"--cert-dir={files.directory / 'kube-apiserver'}",
        f"--client-ca-file={files.authority}",
        f"--token-auth-file={files.tokens}",
        f"--service-account-issuer=https://127.0.0.1:{ports.api_server}/",
        f"--service-account-key-file={files.account_public_key}",
        f"--service-account-signing-key-file={files.account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        "--enable-priority-and-fairness=false",
        "--delete-collection-workers=16",
        "--profiling=false",
        f"--audit-policy-file={files.audit_policy}",
        f"--audit-log-path={files.audit_log}",
        "--audit-log-maxsize=1000000",  # megabytes: one file, whatever is measured; else it is cut off at a hundred
    ]


def kube_controller_manager(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """The controllers that make, finish and collect pods; none that judges nodes."""
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={files.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controllers}",
        f"--cert-dir={files.directory / 'kube-controller-manager'}",
        "--leader-elect=false",
        f"--controllers={','.join(CONTROLLERS)}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--concurrent-job-syncs=20",
    ]


def kube_scheduler(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """The peer: kube-scheduler with its defaults, but a client that does not hold it back."""
    return [
        str(binaries.kube_scheduler),
        f"--config={files.scheduler_config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        f"--cert-dir={files.directory / 'kube-scheduler'}",
    ]


def scheduler_config(kubeconfig: Path) -> dict[str, object]:
    """The document that `kube_scheduler` reads: no election, client limits far above what it reaches."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": PEER_QPS, "burst": PEER_BURST},
    }


ACCOUNT = "system:serviceaccount:kube-system:ai-scheduler"
SCHEDULER = "scheduler-of-the-tests"
"""The user as whom schedulers run that are no pods of a release."""
"""Who the scheduler is to the API server where the chart installed it."""


def audit_policy() -> dict[str, object]:
    """The document that makes the API server note every answer to a Binding, and all that schedulers of ours ask."""
    binding = {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]}
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [binding, {"level": "Metadata", "users": [ACCOUNT, SCHEDULER]}, {"level": "None"}],
    }
