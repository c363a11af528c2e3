"""Model, data and loops of the app; the images are bars, tall or wide, made on the spot."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small convolutional net."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(8 * 4 * 4, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, x):
        x = self.pool(nn.functional.relu(self.conv(x))).flatten(1)
        return self.head(nn.functional.relu(self.hidden(x)))


def images(n, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=generator)
    x = 0.5 * torch.randn(n, 1, 8, 8, generator=generator)
    places = torch.randint(8, (n,), generator=generator).tolist()
    for i, place in enumerate(places):
        if y[i]:
            x[i, 0, :, place] += 1
        else:
            x[i, 0, place, :] += 1
    return TensorDataset(x, y)


def load_data(partition_id, num_partitions, batch_size):
    train = DataLoader(images(160, seed=partition_id), batch_size=batch_size, shuffle=True)
    return train, DataLoader(images(80, seed=num_partitions + partition_id), batch_size=batch_size)


def train(net, loader, epochs, lr, device):
    net.to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net, loader, device):
    net.to(device)
    net.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            out = net(x.to(device))
            loss += nn.functional.cross_entropy(out, y.to(device)).item()
            right += (out.argmax(1) == y.to(device)).sum().item()
    return loss / len(loader), right / len(loader.dataset)
