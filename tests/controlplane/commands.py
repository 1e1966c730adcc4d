"""The command lines of the control plane's programs.

Invariants:
- All programs listen on loopback, on ports from arguments, without leader election.
- The API server has no request limits, so that a benchmark measures the scheduler and the API server itself.
- ServiceAccount admission is off because no controller creates the service account `default`. TaintNodesByCondition is
  off so that nodes without a kubelet have no taint.
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
VOLUME_CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
)
REPLICA_CONTROLLERS = ("deployment-controller", "replicaset-controller", "statefulset-controller")
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
    """The files that the programs read."""

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
    """One member without fsync: the data must survive the process, not the machine."""
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
    """An API server with client certificates, static tokens and RBAC."""
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
        "--audit-log-maxsize=1000000",  # megabytes, so that the log is never rotated; the default is 100
    ]


def kube_controller_manager(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """The controllers that create, finish and collect pods, without those that manage nodes."""
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


def further_controllers(binaries: Binaries, files: Files, controllers: tuple[str, ...]) -> list[str]:
    """Some other controllers, without a port of their own."""
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={files.kubeconfig}",
        "--secure-port=0",
        "--leader-elect=false",
        f"--controllers={','.join(controllers)}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
    ]


def kube_scheduler(binaries: Binaries, files: Files, ports: Ports) -> list[str]:
    """kube-scheduler with its defaults, except for the limits of its client."""
    return [
        str(binaries.kube_scheduler),
        f"--config={files.scheduler_config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        f"--cert-dir={files.directory / 'kube-scheduler'}",
    ]


def scheduler_config(kubeconfig: Path) -> dict[str, object]:
    """Return the configuration of kube-scheduler: no leader election, client limits that it never reaches."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": PEER_QPS, "burst": PEER_BURST},
    }


ACCOUNT = "system:serviceaccount:kube-system:ai-scheduler"
"""User of a scheduler that the chart installed."""
OPERATOR = "system:serviceaccount:kube-system:ai-scheduler-operator"
"""User of the operator of BatchProcesses."""
SCHEDULER = "scheduler-of-the-tests"
"""User of a scheduler that is not a pod of a release."""


def audit_policy() -> dict[str, object]:
    """Return an audit policy that logs every Binding and every request of a scheduler of the tests."""
    binding = {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]}
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [binding, {"level": "Metadata", "users": [ACCOUNT, OPERATOR, SCHEDULER]}, {"level": "None"}],
    }
