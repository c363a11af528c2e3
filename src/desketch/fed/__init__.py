"""Algorithms 1 and 2; start with ``rounds.py``."""

from __future__ import annotations

from desketch.fed.channel import Channel, ServerStep, SketchChannel
from desketch.fed.client import ClientData, LocalWork, client_round, local_update
from desketch.fed.engine import Engine, LoopEngine, VmapEngine
from desketch.fed.engines import make_engine
from desketch.fed.iterates import Average, make_average
from desketch.fed.mechanism import Privacy
from desketch.fed.mlp_engine import MlpEngine
from desketch.fed.model import FlatModel
from desketch.fed.optimizers import OPTIMIZERS, ServerOptimizer, make_optimizer
from desketch.fed.replica import CatchUp, Replica, ReplicaLog
from desketch.fed.rounds import Attendance, Federation, Observer, Observers, RoundRecord, run
from desketch.fed.run_folder import RunFolder
from desketch.fed.server import Server, server_step
from desketch.fed.update import Update

__all__ = [
    "OPTIMIZERS",
    "Attendance",
    "Average",
    "CatchUp",
    "Channel",
    "ClientData",
    "Engine",
    "Federation",
    "FlatModel",
    "LocalWork",
    "LoopEngine",
    "MlpEngine",
    "Observer",
    "Observers",
    "Privacy",
    "Replica",
    "ReplicaLog",
    "RoundRecord",
    "RunFolder",
    "Server",
    "ServerOptimizer",
    "ServerStep",
    "SketchChannel",
    "Update",
    "VmapEngine",
    "client_round",
    "local_update",
    "make_average",
    "make_engine",
    "make_optimizer",
    "run",
    "server_step",
]
