"""How large a batch pays, for SGD and for heavy ball, each tuned at every batch size.

Run it with ``python examples/01_batch_size.py``; it prints a table and writes batch_size.png to the current folder.
"""

from nqm import SGD, HeavyBall, Quadratic, Spectrum, sweep
from nqm.show import plot_sweeps

problem = Quadratic(Spectrum.power_law(10_000))  # 10,000 modes, curvature 1/i, gradient noise C = H
batch_sizes = [4**k for k in range(1, 10)]

plain, heavy = sweep(problem, [SGD(), HeavyBall()], batch_sizes, target=0.01)
tables = ([row for row in found.table() if not row["added"]] for found in (plain, heavy))

print(f"{'batch size':>10} {'SGD steps':>10} {'lr':>8} {'HeavyBall':>10} {'lr':>10} {'momentum':>9}")
for B, s, h in zip(batch_sizes, *tables, strict=True):
    print(f"{B:10,} {s['steps']:10,} {s['lr']:8.4f} {h['steps']:10,} {h['lr']:10.3g} {h['momentum']:9.6f}")

for found in (plain, heavy):
    print(f"{found.label}: twice the steps of perfect scaling at batch size {found.critical_batch_size():,.0f}")

plot_sweeps([plain, heavy], "batch_size.png")
