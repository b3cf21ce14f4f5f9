"""Change one line of a torch training: Surefoot takes the place of AdamW, and needs no learning rate."""

import torch
from torch import nn

import surefoot.optim as sfo
from surefoot.data import digits

train, test = digits("train"), digits("test")


def batch_of(images, chosen=slice(None)):
    pixels = torch.tensor(images.images[chosen], dtype=torch.float32).reshape(-1, 1, 8, 8) / 255
    return pixels, torch.tensor(images.labels[chosen])


for make in (lambda p: torch.optim.AdamW(p, lr=1e-3), lambda p: sfo.Surefoot(p)):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 16, 10)
    )
    optimizer = make(model.parameters())
    for _ in range(3):
        for chosen in torch.randperm(len(train.labels)).split(64):
            pixels, labels = batch_of(train, chosen)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
    pixels, labels = batch_of(test)
    accuracy = (model(pixels).argmax(1) == labels).float().mean().item()
    print(f"{type(optimizer).__name__:8}: {accuracy:.1%} of the test images are recognised after 3 epochs")
