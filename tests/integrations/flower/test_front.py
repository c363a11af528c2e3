"""The front of a secure deployment, by real connections: exactly the listed nodes get in, and only to the Fleet API."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from desketch.errors import RunError
from desketch.integrations.flower import deploy, front, tunnel
from desketch.integrations.flower.credentials import header_of, make_credentials
from desketch.integrations.flower.deploy import DeploymentPlan
from desketch.integrations.flower.processes import Deployment, free_port
from desketch.tasks.config import RunConfig

NODES = ["node-0", "node-3"]
PULL = "/v1/fleet/pull-messages"


class Upstream(http.server.BaseHTTPRequestHandler):
    """In the SuperLink's place: says what reached it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        keys = self.headers.get_all("flwr-public-key") or []
        answer = json.dumps({"path": self.path, "body": len(body), "keys": keys}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture
def bed(tmp_path, nginx):
    """A front before a dummy SuperLink."""
    keys = tmp_path / "keys"
    make_credentials(keys, "127.0.0.1", NODES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    upstream.socket = context.wrap_socket(upstream.socket, server_side=True)
    thread = threading.Thread(target=upstream.serve_forever, daemon=True)
    thread.start()
    port = free_port()
    configuration = front.write_front(
        tmp_path / "front",
        credentials=keys,
        keys={node: header_of(keys / f"{node}.pub") for node in NODES},
        address="127.0.0.1",
        port=port,
        behind=upstream.server_address[1],
    )
    with Deployment(tmp_path / "run", "127.0.0.1", port) as deployment:
        deployment.start_front(configuration)
        deployment.wait_for_port("front", "127.0.0.1", port)
        yield SimpleNamespace(keys=keys, port=port, folder=configuration.parent, configuration=configuration)
    upstream.shutdown()
    upstream.server_close()
    thread.join()


def ask(bed, path=PULL, *, certificate=None, key=None, method="POST", body=b"hello", headers=()):
    """One request; the status, and the answer's text."""
    context = ssl.create_default_context(cafile=str(bed.keys / "ca.pem"))
    if certificate:
        context.load_cert_chain(certificate, f"{certificate}.key")
    link = http.client.HTTPSConnection("127.0.0.1", bed.port, context=context, timeout=20)
    link.putrequest(method, path, skip_host=False)
    for node in [key] if isinstance(key, str) else key or []:
        link.putheader("flwr-public-key", header_of(bed.keys / f"{node}.pub"))
    for name, value in headers:
        link.putheader(name, value)
    link.putheader("Content-Length", str(len(body)))
    link.endheaders(body)
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, text


def refusals(bed, count):
    """That many lines of the front's log; it is written after the answer."""
    deadline = time.monotonic() + 20
    while len(lines := front.refusals(bed.folder)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return lines


def test_the_configuration_is_nginx_s(bed, nginx):
    done = subprocess.run(
        [nginx, "-t", "-p", str(bed.folder), "-c", str(bed.configuration)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "successful" in done.stderr


@pytest.mark.parametrize("call", front.FLEET_CALLS)
def test_a_listed_node_reaches_every_call_of_the_fleet_api(bed, call):
    status, text = ask(bed, f"/v1/fleet/{call}", certificate=bed.keys / "node-3.crt", key="node-3", body=b"x" * 300_000)
    assert status == 200
    assert json.loads(text) == {
        "path": f"/v1/fleet/{call}",
        "body": 300_000,
        "keys": [header_of(bed.keys / "node-3.pub")],
    }
    assert not front.refusals(bed.folder)


def test_flower_has_no_fleet_call_that_the_front_does_not_know():
    from flwr.superlink.routers.fleet.router import router

    calls = {route.path.rpartition("/")[2] for route in router.routes}
    assert calls == {*front.FLEET_CALLS, "register-node", "unregister-node"}


PATHS = [
    "/v1/control/register-node",
    "/v1/control/start-run",
    "/v1/control/list-nodes",
    "/v1/runtime/pull-messages",
    "/v1/fleet/register-node",
    "/v1/fleet/unregister-node",
    "/v1/fleet/../control/start-run",
    "/v1/fleet/pull-messages/../../control/start-run",
    "/v1/fleet/%2e%2e/control/start-run",
    "//v1/control/start-run",
    "/v1/fleet/pull-messages?x=1",
    "/v1/fleet/pull-messages;/v1/control/start-run",
    "/v1/fleet/",
    "/health",
    "/docs",
    "/openapi.json",
    "/",
]


@pytest.mark.parametrize("path", PATHS)
def test_other_paths_are_refused_even_to_a_listed_node(bed, path):
    status, text = ask(bed, path, certificate=bed.keys / "node-0.crt", key="node-0")
    assert (status, text) == (403, "not a call of the Fleet API\n")
    (line,) = refusals(bed, 1)
    assert 'certificate="CN=node-0"' in line
    assert 'refused="not a call of the Fleet API"' in line


def test_other_methods_are_refused(bed):
    assert ask(bed, method="GET", certificate=bed.keys / "node-0.crt", key="node-0")[0] == 403


def test_nobody_gets_in_without_a_certificate_or_with_a_foreign_one(bed, tmp_path):
    assert ask(bed, key="node-0") == (403, "no certificate of a listed node\n")
    make_credentials(tmp_path / "foreign", "127.0.0.1", NODES)  # the same names, another authority
    try:
        status = ask(bed, certificate=tmp_path / "foreign" / "node-0.crt", key="node-0")[0]
    except (ssl.SSLError, ConnectionError):
        status = 400
    assert status in (400, 403)
    without, foreign = refusals(bed, 2)
    assert '(NONE) key="node-0"' in without
    assert "(FAILED:" in foreign


def test_the_server_s_certificate_is_no_node_s(bed):
    shutil.copy(bed.keys / "server.key", bed.keys / "server.pem.key")
    assert ask(bed, certificate=bed.keys / "server.pem", key="node-0")[0] in (400, 403)


def test_a_certificate_goes_with_its_own_node_key_only(bed):
    refused = (403, "the node key is not that of the certificate\n")
    assert ask(bed, certificate=bed.keys / "node-3.crt", key="node-0") == refused
    assert ask(bed, certificate=bed.keys / "node-3.crt") == refused
    for line in refusals(bed, 2):
        assert 'certificate="CN=node-3"' in line
    # two keys, one of them right: what reaches Flower is the one that was judged
    status, text = ask(bed, certificate=bed.keys / "node-3.crt", key=["node-3", "node-0"])
    assert status in (400, 403) or json.loads(text)["keys"] == [header_of(bed.keys / "node-3.pub")]


def through_the_tunnel(bed, tmp_path, key, authority):
    """The exit code of a command in the SuperNode's place, which asks through a tunnel: the status less 200, or 99."""
    script = tmp_path / "node.py"
    script.write_text(
        "import http.client, ssl, sys\n"
        "at = dict(zip(sys.argv[2::2], sys.argv[3::2]))\n"
        "host, _, port = at['--superlink'].partition(':')\n"
        "context = ssl.create_default_context(cafile=at['--root-certificates'])\n"
        "link = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)\n"
        "try:\n"
        f"    link.request('POST', '{PULL}', b'x' * 200000, {{'flwr-public-key': sys.argv[1]}})\n"
        "    sys.exit(link.getresponse().status - 200)\n"
        "except (OSError, http.client.HTTPException):\n"
        "    sys.exit(99)\n"
    )
    options = ["--to", f"127.0.0.1:{bed.port}", "--authority", str(authority)]
    options += ["--certificate", str(bed.keys / "node-0.crt"), "--", sys.executable, str(script)]
    return tunnel.main([*options, header_of(bed.keys / f"{key}.pub")])


def test_the_tunnel_presents_the_certificate_and_ends_with_its_command(bed, tmp_path):
    """Once as itself, and once with another node's key."""
    assert [through_the_tunnel(bed, tmp_path, node, bed.keys / "ca.pem") for node in NODES] == [0, 203]


def test_the_tunnel_trusts_its_authority_only(bed, tmp_path, capfd):
    make_credentials(tmp_path / "foreign", "127.0.0.1", NODES)
    assert through_the_tunnel(bed, tmp_path, "node-0", tmp_path / "foreign" / "ca.pem") == 99
    assert "CERTIFICATE_VERIFY_FAILED" in capfd.readouterr().err


def test_without_nginx_nothing_is_called_secure(tmp_path, monkeypatch):
    monkeypatch.setattr(front.shutil, "which", lambda *_, **__: None)
    plan = DeploymentPlan(folder=tmp_path / "run", config=RunConfig(clients=2), secure=True, port=free_port())
    with pytest.raises(RunError, match=r"needs nginx .*apt-get install nginx-light"):
        deploy.try_out(plan)
    assert not plan.folder.exists()


def test_the_script_of_the_front_refuses_without_nginx(tmp_path):
    plan = DeploymentPlan(folder=tmp_path / "run", config=RunConfig(clients=2), secure=True, port=free_port())
    plan.write()
    text = (plan.folder / "2-front.sh").read_text().replace("/usr/sbin:/usr/local/sbin", "/nowhere")
    (plan.folder / "2-front.sh").write_text(text)
    (tmp_path / "bin").mkdir()
    for name in ("dirname", "sh"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    done = subprocess.run(
        [str(plan.folder / "2-front.sh")], env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "nginx is missing" in done.stderr


def test_the_script_of_the_front_starts_it(tmp_path, nginx):
    plan = DeploymentPlan(
        folder=tmp_path / "run", config=RunConfig(clients=2), secure=True, port=free_port(), behind=free_port()
    )
    plan.write()
    with Deployment(plan.folder, plan.host, plan.port) as deployment:
        deployment.start("front", [str(plan.folder / "2-front.sh")])
        deployment.wait_for_port("front", plan.host, plan.port)
        bed = SimpleNamespace(keys=plan.keys, port=plan.port, folder=plan.front)
        assert ask(bed, key="node-0") == (403, "no certificate of a listed node\n")
        assert len(refusals(bed, 1)) == 1


def test_a_folder_that_nginx_would_misread_is_refused(tmp_path):
    with pytest.raises(RunError, match="choose another folder"):
        front.write_front(tmp_path / "a;b", credentials=tmp_path, keys={}, address="::1", port=1, behind=2)


def test_a_secure_superlink_listens_on_loopback_whatever_the_host(tmp_path):
    plan = DeploymentPlan(folder=tmp_path / "run", config=RunConfig(clients=2), secure=True, host="192.0.2.7")
    plan.write()
    link = (plan.folder / "1-superlink.sh").read_text()
    assert "--host 127.0.0.1 --port 9000" in link
    assert "192.0.2.7" not in link
    assert "listen 192.0.2.7:8000 ssl;" in (plan.front / "nginx.conf").read_text()
    for name in ("server", "keys", "front"):
        assert os.stat(plan.folder / name).st_mode & 0o077 == 0
