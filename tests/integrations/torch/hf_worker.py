"""One rank that trains a tiny random GPT-2 by Hugging Face's Trainer with an outer step; started by test_hf.py."""

from __future__ import annotations

import pickle
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from desketch.integrations.torch.hf import OuterCallback
from desketch.keys import Key


def model(lora):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    net = GPT2LMHeadModel(config)
    if not lora:
        return net
    torch.manual_seed(1)
    return get_peft_model(net, LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True))


def windows(rank):
    tokens = torch.randint(32, (48, 16), generator=torch.Generator().manual_seed(rank))
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(rank, folder, options, *, resume=None):
    net = model(options["lora"])
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    args = TrainingArguments(
        output_dir=str(folder / f"{options['name']}{rank}"),
        max_steps=6,
        save_steps=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    callback = OuterCallback(every=2, compression=4, key=Key(3))
    Trainer(net, args, train_dataset=windows(rank), callbacks=[callback]).train(resume_from_checkpoint=resume)
    after = {name: p.detach().clone() for name, p in net.named_parameters()}
    trainable = {name for name, p in net.named_parameters() if p.requires_grad}
    return {"before": before, "after": after, "trainable": trainable, "stats": callback.outer.stats, "args": args}


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    scenarios = pickle.loads((folder / "scenarios.pkl").read_bytes())
    torch.set_num_threads(1)
    rendezvous = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    seen = {}
    for name, options in scenarios.items():
        whole = train(rank, folder, {**options, "name": name})
        checkpoint = f"{whole.pop('args').output_dir}/checkpoint-3"
        resumed = train(rank, folder, {**options, "name": name}, resume=checkpoint)
        seen[name] = {**whole, "resumed": resumed["after"], "resumed_stats": resumed["stats"]}
    torch.save(seen, folder / f"rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
