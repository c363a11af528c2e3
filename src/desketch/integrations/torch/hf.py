"""OuterCallback: the outer step inside Hugging Face's Trainer.

    trainer = Trainer(model, args, train_dataset=..., callbacks=[OuterCallback(every=20, compression=10, key=Key(7))])

One process a site.  Trainer must see a world of one, so that it does not average every gradient itself: start the
processes without torchrun, and call ``init_process_group`` with rank and world size before building it.  The state of
the outer step is saved in Trainer's checkpoints and loaded when it resumes; each rank needs an ``output_dir`` of its
own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import WEIGHTS_NAME

from desketch.errors import RunError
from desketch.integrations.torch.outer import SketchedOuter

__all__ = ["STATE_FILE", "OuterCallback"]

STATE_FILE = "outer.pt"


class OuterCallback(TrainerCallback):
    """``options`` are those of `SketchedOuter`; ``outer`` is it, once training has begun."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.outer: SketchedOuter | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Build the outer step around Trainer's model and optimiser; resume it where Trainer resumes."""
        if args.world_size > 1 and self.options.get("site") is None:
            raise RunError(
                f"Trainer sees {args.world_size} processes and averages every gradient among them, which leaves "
                "nothing for an outer step; start the processes without torchrun, or pass site= and group="
            )
        self.outer = SketchedOuter(kwargs["model"], kwargs["optimizer"], **self.options)
        if state.global_step:
            file = _checkpoint(args, state) / STATE_FILE
            if not file.exists():
                raise RunError(
                    f"Trainer resumes at step {state.global_step} but {file} is missing; start over, or copy it"
                )
            self.outer.load_state_dict(torch.load(file, weights_only=True))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """After every step of the optimiser, accumulation included."""
        assert self.outer is not None
        self.outer.step()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Beside Trainer's own files, and the weights where they are missing.

        Transformers writes them on rank 0 of an initialised process group only, but every rank has its own here.
        """
        assert self.outer is not None
        folder = _checkpoint(args, state)
        torch.save(self.outer.state_dict(), folder / STATE_FILE)
        if not any(folder.glob("*.safetensors")):
            torch.save(kwargs["model"].state_dict(), folder / WEIGHTS_NAME)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The replicas end equal."""
        assert self.outer is not None
        self.outer.finish()


def _checkpoint(args: TrainingArguments, state: TrainerState) -> Path:
    assert args.output_dir is not None
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
