"""Algorithms 1 and 2; start with ``rounds.py``."""

from __future__ import annotations

from desketch.core.flat import FlatModel
from desketch.fed.channel import Channel, ServerStep, SketchChannel, Wire
from desketch.fed.client import Participant, encode_update, encode_updates
from desketch.fed.engine import Engine, LoopEngine, VmapEngine
from desketch.fed.engines import make_engine
from desketch.fed.iterates import Average, make_average
from desketch.fed.local import ClientData, LocalWork, local_update
from desketch.fed.mechanism import Privacy
from desketch.fed.mlp_engine import MlpEngine
from desketch.fed.optimizers import OPTIMIZERS, ServerOptimizer, make_optimizer
from desketch.fed.replica import CatchUp, Replica, ReplicaLog
from desketch.fed.rounds import Attendance, Federation, Observer, Observers, RoundRecord, run
from desketch.fed.server import Server, aggregate
from desketch.fed.tensor_client import TensorClient, tensor_clients
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
    "Participant",
    "Privacy",
    "Replica",
    "ReplicaLog",
    "RoundRecord",
    "Server",
    "ServerOptimizer",
    "ServerStep",
    "SketchChannel",
    "TensorClient",
    "Update",
    "VmapEngine",
    "Wire",
    "aggregate",
    "encode_update",
    "encode_updates",
    "local_update",
    "make_average",
    "make_engine",
    "make_optimizer",
    "run",
    "tensor_clients",
]
