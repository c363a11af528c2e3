"""The ready app: a ClientApp that carries bytes to a resident worker, and the ServerApp of a configured run.

``flwr run`` finds both through a project that `desketch deploy` writes.  The run's settings are those of
`desketch.tasks.RunConfig` in ``[tool.flwr.app.config]``; nested ones (``dp.clip``) keep Flower's dots.
"""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from desketch.integrations.flower import record
from desketch.integrations.flower.identity import client_id, state_folder
from desketch.integrations.flower.resident import ask

__all__ = ["client_app", "server_app"]

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()  # type: ignore[untyped-decorator]  # flwr is not typed here
def _train(message: Message, context: Context) -> Message:
    folder = state_folder(context)
    config = dict(context.run_config)
    reply = ask(folder, record.read(message), client=client_id(context), config=config, guardian=os.getppid())
    return Message(record.content(reply), reply_to=message)


@server_app.main()  # type: ignore[untyped-decorator]  # flwr is not typed here
def _main(grid: Grid, context: Context) -> None:
    from desketch.integrations.flower.party import serve

    serve(grid, dict(context.run_config), Path(str(context.run_config.get("out", "run"))))
