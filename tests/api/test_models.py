"""Models as people have them: Hugging Face with and without LoRA, residual nets, variable lengths."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

import desketch as ds

WIRE = ds.Wire(compression=5, codec="int8")
VOCABULARY, LENGTH = 32, 8


class Sentences(Dataset):
    """Random token ids of varying lengths; the label says whether token 1 occurs."""

    def __init__(self, seed, n=24):
        g = torch.Generator().manual_seed(seed)
        self.rows = [torch.randint(2, VOCABULARY, (int(torch.randint(4, LENGTH, (1,), generator=g)),), generator=g)
                     for _ in range(n)]  # fmt: skip
        self.labels = torch.randint(2, (n,), generator=g)
        for row, label in zip(self.rows, self.labels, strict=True):
            row[0] = 1 if label else 2

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"ids": self.rows[i], "label": self.labels[i]}


def padded(examples):
    ids = nn.utils.rnn.pad_sequence([e["ids"] for e in examples], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids > 0).long(),
        "labels": torch.stack([e["label"] for e in examples]),
    }


def test_bert_with_variable_lengths():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=LENGTH, num_labels=2,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    held_out = padded([Sentences(9)[i] for i in range(24)])
    run = ds.federate(
        model,
        [ds.Client(DataLoader(Sentences(c), batch_size=8, shuffle=True, collate_fn=padded)) for c in range(3)],
        loss=lambda model, batch: model(**batch).loss,
        rounds=12,
        local_steps=6,
        optimizer=lambda params: torch.optim.AdamW(params, lr=5e-3),
        evaluate=lambda model: {"loss": model(**held_out).loss},
        wire=WIRE,
    )
    assert run.history[-1]["loss"] < 0.6
    assert run.history[0]["participants"] == 3


def test_gpt2_with_lora_sends_only_the_adapters():
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    torch.manual_seed(0)
    base = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    )
    frozen = base.transformer.wte.weight.detach().clone()
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM",
                                                      fan_in_fan_out=True))  # fmt: skip
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    pattern = torch.arange(16).remainder(5).expand(12, 16)
    run = ds.federate(
        model,
        [ds.Client([{"input_ids": pattern, "labels": pattern}], weight=12) for _ in range(2)],
        loss=lambda model, batch: model(**batch).loss,
        rounds=10,
        local_steps=5,
        optimizer=lambda params: torch.optim.AdamW(params, lr=2e-2),
        evaluate=lambda model: {"loss": model(input_ids=pattern, labels=pattern).loss},
        wire=WIRE,
    )
    assert run.history[-1]["loss"] < run.history[0]["loss"]
    assert torch.equal(base.transformer.wte.weight, frozen)
    assert run.history[0]["bytes_up"] / 2 < trainable / 5 * 1.3 + 60


class Block(nn.Module):
    """A residual block with group normalisation."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(2, channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def test_a_residual_net_with_group_norm():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    g = torch.Generator().manual_seed(1)
    y = torch.randint(2, (96,), generator=g)
    stripes = torch.zeros(2, 1, 6, 6)
    stripes[0, :, ::2] = stripes[1, :, :, ::2] = 2.0
    x = stripes[y] + 0.3 * torch.randn(96, 1, 6, 6, generator=g)
    run = ds.federate(
        model,
        [ds.Client(x[c::3], y[c::3]) for c in range(3)],
        loss=cross_entropy,
        rounds=12,
        local_steps=8,
        batch_size=16,
        evaluate=lambda model: {"accuracy": (model(x).argmax(1) == y).float().mean()},
        wire=WIRE,
    )
    assert run.history[-1]["accuracy"] > 0.8
