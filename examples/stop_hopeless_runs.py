"""A sweep with rules that end hopeless runs: what they cost, and that they leave the good ones alone."""

import numpy as np

import surefoot as sf
from surefoot.monitor import DeltaExplosion, NonFinite, PartialBound

settings = {
    "problem": "linear-regression",
    "methods": "sgd",
    "lrs": np.geomspace(1e-3, 1e2, 16),
    "seeds": 3,
    "epochs": 10,
    "batch_size": 5,
    "distance": 1.0,
}
complete = sf.Study(**settings).run()
best = float(complete.bound().total.min())  # in practice, that of the first run that is finished

stopped = sf.Study(**settings, stop=[NonFinite(), DeltaExplosion(), PartialBound(best)]).run()
for lr in stopped.dataset.lr.values:
    ends = stopped.dataset.status.sel(lr=lr).values.ravel().tolist()
    loss = float(complete.dataset.train_loss.sel(lr=lr).isel(epoch=-1).mean())
    print(f"lr {lr:8.3g}: final loss {loss:9.3g}, {ends.count('stopped')} of {len(ends)} runs ended early")
