from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from desketch.errors import InputError
from desketch.privacy.per_example import PerExample


class Twice(nn.Module):
    """One layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 3)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.b(torch.relu(self.a(x)))))


class Words(nn.Module):
    """Embedding, LayerNorm, position-wise Linear, mean."""

    def __init__(self, padding: int | None = None) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(7, 6, padding_idx=padding), nn.LayerNorm(6)
        self.wide, self.out = nn.Linear(6, 40), nn.Linear(40, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.wide(self.norm(self.embed(x)))).mean(1))


def _partly_frozen(mixed: bool) -> nn.Module:
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].weight.requires_grad_(False)
    model[0].bias.requires_grad_(mixed)
    return model


def _images(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


MODELS: dict[str, tuple[Callable[[], nn.Module], str, bool]] = {  # builder, kind of input, whether book-keeping does it
    "mlp": (lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)), "flat", True),
    "sequence-few": (
        lambda: nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)),
        "sequence",
        True,
    ),
    "sequence-wide": (
        lambda: nn.Sequential(nn.Linear(5, 200), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)),
        "sequence",
        True,
    ),
    "conv": (_images(nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(3, 6), nn.ReLU(), nn.MaxPool2d(2)), "image", True),
    "conv-strided": (_images(nn.Conv2d(4, 6, 3, stride=2, dilation=2), nn.Sigmoid()), "image", True),
    "conv-grouped": (
        _images(nn.Conv2d(4, 8, 3, groups=2, bias=False), nn.Tanh(), nn.Conv2d(8, 80, 3, stride=3)),
        "image",
        True,
    ),
    "conv-deep": (_images(nn.Conv2d(4, 64, 5, stride=4, groups=2), nn.Tanh()), "image", True),
    "conv-reflect": (_images(nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect")), "image", False),
    "norm-plain": (_images(nn.GroupNorm(2, 4, affine=False), nn.Conv2d(4, 2, 1)), "image", True),
    "words": (Words, "words", True),
    "words-padded": (lambda: Words(padding=0), "words", True),
    "inplace": (lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(inplace=True), nn.Linear(8, 3)), "flat", False),
    "twice": (Twice, "flat", False),
    "tied": (Tied, "flat", False),
    "frozen": (lambda: _partly_frozen(False), "flat", True),
    "half-frozen": (lambda: _partly_frozen(True), "flat", False),
    "prelu": (lambda: nn.Sequential(nn.Linear(12, 8), nn.PReLU(), nn.Linear(8, 3)), "flat", False),
}
INPUTS: dict[str, Callable[[int], Tensor]] = {
    "flat": lambda B: torch.randn(B, 12),
    "sequence": lambda B: torch.randn(B, 4, 5),
    "image": lambda B: torch.randn(B, 4, 9, 9),
    "words": lambda B: torch.randint(0, 7, (B, 10)),
}


def setting(name: str, B: int = 70) -> tuple[nn.Module, Tensor, Tensor, Tensor, Tensor]:
    """A model, flat w, data, and the oracle's per-example gradients by vmap in float64."""
    torch.manual_seed(len(name))
    build, kind, _ = MODELS[name]
    model, x, y = build(), INPUTS[kind](B), torch.randint(0, 3, (B,))
    model(x[:2])
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    w = torch.cat([p.detach().flatten() for p in trainable.values()])
    frozen = {n: p.detach().double() for n, p in model.named_parameters() if not p.requires_grad}

    def loss(parameters: dict[str, Tensor], one_x: Tensor, one_y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, (parameters, frozen), (one_x[None],)), one_y[None])

    exact = vmap(grad(loss), in_dims=(None, 0, 0))(
        {n: p.detach().double() for n, p in trainable.items()}, _double(x), y
    )
    return model, w, x, y, torch.cat([g.flatten(1) for g in exact.values()], dim=1)


def _double(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_vmap(name: str) -> None:
    model, w, x, y, exact = setting(name)
    per_example = PerExample(model)
    got = per_example.gradients(w, x, y)
    assert per_example.book_keeping is MODELS[name][2]
    assert torch.allclose(got.double(), exact, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip", [1e-3, "median", 1e6])
def test_clipped_sum_equals_the_definition(name: str, clip: float | str) -> None:
    model, w, x, y, exact = setting(name)
    norms = exact.norm(dim=1)
    C = float(norms.median()) if clip == "median" else float(clip)
    want = ((C / norms).clamp(max=1)[:, None] * exact).sum(0)
    per_example = PerExample(model)
    got = per_example.clipped_sum(w, x, y, clip=C)
    assert per_example.book_keeping is MODELS[name][2]
    assert float((got.double() - want).norm()) <= 3e-4 * float(want.norm())


@pytest.mark.parametrize("name", MODELS)
def test_one_example_never_exceeds_the_clip(name: str) -> None:
    model, w, x, y, exact = setting(name, B=8)
    clip = float(exact.norm(dim=1).min()) / 3
    per_example = PerExample(model)
    for i in range(8):
        assert float(per_example.clipped_sum(w, x[i : i + 1], y[i : i + 1], clip=clip).double().norm()) <= clip


def test_the_model_is_left_as_it_was() -> None:
    model, w, x, y, _ = setting("conv")
    before = [p.clone() for p in model.parameters()]
    PerExample(model).clipped_sum(w + 1, x, y, clip=1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_empty_batch() -> None:
    model, w, x, y, _ = setting("mlp")
    assert torch.equal(PerExample(model).clipped_sum(w, x[:0], y[:0], clip=1.0), torch.zeros_like(w))
    assert PerExample(model).gradients(w, x[:0], y[:0]).shape == (0, w.numel())


@pytest.mark.parametrize("name", ["mlp", "twice"])
def test_non_finite_gradients_are_refused(name: str) -> None:
    model, w, x, y, _ = setting(name)
    x[3, 0] = float("inf")
    with pytest.raises(InputError, match=r"1 of .* NaN or infinity"):
        PerExample(model).clipped_sum(w, x, y, clip=1.0)


def test_batch_norm_is_refused() -> None:
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    w = torch.cat([p.detach().flatten() for p in model.parameters()])
    with pytest.raises(InputError, match="mixes examples"):
        PerExample(model).clipped_sum(w, torch.randn(4, 12), torch.zeros(4, dtype=torch.long), clip=1.0)


def test_bad_clip() -> None:
    model, w, x, y, _ = setting("mlp")
    with pytest.raises(InputError, match="clip"):
        PerExample(model).clipped_sum(w, x, y, clip=0.0)
