"""A stability study of your own network: any torch model, data and loss, beside an optimizer of torch."""

import torch

import surefoot as sf
from surefoot.data import digits
from surefoot.problems import NetworkProblem


class Network(torch.nn.Sequential):
    """A class or function of a module runs on all cores; one of a script, as here, in this process."""

    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


problem = NetworkProblem(Network, digits("train"), validation=digits("test"), name="digits")
study = sf.Study(problem, methods=["sgd", "sps", "ngn"], lrs=[0.1, 1.0, 10.0], seeds=1, epochs=2, batch_size=64)
result = study.run("digits.db", processes=1)
table = result.dataset[["train_loss", "valid_loss"]].isel(seed=0, epoch=-1, drop=True).to_dataframe()
print(table.unstack("lr").round(3))
