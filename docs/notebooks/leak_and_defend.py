# %% [markdown]
# # Leak and defend
#
# A sketch has 30 times fewer numbers than the gradient. Does that hide the data? No. Here an eavesdropper who knows what is public
# (the key, the model) rebuilds a picture from one message, and differential privacy stops them.
#
# Every client holds one digit and sends one sketched gradient step. The eavesdropper listens early, in the second round, when
# gradients are large and attacks easiest; [what a sketch gives away](../leakage.md) says when they work and when not.

# %%
from pathlib import Path
from tempfile import mkdtemp

from matplotlib import pyplot as plt

from desketch.api.captured import open_capture
from desketch.api.configured import train_run
from desketch.attack.audit import attack_target
from desketch.tasks import RunConfig, load_task

ROUNDS = 2  # in a hurry: 1
FRACTION = 0.02  # in a hurry: 0.01

# %%
clients = len(load_task("digits").y_train)


def listen(privacy):
    """Train, capture the messages of the last round, and attack the first of them."""
    folder = Path(mkdtemp())
    config = RunConfig.load(
        task="digits",
        model="mlp-tanh:32",
        clients=clients,
        partition="iid",
        fraction=FRACTION,
        rounds=ROUNDS,
        local_steps=1,
        batch_size=1,
        eta_local=1.0,
        codec="f32",
        capture=(ROUNDS,),
        dp=privacy,
    )
    summary = train_run(config, out=folder)
    frame = min((folder / "capture").glob("*/client-*.frame"))
    captured = open_capture(frame)
    attempt = attack_target(captured.target, captured.prior, ("lm", "box", "prior"), classes=captured.classes)
    return summary, attempt, frame.stat().st_size


# %% [markdown]
# ## Without privacy

# %%
_, leak, size = listen(None)
print(f"the message has {size} bytes, the gradient {4 * 2410:,}")
print(f"the eavesdropper's picture: PSNR {leak.quality.psnr:.0f} dB (above 30 dB anybody recognises it)")

# %% [markdown]
# ## With differential privacy
#
# Every example's gradient is clipped, and noise from the operating system is added before the sketch, calibrated to a budget of
# epsilon = 8 for the whole run.

# %%
private_run, defended, _ = listen(
    {"mechanism": "per-step", "unit": "example", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0}
)
print(f"epsilon spent: {private_run['epsilon']:.2f} at delta = 1e-5")
print(f"the eavesdropper's picture: PSNR {defended.quality.psnr:.0f} dB")

# %%
figure, axes = plt.subplots(1, 4, figsize=(7.2, 2.1))
pictures = {
    "private picture": leak.truth,
    "rebuilt from\none sketch": leak.reconstruction,
    "private picture again": defended.truth,
    "rebuilt from one\nsketch with DP": defended.reconstruction,
}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture[0].reshape(8, 8).numpy(), cmap="gray", vmin=0, vmax=1)
    axis.set_title(title, fontsize=9)
    axis.set_axis_off()
figure.tight_layout()
plt.show()

# %% [markdown]
# ## What it cost
#
# Two rounds teach nothing, with or without privacy: this page shows what leaks. What privacy costs in a training that learns, and
# what helps, is measured in [differential privacy](../privacy.md#utility).
