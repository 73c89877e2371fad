"""The program ``nqm``: its tour, its verbs in the order of its help, and shell completion."""

from __future__ import annotations

import click

from .. import __version__
from . import batch, exact, nets, paper, serve, watch
from .doctor import doctor
from .forecast_plan import forecast
from .lab_compare import lab
from .options import Verbs
from .screen import say

TOUR = """\
nqm tells you what batch size, momentum, averaging, preconditioning and
learning-rate schedules do to training: exactly and in milliseconds, on a noisy
quadratic model.

Seven to try:

  nqm demo
      SGD, heavy ball and averaging over batch sizes; a table and a picture
  nqm tune HeavyBall -b 1024 --target 0.01
      the best learning rate and momentum at one batch size
  nqm curve 'SGD(0.5)' -b 256 --steps 1e5 --plot curve.png
      expected loss over steps, split into signal and noise
  nqm schedule SGD -b 1024 --target 0.01 --pieces 10
      the best piecewise-constant learning-rate schedule
  nqm sweep 'EMA(SGD)' --target 0.01
      tuned steps against batch size, and the critical batch size
  nqm forecast fit example --weight-decay 0.1
      from training logs: what another schedule would give, and the best one
  nqm serve
      all of this in the browser, where every control moves exact curves

An optimizer is written as its constructor; parameters that you omit are tuned.
The default problem is that of Zhang et al. (2019); --spectrum takes your own.
All verbs: nqm --help. Examples: nqm VERB --help
"""

COMPLETION_LINES = {
    "bash": ('eval "$(_NQM_COMPLETE=bash_source nqm)"', "~/.bashrc"),
    "zsh": ('eval "$(_NQM_COMPLETE=zsh_source nqm)"', "~/.zshrc"),
    "fish": ("_NQM_COMPLETE=fish_source nqm | source", "~/.config/fish/completions/nqm.fish"),
}
COMPLETION = "\b\nShell completion, one line in a start-up file:\n" + "\n".join(
    f"  {line}  in {file}" for line, file in COMPLETION_LINES.values()
)
CONTEXT = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}


@click.group("nqm", cls=Verbs, invoke_without_command=True, context_settings=CONTEXT, epilog=COMPLETION)
@click.version_option(__version__, "-V", "--version", prog_name="nqm", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """What batch size, momentum, averaging, preconditioning and schedules do to training, on a noisy quadratic model.

    An OPTIMIZER is written as its constructor, such as 'HeavyBall(momentum=0.9)' or 'EMA(SGD)', or as module:Class for one of
    your own. Text with brackets needs quotes. The exit status is 0 for an answer, 1 if there is none (the run diverges, the
    target is never reached) or something failed, and 2 if the call is wrong.
    """
    if ctx.invoked_subcommand is None:
        say(TOUR.rstrip())


for command in (
    *(exact.curve, exact.steps, exact.tune, exact.schedule, exact.sweep, exact.map_, exact.spectrum),
    *(nets.fit, nets.predict, nets.advise, nets.check, watch.watch, batch.batch, forecast, lab),
    *(serve.serve, paper.paper, paper.claims, exact.demo, doctor),
):
    main.add_command(command)
