"""A Flower grid in this process: real messages and apps, no network."""

from __future__ import annotations

import uuid

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from desketch.integrations.flower import record


def deliver(app, message, context):
    """Call the app; what it raises becomes an error reply, as in Flower."""
    try:
        return app(message, context)
    except Exception as error:
        return Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=repr(error)), reply_to=message)


class LocalGrid(Grid):
    """Delivers messages by calling the apps; ``faults`` maps (node, round) to what happens instead."""

    def __init__(self, apps, folder, faults=None, run_config=None):
        self.apps, self.contexts, self.faults, self.folder = {}, {}, faults or {}, folder
        self.run_config, self.partitions = run_config or {}, len(apps)
        for node, app in apps.items():
            self.join(node, app)
        self.replies, self.sent = {}, []

    def join(self, node, app):
        """Connect a node; its client is what its id leaves modulo 100."""
        self.apps[node] = app
        self.contexts[node] = Context(
            run_id=1,
            node_id=node,
            node_config={
                "partition-id": node % 100,
                "num-partitions": self.partitions,
                "state-folder": str(self.folder / str(node % 100)),
            },
            state=RecordDict(),
            run_config=self.run_config,
        )

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *args, **options):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            name = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = name
            node = message.metadata.dst_node_id
            self.sent.append(record.read(message))
            assert list(message.content) == [record.KEY]
            fault = self.faults.get((node, int(message.metadata.group_id)), deliver)
            reply = fault(self.apps[node], message, self.contexts[node])
            if reply is not None:
                self.replies[name] = reply
            ids.append(name)
        return ids

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
