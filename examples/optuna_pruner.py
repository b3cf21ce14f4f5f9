"""Optuna: prune trials whose partial bound shows that another one's is smaller."""

import optuna
import torch

import surefoot as sf
from surefoot.data import load
from surefoot.integrations.optuna import PartialBoundPruner, report

data = load("vowel")
inputs, labels = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y)


def objective(trial):
    lr = trial.suggest_float("lr", 1e-2, 1e2, log=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 11))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with sf.StabilityMonitor(optimizer, horizon=100, distance=10.0) as monitor:
        for step in range(100):
            chosen = torch.randint(len(labels), (32,))
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                report(trial, monitor)
                if trial.should_prune():
                    raise optuna.TrialPruned
    report(trial, monitor)
    return torch.nn.functional.cross_entropy(model(inputs), labels).item()


study = optuna.create_study(pruner=PartialBoundPruner(), sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=8)
for trial in sorted(study.trials, key=lambda trial: trial.params["lr"]):
    steps = max(trial.intermediate_values)
    print(f"lr {trial.params['lr']:8.3g}: {trial.state.name.lower()} after {steps} steps")
print(f"best: lr {study.best_params['lr']:.3g}, loss {study.best_value:.3f}")
