"""A study: methods × learning rates × seeds, the measured window of good rates beside the one of the theory."""

import surefoot as sf

study = sf.Study(
    problem="logistic-regression",
    data="dna",  # comes with the package
    methods=["sgd", "sps", "ngn"],
    lrs={"from": 1e-2, "to": 1e2, "count": 9},
    seeds=2,
    epochs=5,
    batch_size=16,
    distance=50.0,
)
result = study.run("dna.db")  # run it again: nothing is computed twice
for row in result.sensitivity():
    print(
        f"{row.algorithm}: best at {row.best_rate:.3g}, holds from {row.low:.3g} to {row.high:.3g}, "
        f"the bound says {row.bound_low:.3g} to {row.bound_high:.3g}"
    )
result.plot().figure.savefig("dna.png")
result.report("dna.html")  # one page for the browser; `surefoot report dna.db` makes the same
print(result.dataset)  # every trace, as xarray
