"""A problem of your own, from arrays and from a CSV file.

A mode has a curvature h, a gradient-noise variance per example c, an initial second moment s and a multiplicity count.
Here a few stiff directions stand above a bulk whose noise is larger than its curvature.
"""

from pathlib import Path

import numpy as np

from nqm import SGD, HeavyBall, Quadratic, Spectrum, sweep

stiff = np.array([30.0, 20.0, 12.0, 8.0, 5.0])
bulk = np.geomspace(1.0, 1e-3, 200)
measured = Spectrum(
    h=np.concatenate([stiff, bulk]),
    c=np.concatenate([stiff, 3 * bulk]),
    s=np.concatenate([0.1 * np.ones(5), np.ones(200)]),
    count=np.concatenate([np.ones(5), 10 * np.ones(200)]),
)
measured.save("measured.json")  # also .npz; `nqm sweep SGD --target 1 --spectrum measured.json`

# A CSV needs a column h; c is h, s and count are 1 where the header does not name them.
rows = zip(measured.h, measured.c, measured.s, measured.count, strict=True)
Path("measured.csv").write_text("h,c,s,count\n" + "".join(f"{h},{c},{s},{n}\n" for h, c, s, n in rows))
read = Spectrum.load("measured.csv")
print(f"{read.dim:,.0f} modes in {len(read)} groups, tr H = {read.trace:.4g}, initial loss {read.initial_loss:.4g}")

problem = Quadratic(read)
target = read.initial_loss / 100
for found in sweep(problem, [SGD(), HeavyBall()], [4**k for k in range(7)], target):
    print(f"{found.label}: steps {found.steps.astype(int).tolist()}")
    print(f"  critical batch size {found.critical_batch_size():,.0f} (twice the steps of perfect scaling)")
