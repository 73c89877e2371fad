"""An optimizer that nqm does not have, in a dozen lines, tuned beside SGD.

The family of Lessard, Recht and Packard (2016) moves with one momentum and looks ahead with another::

    y     <- theta + ahead v
    v     <- momentum v - lr (h y + eps)
    theta <- theta + v

ahead = 0 is heavy ball, ahead = momentum is Nesterov's method; here both are tuned.
"""

from dataclasses import dataclass

from nqm import SGD, Optimizer, Quadratic, Spectrum, decay, rate, tune, unit


@dataclass(frozen=True)
class TwoMomenta(Optimizer):
    lr: float = rate()
    momentum: float = decay()
    ahead: float = unit()

    def system(self, h, t):
        x, carried = self.lr * h, self.momentum - self.lr * h * self.ahead
        return [[-x, carried], [-x, carried - 1]], [-self.lr, -self.lr]

    def initial(self):
        return [1.0, 0.0]

    def readout(self, t):
        return [1.0, 0.0]

    def edge(self, h):
        return 2 * (1 + self.momentum) / (1 + 2 * self.ahead) / h


if __name__ == "__main__":
    problem = Quadratic(Spectrum.power_law(10_000))
    for batch_size in (64, 1024, 16_384):
        for optimizer in (SGD(), TwoMomenta()):
            best = tune(problem, optimizer, batch_size, target=0.01)
            edge = f" ({', '.join(best.at_bound)} at the edge of its range)" if best.at_bound else ""
            print(f"B = {batch_size:6,}: {best.steps:6,} steps with {best.optimizer}{edge}")
