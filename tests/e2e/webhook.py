"""An admission webhook on loopback: it answers what a test says, or not at all."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.controlplane.certificates import Authority
from tests.controlplane.plane import ControlPlane
from tests.objects import Json

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TIMEOUT_SECONDS = 10

Verdict = Json | None
"""The Status of a refusal; None admits the request."""
Judge = Callable[[Json], Verdict]
"""Called with the request of an AdmissionReview; it may wait."""


def refusal(code: int, message: str, retry_after_seconds: int = 0) -> Json:
    """Return the Status of a refusal."""
    details = {"details": {"retryAfterSeconds": retry_after_seconds}} if retry_after_seconds else {}
    return {"code": code, "message": message, **details}


@contextmanager
def judging(plane: ControlPlane, directory: Path, rules: list[Json], judge: Judge) -> Iterator[None]:
    """Have the webhook judge the requests that these rules select, in the test's own namespaces."""
    authority = Authority(directory)
    identity = authority.server("webhook")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request: Any = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            verdict = judge(request)
            answer = {"uid": request["uid"], "allowed": verdict is None}
            if verdict is not None:
                answer["status"] = verdict
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
            body = json.dumps(review).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the API server has given up
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the library
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        created = plane.api("POST", WEBHOOKS, _configuration(server.server_port, authority.certificate, rules))
        assert created.status == 201, created.body
        yield
    finally:
        plane.api("DELETE", f"{WEBHOOKS}/judge")
        server.shutdown()
        server.server_close()
        thread.join()


def _configuration(port: int, certificate: Path, rules: list[Json]) -> Json:
    bundle = base64.b64encode(certificate.read_bytes()).decode()
    webhook = {
        "name": "judge.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": TIMEOUT_SECONDS,
        "namespaceSelector": {"matchExpressions": [{"key": "judged", "operator": "Exists"}]},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "judge"},
        "webhooks": [webhook],
    }
