"""How large a batch pays, for SGD and for heavy ball, each tuned at every batch size.

Run it with ``python examples/01_batch_size.py``; it prints a table and writes batch_size.png to the current folder.
"""

from nqm import SGD, HeavyBall, Quadratic, Spectrum, sweep
from nqm.show import plot_sweeps

problem = Quadratic(Spectrum.power_law(10_000))  # 10,000 modes, curvature 1/i, gradient noise C = H
batch_sizes = [4**k for k in range(1, 10)]

plain = sweep(problem, SGD(), target=0.01, batch_sizes=batch_sizes)
heavy = sweep(problem, HeavyBall(), target=0.01, batch_sizes=batch_sizes)

print(f"{'batch size':>10} {'SGD steps':>10} {'lr':>8} {'HeavyBall':>10} {'lr':>10} {'momentum':>9}")
for B, s, h in zip(batch_sizes, plain.table(), heavy.table(), strict=True):
    print(f"{B:10,} {s['steps']:10,} {s['lr']:8.4f} {h['steps']:10,} {h['lr']:10.3g} {h['momentum']:9.6f}")

for found in (plain, heavy):
    perfect = found.regimes()["perfect"][1]
    print(f"{found.label}: within 20% of perfect scaling up to batch size {perfect:,.0f}")

plot_sweeps([plain, heavy], "batch_size.png")
