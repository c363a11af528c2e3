"""Models by name, initialised from a seed: every party that knows the seed starts from the same w.

======================  =============================================================================================
``softmax``             softmax regression
``mlp:H`` ``mlp:H-G``   ReLU network with the hidden widths given;  ``mlp-tanh:H`` the same with tanh
``cnn``                 two 3x3 convolutions with GroupNorm and pooling, one hidden layer (d = 156,490 on 28x28)
``lenet``               the sigmoid network of DLG (Zhu, Liu, Han, NeurIPS 2019), weights uniform in [-1/2, 1/2]
``gpt:LxW``             causal transformer of L layers of width W on the windows of a text
``module:function``     your own: ``function(task)`` returns a ``torch.nn.Module`` that gives ``task.outputs`` scores
======================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from math import prod

import torch
from torch import nn

from desketch.errors import ConfigError
from desketch.tasks.data import Task
from desketch.tasks.goals import Language
from desketch.tasks.gpt import Gpt

__all__ = ["MODELS", "build_model"]


def build_model(spec: str, task: Task, *, seed: int = 0) -> nn.Module:
    """Build and initialise a model; torch's global generator is left as it was."""
    kind, _, argument = spec.partition(":")
    make = MODELS.get(kind)
    if make is None and not argument:
        raise ConfigError(f"unknown model {spec!r}; choose {', '.join(MODELS)} or your own module:function")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _fits(kind, task)
        model = _users_own(kind, argument, task) if make is None else make(argument, task)
    return _checked(spec, model)


def _fits(kind: str, task: Task) -> None:
    """Models of numbers on numbers, models of symbols on text."""
    text = isinstance(task.goal, Language)
    if kind in MODELS and (kind == "gpt") != text:
        advice = (
            "choose gpt:LAYERSxWIDTH, such as gpt:2x64" if text else f"choose another model, or text:FILE, not {kind}"
        )
        raise ConfigError(f"model {kind} does not fit the {task.goal.name} task {task.name}; {advice}")


def _softmax(argument: str, task: Task) -> nn.Module:
    _no_argument("softmax", argument)
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(task.input_shape), task.outputs))


def _mlp(activation: type[nn.Module]) -> Callable[[str, Task], nn.Module]:
    def make(argument: str, task: Task) -> nn.Module:
        hidden = argument.split("-")
        if not all(width.isdecimal() and int(width) > 0 for width in hidden):
            raise ConfigError(f"hidden widths look like mlp:512 or mlp:256-128, got {argument!r}")
        widths = [prod(task.input_shape), *map(int, hidden)]
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), activation())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], task.outputs))

    return make


def _cnn(argument: str, task: Task) -> nn.Module:
    _no_argument("cnn", argument)
    channels, height, width = _image(task, "cnn")
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 96),
        nn.ReLU(),
        nn.Linear(96, task.outputs),
    )


def _lenet(argument: str, task: Task) -> nn.Module:
    _no_argument("lenet", argument)
    channels, height, width = _image(task, "lenet")
    positions = -(-height // 4) * -(-width // 4)
    model = nn.Sequential(
        nn.Conv2d(channels, 12, 5, stride=2, padding=2),
        nn.Sigmoid(),
        nn.Conv2d(12, 12, 5, stride=2, padding=2),
        nn.Sigmoid(),
        nn.Conv2d(12, 12, 5, stride=1, padding=2),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(12 * positions, task.outputs),
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def _gpt(argument: str, task: Task) -> nn.Module:
    layers, _, width = argument.partition("x")
    if not (layers.isdecimal() and width.isdecimal() and int(layers) > 0 and int(width) > 0):
        raise ConfigError(f"a transformer looks like gpt:2x64 (layers x width), got gpt:{argument}")
    return Gpt(symbols=task.outputs, context=task.input_shape[0], layers=int(layers), width=int(width))


MODELS: dict[str, Callable[[str, Task], nn.Module]] = {
    "softmax": _softmax,
    "mlp": _mlp(nn.ReLU),
    "mlp-tanh": _mlp(nn.Tanh),
    "cnn": _cnn,
    "lenet": _lenet,
    "gpt": _gpt,
}


def _users_own(module: str, function: str, task: Task) -> nn.Module:
    try:
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot import model {module}:{function}: {error}; is its folder on PYTHONPATH?") from None
    try:
        model = make(task)
    except Exception as error:  # it is not our code: DESKETCH_DEBUG=1 shows where
        raise ConfigError(
            f"{module}:{function}(task) raised {type(error).__name__}: {error}; expected a function of the task that "
            "returns a torch.nn.Module"
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{module}:{function} returned {type(model).__name__}, expected a torch.nn.Module")
    return model


def _checked(spec: str, model: nn.Module) -> nn.Module:
    """Refuse statistics that clients would have to average outside of w, and models with nothing to train."""
    for name, module in model.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise ConfigError(
                f"model {spec!r}: {name or 'the model'} ({type(module).__name__}) keeps running statistics, which are "
                "not part of the update; use nn.GroupNorm, or track_running_stats=False"
            )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(f"model {spec!r} has no trainable parameter")
    return model


def _no_argument(kind: str, argument: str) -> None:
    if argument:
        raise ConfigError(f"model {kind} takes no argument, got {kind}:{argument}")


def _image(task: Task, kind: str) -> tuple[int, int, int]:
    if len(task.input_shape) != 3 or min(task.input_shape[1:]) < 4:
        raise ConfigError(f"model {kind} needs images of at least 4x4, got inputs of shape {task.input_shape}")
    channels, height, width = task.input_shape
    return channels, height, width
