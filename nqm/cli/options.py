"""What the verbs of the command line share: kinds of values, options, help with examples, the boundary for errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

INTERRUPTED = 130  # as a shell reports a process that Ctrl-C ended
WRONG = 2
FAILED = 1


class Verb(click.Command):
    """A command whose help ends in examples; `docs/generate.py` and the tests read them from here."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Verbs(click.Group):
    """The group of verbs: no traceback leaves it, a wrong call is one sentence and status 2."""

    command_class = Verb

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode or os.environ.get("NQM_TRACEBACK"):
            return super().main(*args, standalone_mode=standalone_mode, **extra)
        try:
            with warnings.catch_warnings():
                # A run that overflows says so in its outcome, not in warnings about arithmetic.
                warnings.simplefilter("ignore", RuntimeWarning)
                status = super().main(*args, standalone_mode=False, **extra)
        except click.Abort:
            sys.exit(_sentence("interrupted", INTERRUPTED))
        except click.UsageError as error:
            see = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            sys.exit(_sentence(error.format_message().rstrip(".") + see, WRONG))
        except (click.ClickException, ValueError, TypeError) as error:
            sys.exit(_sentence(str(error), WRONG))
        except OSError as error:
            named = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            sys.exit(_sentence(named, WRONG))
        except Exception as error:
            if _interrupted(error):
                sys.exit(_sentence("interrupted", INTERRUPTED))
            what = f"internal error, {type(error).__name__}: {error}; NQM_TRACEBACK=1 shows where"
            sys.exit(_sentence(what, FAILED))
        sys.exit(status if isinstance(status, int) else 0)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from ..types import unknown

            ctx.fail(str(unknown("verb", args[0], self.list_commands(ctx))))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order in which one meets them


def verbs(group: click.Group, prefix: str = "") -> dict[str, Verb]:
    """Every verb by what is typed after the name of the program, those of groups among them."""
    found: dict[str, Verb] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= verbs(command, f"{prefix}{name} ")
        elif isinstance(command, Verb):
            found[prefix + name] = command
    return found


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: compiled code wraps the interrupt in a `SystemError`, sometimes twice."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _sentence(text: str, status: int) -> int:
    click.echo(f"Error: {' '.join(text.split())}", err=True)
    return status


class Parsed(click.ParamType):
    """A value that one of the functions in `parse` reads; named here and imported when it is needed."""

    def __init__(self, name: str, function: str, **options: Any) -> None:
        self.name, self.function, self.options = name, function, options

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        module, _, function = self.function.partition(".")
        try:
            return getattr(import_module(f"nqm.text.{module}"), function)(value, **self.options)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..text.objects import known_optimizers

        names = known_optimizers() if self.function == "objects.parse_optimizer" else ()
        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


class Whole(Parsed):
    """A number without a fraction, also as 1e5 or 2^17."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not (abs(number) < 2**63 and number == int(number)):
            self.fail(f"{value!r} is not a whole number", param, ctx)
        return int(number)


class OutputFile(click.ParamType):
    """A file to write, refused before the work is done if it could not be written; its folder is made when it is."""

    name = "file"

    def __init__(self, endings: Sequence[str] = ()) -> None:
        self.endings = tuple(endings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and not self.endings:
            return value
        path = Path(value)
        if self.endings and path.suffix.lower() not in self.endings:
            self.fail(f"{value!r} should end in {', '.join(self.endings)}", param, ctx)
        if path.is_dir():
            self.fail(f"{value!r} is a folder", param, ctx)
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            self.fail(f"cannot write into {str(folder)!r}", param, ctx)
        return str(path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class ClaimName(click.ParamType):
    """The name of a claim."""

    name = "claim"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ..paper.claims import claim

        try:
            return claim(value).name
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from ..paper.claims import CLAIMS

        return [CompletionItem(name) for name in CLAIMS if name.startswith(incomplete)]


NUMBER = Parsed("number", "values.parse_number")
WHOLE = Whole("number", "values.parse_number")
AXIS = Parsed("axis", "objects.parse_axis")
CLAIM = ClaimName()
OPTIMIZER = Parsed("optimizer", "objects.parse_optimizer", allow_import=True)
PICTURE = OutputFile((".png", ".pdf", ".svg"))

optimizer = click.argument("optimizer", type=OPTIMIZER)
optimizers = click.argument("optimizers", metavar="OPTIMIZER...", type=OPTIMIZER, nargs=-1, required=True)


class SpectrumText(Parsed):
    """A spectrum as text or as a file, which may also be one of ``nqm fit``: then it is the quadratic of that fit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and Path(value).suffix.lower() in (".json", ".npz") and Path(value).is_file():
            from ..nets.fitting.model import Fit, is_fit

            try:
                if is_fit(value):
                    return Fit.load(value).spectrum
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


