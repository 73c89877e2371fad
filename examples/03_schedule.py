"""The best learning-rate schedule beside the best constant rate, and what an average does without a schedule.

Run it with ``python examples/03_schedule.py``; it writes schedule.png to the current folder.
"""

from nqm import EMA, SGD, Quadratic, Spectrum, optimal_schedule, steps_to_target, tune

problem = Quadratic(Spectrum.power_law(10_000))
batch_size, target = 64, 0.01

constant = tune(problem, SGD(), batch_size, target)
average = tune(problem, EMA(SGD()), batch_size, target)
best = optimal_schedule(problem, SGD(), batch_size, target, pieces=10)

print(f"constant rate      {constant.steps:7,} steps, {constant.optimizer}")
print(f"10-piece schedule  {best.steps:7,} steps")
print(f"averaged weights   {average.steps:7,} steps, {average.optimizer}")

start = 0
for length, factor in zip(best.schedule.lengths, best.schedule.lr, strict=True):
    print(f"  from step {start:6,}: lr {best.optimizer.lr * factor:.4f}")
    start += length

# The schedule is data: a run that follows it first meets the target within its last few steps.
hit = steps_to_target(problem, best.optimizer, batch_size, target, schedule=best.schedule)
print(f"run again: {hit.message}")
best.plot("schedule.png")
