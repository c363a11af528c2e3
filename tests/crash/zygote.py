"""The real command line, forked from a process that has imported torch once: a run costs what the run costs.

Reads one JSON object a line:

argv      the arguments of the command
kill      the file operation before which the process kills itself with SIGKILL; a write is cut off half way
fail      the file operation from which on writes find the disk full
signal    [name, round]: a signal that the process gets while that round is under way
user      an id to run as
log       a file that gets a line whenever a round's updates have been made
states    a folder: Flower's simulation passes messages in this process instead of starting Ray
env       more environment

Answers with one line: exit status, standard output and error, and how many file operations there were.  Reports are
written without their pictures, which take longer than the run.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path

SHARED = (
    "dp_accounting.pld.privacy_loss_distribution",
    "matplotlib.figure",
    "scipy.stats",
    "sklearn.datasets",
    "desketch.cli.app",
    "desketch.api.configured",
)
KINDS = ("open", "write", "fsync", "replace", "mkdir", "unlink")


class Faulty:
    """Stands in for ``os`` in `desketch.core.files`."""

    def __init__(self, kill, fail, count):
        self.kill, self.fail, self.count, self.done = kill, fail, count, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        return (lambda *arguments: self._do(name, real, *arguments)) if name in KINDS else real

    def _do(self, name, real, *arguments):
        self.done += 1
        os.pwrite(self.count, str(self.done).encode(), 0)
        if self.done == self.kill:
            if name == "write":
                descriptor, data = arguments
                real(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fail is not None and self.done >= self.fail and name == "write":
            descriptor, data = arguments
            real(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)


def _watch(log, when):
    """Note every round whose updates were made, and send the signal in the middle of one."""
    import desketch.fed.rounds as rounds

    real = rounds.encode_updates

    def encode_updates(*arguments, t, **more):
        made = real(*arguments, t=t, **more)
        if log is not None:
            with open(log, "a") as file:
                file.write(f"{t}\n")
        if when is not None and t == when[1]:
            os.kill(os.getpid(), signal.Signals[when[0]])
        return made

    rounds.encode_updates = encode_updates


def _flower_without_ray(states):
    """The same apps, sessions and messages (``tests/integrations/flower/local_grid.py``)."""
    from flwr.supercore.task_identity import TaskIdentity
    from local_grid import LocalGrid

    from desketch.integrations.flower import simulation
    from desketch.integrations.flower.carrier import GridCarrier
    from desketch.tasks.parties import configured_rounds

    folder = Path(states) / str(os.getpid())

    def simulate(setup, session, stores, *, observer=None):
        app = simulation._client(setup.config.model_dump_json(), str(stores.folder))
        grid = LocalGrid({100 + c: app for c in range(setup.config.clients)}, folder)
        carrier = GridCarrier(grid, session)
        rounds = configured_rounds(setup, session, carrier, nodes=setup.config.clients, observer=observer)
        rounds.run(setup.config.rounds)

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # what Flower's runtime would set
    simulation.simulate = simulate


def _child(order, out, err, count):
    os.dup2(out, 1)
    os.dup2(err, 2)
    from desketch.cli import app
    from desketch.core import files

    _watch(order.get("log"), order.get("signal"))
    if "states" in order:
        _flower_without_ray(order["states"])
    files.os = Faulty(order.get("kill"), order.get("fail"), count)
    os.environ |= order.get("env", {})
    if order.get("user"):
        os.seteuid(order["user"])
    sys.argv = ["desketch", *order["argv"]]
    app.main()


def main():
    for name in SHARED:
        import_module(name)
    import_module("desketch.report.sections")._figure = lambda *arguments: ""
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "states" in order:  # once, for all that follow
            sys.path.insert(0, str(Path(__file__).parents[1] / "integrations" / "flower"))
            import_module("local_grid")
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as count:
            child = os.fork()
            if child == 0:
                status = 0
                try:
                    _child(order, out.fileno(), err.fileno(), count.fileno())
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else 1 if end.code else 0
                except BaseException:
                    import traceback

                    traceback.print_exc()
                    status = 70
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status or 0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = {}
            for name, file in (("out", out), ("err", err), ("operations", count)):
                file.seek(0)
                said[name] = file.read().decode(errors="replace")
        print(json.dumps({"status": status, **said}), flush=True)


if __name__ == "__main__":
    main()