SPECTRUM = SpectrumText("spectrum", "objects.parse_spectrum")
spectrum = click.option(
    "--spectrum",
    type=SPECTRUM,
    metavar="SPECTRUM",
    default="power_law(10000)",
    show_default=True,
    help="The modes: power_law(d, exponent=1, ...), perhaps with .binned(100), or a .json, .npz or .csv file; or a fit.",
)
kind = click.option(
    "--problem",
    "kind",
    type=click.Choice(["quadratic", "least_squares"]),
    default="quadratic",
    show_default=True,
    help="Gradient noise of fixed variance, or that of minibatches of a linear regression.",
)
label_noise = click.option(
    "--label-noise",
    type=NUMBER,
    metavar="VAR",
    help="Variance of the labels' noise, for least_squares; c / h of the spectrum if left out.",
)


def problem(function: F) -> F:
    """--spectrum, --problem and --label-noise, as the one problem they mean."""

    @wraps(function)
    def verb(*args: Any, spectrum: Any, kind: str, label_noise: float | None, **named: Any) -> Any:
        if kind == "least_squares":
            from ..problems.least_squares import LeastSquares

            return function(*args, problem=LeastSquares(spectrum, label_noise), **named)
        if label_noise is not None:
            raise click.UsageError("--label-noise needs --problem least_squares", click.get_current_context())
        from ..problems.quadratic import Quadratic

        return function(*args, problem=Quadratic(spectrum), **named)

    return spectrum(kind(label_noise(verb)))  # type: ignore[return-value]


batch_size = click.option(
    "--batch-size", "-b", type=NUMBER, metavar="B", required=True, help="Batch size: 1024, 2^10, or inf for no noise."
)
target = click.option("--target", type=NUMBER, metavar="LOSS", required=True, help="Loss to reach.")
schedule = click.option(
    "--schedule",
    type=Parsed("schedule", "objects.parse_schedule"),
    metavar="SCHEDULE",
    help="Multipliers over steps, such as 'warmup(100) + cosine(900)'.",
)
max_steps = click.option(
    "--max-steps", type=WHOLE, metavar="N", default=10**9, show_default="10^9", help="Give up after so many steps."
)


def laws(function: F) -> F:
    """--noise, --seed and --rotation."""
    noise = click.option(
        "--noise", metavar="LAW", default="gaussian", show_default=True,
        help="Law of the sampled noise: gaussian, rademacher, laplace, exponential, student_t(df) or cauchy.",
    )  # fmt: skip
    seed = click.option("--seed", type=WHOLE, metavar="N", default=0, show_default=True, help="Of the random numbers.")
    rotation = click.option(
        "--rotation", type=WHOLE, metavar="SEED", help="Sample in a random basis with this seed; 2,000 modes at most."
    )
    return noise(seed(rotation(function)))


def sampling(function: F) -> F:
    """--replicas, --noise, --seed and --rotation."""
    replicas = click.option(
        "--replicas", "--sample", "replicas", type=WHOLE, metavar="N",
        help="Sample so many replicas: 64 with --noise or --rotation, or if the optimizer is not linear.",
    )  # fmt: skip
    return replicas(laws(function))


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
csv = click.option("--csv", type=OutputFile(), metavar="FILE", help="Write the data as CSV; - for standard output.")
plot = click.option("--plot", type=PICTURE, metavar="FILE", help="Write a picture: .png, .pdf or .svg.")


def goals(function: F) -> F:
    """--target, --steps or --examples."""
    examples = click.option("--examples", type=NUMBER, metavar="N", help="Or: least loss within so many examples.")
    steps = click.option("--steps", type=WHOLE, metavar="N", help="Or: least loss within so many steps.")
    fewest = click.option("--target", type=NUMBER, metavar="LOSS", help="Reach this loss in the fewest steps.")
    return fewest(steps(examples(function)))


def check_goals(target: float | None, steps: int | None, examples: float | None) -> None:
    if sum(goal is not None for goal in (target, steps, examples)) != 1:
        raise click.UsageError("give exactly one of --target, --steps and --examples", click.get_current_context())
