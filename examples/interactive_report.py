"""One self-contained page of a study, to open in any browser: `surefoot report STUDY.db` does the same."""

from pathlib import Path

import surefoot as sf

study = sf.Study(
    "linear-regression",
    methods=["sgd", "sps", "spp"],
    lrs={"from": 1e-3, "to": 1e2, "count": 11},
    seeds=2,
    epochs=10,
    batch_size=5,
    distance=1.0,
)
page = study.run("linear.db").report("linear.html", title="Linear regression")
print(f"open {page} ({Path(page).stat().st_size / 1e3:.0f} kB)")

again = sf.Result.load("linear.db")  # later, without the study
print(again.sensitivity().to_frame()[["best_rate", "low", "high"]])
