"""The front of a secure deployment: an nginx that lets in exactly the listed nodes, and them to the Fleet API only.

Flower 1.41 serves three APIs on one port.  Only the Fleet API asks who is calling; whoever reaches the Control API may
register nodes and submit code that every node runs.  So a secure SuperLink listens on loopback, and this is what
the network sees.  A request passes if all three hold, and is refused and named in the log otherwise:

- its connection has the certificate of a listed node;
- the node key in its header is the one that was made for that certificate (Flower checks the signature by it);
- it is one of the calls of the Fleet API that an enrolled SuperNode makes.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path

from desketch.errors import RunError

__all__ = ["FLEET_CALLS", "nginx", "refusals", "write_front"]

FLEET_CALLS = (  # all of the Fleet API but registering, which the operator does on loopback
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)

_CONFIGURATION = """\
# written by desketch deploy: who may speak to the SuperLink, and what about
{user}worker_processes 1;
daemon off;
pid "{folder}/nginx.pid";
error_log "{folder}/error.log" warn;

events {{ worker_connections 4096; }}

http {{
  server_tokens off;
  client_body_temp_path "{folder}/body";
  proxy_temp_path "{folder}/proxy";
  fastcgi_temp_path "{folder}/fastcgi";
  uwsgi_temp_path "{folder}/uwsgi";
  scgi_temp_path "{folder}/scgi";
  map_hash_bucket_size 1024;

  map "$ssl_client_verify $ssl_client_s_dn" $party {{
    default "";
{parties}
  }}
  map $http_flwr_public_key $key_of {{
    default "nobody";
{keys}
  }}
  map "$request_method $request_uri" $call {{
    default "other";
{calls}
  }}
  map "$party $key_of $call" $refusal {{
    default "the node key is not that of the certificate";
    "~^ " "no certificate of a listed node";
    "~ other$" "not a call of the Fleet API";
    "~^(?<who>[^ ]+) (?P=who) fleet$" "";
  }}
  log_format verdict '$time_iso8601 $remote_addr certificate="$ssl_client_s_dn" ($ssl_client_verify) key="$key_of" '
                     '"$request" $status refused="$refusal"';
  access_log "{folder}/access.log" verdict;

  server {{
    listen {address}:{port} ssl;
    ssl_certificate "{credentials}/server.pem";
    ssl_certificate_key "{credentials}/server.key";
    ssl_client_certificate "{credentials}/ca.pem";
    ssl_verify_client optional;  # whoever has none is refused below, by name
    ssl_verify_depth 1;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_tickets off;
    client_max_body_size 64m;
    keepalive_timeout 75s;

    location / {{
      if ($refusal) {{ return 403 "$refusal\\n"; }}
      proxy_pass https://127.0.0.1:{behind};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host 127.0.0.1;
      proxy_set_header flwr-public-key $http_flwr_public_key;  # the one that was judged, should there be two
      proxy_set_header flwr-signature $http_flwr_signature;
      proxy_ssl_trusted_certificate "{credentials}/ca.pem";
      proxy_ssl_verify on;
      proxy_ssl_name localhost;  # nginx compares names, not addresses
    }}
  }}
}}
"""


def nginx() -> str:
    """The path of nginx; a deployment that cannot have a front is refused."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("nginx", path=places)
    if found is None:
        raise RunError(
            "a secure deployment needs nginx on the server's machine and it is not installed: Flower 1.41 lets whoever "
            "reaches its port register nodes and run code, so a front must stand before it; install it with "
            "`apt-get install nginx-light`, or deploy without --secure on a network you trust"
        )
    return found


def write_front(
    folder: Path, *, credentials: Path, keys: Mapping[str, str], address: str, port: int, behind: int
) -> Path:
    """Write the configuration for the listed nodes (name -> key header); nginx reads it with ``-c``."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for text in (str(folder), str(credentials)):
        if set(text) & set('"$;{}\n\\'):
            raise RunError(
                f"{text!r} has a character of '\"$;{{}}\\ in it, which nginx would read; choose another folder"
            )
    path = folder / "nginx.conf"
    path.write_text(
        _CONFIGURATION.format(
            folder=folder,
            user=f"user {pwd.getpwuid(0).pw_name};\n" if os.getuid() == 0 else "",  # the folder is its owner's alone
            credentials=credentials,
            address=f"[{address}]" if ":" in address else address,
            port=port,
            behind=behind,
            parties="\n".join(f'    "SUCCESS CN={name}" "{name}";' for name in keys),
            keys="\n".join(f'    "{key}" "{name}";' for name, key in keys.items()),
            calls="\n".join(f'    "POST /v1/fleet/{call}" "fleet";' for call in FLEET_CALLS),
        ),
        encoding="utf-8",
    )
    return path


def refusals(folder: Path) -> list[str]:
    """The lines of the front's log that name somebody it did not let in."""
    log = folder / "access.log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if not line.endswith('refused=""')]
