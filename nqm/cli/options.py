"""How verbs and options of the command line are declared, and the options that several verbs share."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import get_annotations
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..starting import interrupt_again
from ..types import Wrong, short, unknown
from .errors import closed_pipe_told, open_output, tell
from .output import Sink

if TYPE_CHECKING:
    from ..engine.spectrum import Spectrum
    from ..logs import Forecast
    from ..problems.base import Problem

VerbFunction = Callable[..., None]
Decorator = Callable[[VerbFunction], VerbFunction]


class Verb(click.Command):
    """A command whose help ends in examples; `docs/generate.py` and the tests read them too."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line. Two options that would write the same file are refused, because one result would be lost."""
        rest, written = super().parse_args(ctx, args), {}
        for param in self.params:
            path = ctx.params.get(param.name or "") if isinstance(param.type, OutputFile) else None
            if path is None or path == "-":
                continue
            other = written.setdefault(os.path.realpath(path), param.opts[0])
            if other != param.opts[0]:
                raise click.UsageError(
                    f"{other} and {param.opts[0]} would both write {short(path)!r}; name two files", ctx
                )
        return rest

    def invoke(self, ctx: click.Context) -> object:
        """Call the verb. If a `Wrong` is about an option of the verb, the message names that option."""
        try:
            return super().invoke(ctx)
        except Wrong as error:
            for param in self.params:
                # A verb over several optimizers or batch sizes calls functions whose argument is one of them.
                if error.argument and param.name in (error.argument, f"{error.argument}s"):
                    raise click.BadParameter(str(error), ctx, param) from error
            raise


class Verbs(click.Group):
    """A group of verbs. Every exception ends the program with one sentence and an exit status, without a traceback."""

    def main(self, *args: object, standalone_mode: bool = True, **extra: object) -> NoReturn:  # type: ignore[override]
        open_output()
        try:
            interrupt_again()
            with warnings.catch_warnings():
                # A run that overflows says so in its outcome, so warnings about arithmetic are not needed.
                warnings.simplefilter("ignore", RuntimeWarning)
                status = super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
        except Exception as error:
            sys.exit(tell(error))
        sys.exit(status if isinstance(status, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with closed_pipe_told():  # This call prints the help, if it is asked for.
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with closed_pipe_told():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(str(unknown("verb", args[0], self.list_commands(ctx))))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # In the order in which they were added; click would sort them.


def verb(short_help: str, *examples: str) -> Callable[[VerbFunction], Verb]:
    """Declare a function as the verb of its name; its docstring is the help, and its decorators are the options."""

    def declared(function: VerbFunction) -> Verb:
        command = click.command(function.__name__.rstrip("_"), cls=Verb, short_help=short_help)(function)
        command.examples = examples
        return command

    return declared


def verbs(group: click.Group, prefix: str = "") -> dict[str, Verb]:
    """Every verb by the words that are typed after the name of the program, including the verbs of groups."""
    found: dict[str, Verb] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= verbs(command, f"{prefix}{name} ")
        elif isinstance(command, Verb):
            found[prefix + name] = command
    return found


class OptionType(click.ParamType):
    """A kind of value. ``read`` turns text into a value; the message about a wrong text names the option."""

    metavar: str

    def read(self, text: str) -> object:
        raise NotImplementedError

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except Wrong as error:
            self.fail(str(error), param, ctx)


class Parsed(OptionType):
    """A value that a function of nqm reads. Both ``function`` and ``words``, which a shell completes, are imported late."""

    def __init__(self, metavar: str, function: str, words: str = "", **options: bool) -> None:
        self.name, self.metavar = metavar.lower(), metavar
        self.function, self.words, self.options = function, words, options

    def read(self, text: str) -> object:
        return resolve_name(self.function)(text, **self.options)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = resolve_name(self.words) if self.words else ()
        return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


class Whole(OptionType):
    """A whole number, also written as 1k, 1e5 or 2^17, within bounds if there are any."""

    name, metavar = "number", "N"

    def __init__(self, low: int | None = None, high: int | None = None) -> None:
        self.low, self.high = low, high

    def read(self, text: str) -> int:
        from ..text.values import NUMBER_FORMS, parse_number

        number = parse_number(text)
        if math.isinf(number) or number != int(number):
            raise Wrong(f"{text!r:.60} is not a whole number; {NUMBER_FORMS}")
        if abs(number) >= 2**63:
            raise Wrong(f"{text!r:.60} is too large; whole numbers go up to 2^63 - 1")
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            upper = "" if self.high is None else f" to {self.high:,}"
            raise Wrong(f"it must be a whole number from {self.low:,}{upper}, got {int(number):,}")
        return int(number)


class SpectrumText(Parsed):
    """A spectrum, as text or as a file. A file of ``nqm fit`` gives the spectrum of that fit."""

    def read(self, text: str) -> object:
        if Path(text).suffix.lower() in (".json", ".npz") and Path(text).is_file():
            from ..nets.fitting.model import Fit, is_fit

            if is_fit(text):
                return Fit.load(text).spectrum
            from ..logs.saving import is_forecast

            if is_forecast(text):
                raise Wrong(
                    f"{text!r} is a forecast, not a spectrum; give it as --forecast to curve, steps, tune or sweep"
                )
        return super().read(text)


class OutputFile(OptionType):
    """A file to write. A file that cannot be written is refused before any work is done."""

    name, metavar = "file", "FILE"

    def __init__(self, *endings: str, dash: bool = False) -> None:
        self.endings, self.dash = endings, dash

    def read(self, text: str) -> str:
        if text == "-" and self.dash:
            return text
        path = Path(text)
        if self.endings and path.suffix.lower() not in self.endings:
            raise Wrong(f"{text!r} should end in {', '.join(self.endings)}")
        if text in ("", "-"):
            raise Wrong(f"it must be the name of a file, got {text!r}")
        try:
            check_writable(path)
        except OSError as error:  # Some names are refused by the system, for example if they are too long.
            raise Wrong(f"cannot write {short(text)!r}: {error.strerror}") from None
        return str(path)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def check_writable(path: Path) -> None:
    """Refuse a path that is a folder, or a file that could not be written or created."""
    if path.is_dir():
        raise Wrong(f"{str(path)!r} is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise Wrong(f"there is no permission to write {str(path)!r}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise Wrong(f"cannot write into {str(folder)!r}: it is a file, not a folder")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise Wrong(f"cannot write into {str(folder)!r}: there is no permission")


NUMBER = Parsed("N", "nqm.text.values:parse_number", finite=True)
INTEGER = Whole()
BATCH_SIZE = Parsed("N", "nqm.text.values:parse_number")
SIZES = Parsed("SIZES", "nqm.text.values:parse_batch_sizes")
RATE_LIST = Parsed("RATE_LIST", "nqm.text.values:parse_rates")
AXIS = Parsed("AXIS", "nqm.text.objects:parse_axis")
CLAIM = Parsed("NAME", "nqm.paper.claims:claim", "nqm.paper.claims:CLAIMS")
_known = "nqm.text.objects:KNOWN_OPTIMIZERS"
OPTIMIZER = Parsed("OPTIMIZER", "nqm.text.objects:parse_optimizer", _known, allow_import=True)
NOISE = Parsed("LAW", "nqm.text.objects:parse_noise")
SCHEDULE = Parsed("SCHEDULE", "nqm.text.objects:parse_schedule")
SPECTRUM = SpectrumText("SPECTRUM", "nqm.text.objects:parse_spectrum")
FORECAST = Parsed("FILE", "nqm.logs:Forecast.load")
PICTURE = OutputFile(".png", ".pdf", ".svg")
TABLE = OutputFile(dash=True)
STORE = OutputFile()
FIT = OutputFile(".json", ".npz")
INPUT = click.Path(exists=True, dir_okay=False)


def option(
    names: str, help: str, kind: click.ParamType | tuple[str, ...] = click.STRING, *, default: object = None,
    shown: str = "", required: bool = False, multiple: bool = False,
) -> Decorator:  # fmt: skip
    """An option with its help and its kind, which is a type or a tuple of words; the first word is then the default.

    ``names`` has the flags, then the name of the argument if it differs, then in capitals the placeholder for the value if it
    differs from that of the kind. The help shows the default, written as ``shown`` if that is given.
    """
    words = names.split()
    of_kind = "FILE" if isinstance(kind, click.Path) else getattr(kind, "metavar", None)
    metavar = words.pop() if words[-1].isupper() else of_kind
    if isinstance(kind, tuple):
        kind, default = click.Choice(kind), kind[0]
    given = {} if default is None else {"default": default, "show_default": shown or True}
    return click.option(*words, type=kind, metavar=metavar, help=help, required=required, multiple=multiple, **given)


def flag(names: str, help: str) -> Decorator:
    """An option without a value."""
    return click.option(*names.split(), is_flag=True, help=help)


def bundle(name: str, make: Callable[..., object], *options: Decorator) -> Decorator:
    """Options whose values reach the verb as one argument ``name``. ``make`` builds it from the values it has annotations for."""

    def declared(function: VerbFunction) -> VerbFunction:
        @wraps(function)
        def called(**values: object) -> None:
            taken = {key: values.pop(key) for key in get_annotations(make) if key in values}
            function(**{name: make(**taken)}, **values)

        found: VerbFunction = called
        for decorator in reversed(options):
            found = decorator(found)
        return found

    return declared


optimizer = click.argument("optimizer", type=OPTIMIZER)
TRAINED = Parsed("OPTIMIZER", "nqm.nets.natural:parse_trained", _known, allow_import=True)
trained = click.argument("optimizer", type=TRAINED)
optimizers = click.argument("optimizers", metavar="OPTIMIZER...", type=OPTIMIZER, nargs=-1, required=True)
spectrum = option(
    "--spectrum",
    "The modes: power_law(d, exponent=1, ...), perhaps with .binned(100); or a .json, .npz or .csv file; or a file of nqm fit.",
    SPECTRUM, default="power_law(10000)",
)  # fmt: skip
batch_size = option("--batch-size -b B", "Batch size: 1024, 1k, 2^10, or inf for no noise.", BATCH_SIZE, required=True)
batch_sizes = option(
    "--batch-sizes",
    "A list such as 4,16,1024 (no commas inside numbers), or a range: 2^2..2^20 in factors of 4, 2^2..2^20..2 in factors of 2.",
    SIZES, default="2^2..2^20",
)  # fmt: skip
target = option("--target LOSS", "Loss to reach.", NUMBER, required=True)
schedule = option("--schedule", "Multipliers over steps, such as 'warmup(100) + cosine(900)'.", SCHEDULE)
max_steps = option("--max-steps", "Give up after this many steps.", INTEGER, default=10**9, shown="10^9")
seed = option("--seed", "Seed of the random numbers.", Whole(0), default=0)
JSON = flag("--json as_json", "Print JSON instead of text.")
CSV = option("--csv", "Write the data as CSV; - is standard output.", TABLE)
PLOT = option("--plot", "Write a picture: .png, .pdf or .svg.", PICTURE)


def sink(csv: bool = False, plot: bool = False) -> Decorator:
    """--json, with --csv and --plot where they are asked for, as one `Sink`."""
    return bundle("sink", Sink, JSON, *([CSV] if csv else []), *([PLOT] if plot else []))


def _problem(
    spectrum: Spectrum, kind: str, label_noise: float | None, forecast: Forecast | None, extrapolate: bool
) -> Problem:
    if extrapolate and forecast is None:
        raise click.UsageError("--extrapolate is for --forecast: give both")
    if forecast is not None:
        source = click.get_current_context().get_parameter_source
        others = {"--spectrum": "spectrum", "--problem": "kind", "--label-noise": "label_noise"}
        if given := [flag for flag, name in others.items() if source(name) is ParameterSource.COMMANDLINE]:
            raise click.UsageError(f"--forecast is a whole problem; omit {' and '.join(given)}")
        return replace(forecast.problem, extrapolate=extrapolate)
    if kind == "least_squares":
        from ..problems.least_squares import LeastSquares

        return LeastSquares(spectrum, label_noise)
    if label_noise is not None:
        raise click.UsageError("--label-noise needs --problem least_squares")
    from ..problems.quadratic import Quadratic

    return Quadratic(spectrum)


_noises = "Gradient noise of fixed variance, or the noise of minibatches of a linear regression."
_variance = "Variance of the noise of the labels, for least_squares; if omitted, c / h of the spectrum."
_kind = option("--problem kind", _noises, ("quadratic", "least_squares"))
_logged = (
    "A file of nqm forecast fit instead of a spectrum; the optimizer is then SGD(lr), for the optimizer of its logs."
)
_label_noise, _forecast = option("--label-noise VAR", _variance, NUMBER), option("--forecast", _logged, FORECAST)
_extrapolate = flag("--extrapolate", "Answer beyond the reach of the logs of --forecast, too.")
problem = bundle("problem", _problem, spectrum, _kind, _label_noise, _forecast, _extrapolate)


class LawOptions(TypedDict):
    """How an optimizer is sampled: the law of the noise, the seed, and the seed of a random basis."""

    noise: str
    seed: int
    rotation: int | None


_names = "gaussian, rademacher, laplace, exponential, student_t(df) or cauchy"
_noise = option("--noise", f"Law of the sampled noise: {_names}.", NOISE, default="gaussian")
_basis = "Sample in a random basis, which this seed determines; the problem may have at most 2,000 modes."
sampled = flag("--sampled", "Sample an optimizer that is not linear, instead of following its mean field.")
laws = bundle("laws", LawOptions, _noise, seed, option("--rotation SEED", _basis, Whole(0)))


class GoalOptions(TypedDict):
    """What a search is for: exactly one of the three is set."""

    target: float | None
    steps: int | None
    examples: float | None


def _goal(target: float | None, steps: int | None, examples: float | None) -> GoalOptions:
    if sum(one is not None for one in (target, steps, examples)) != 1:
        raise click.UsageError("give exactly one of --target, --steps and --examples")
    return GoalOptions(target=target, steps=steps, examples=examples)


_fewest = option("--target LOSS", "Reach this loss in the fewest steps.", NUMBER)
_within_steps = option("--steps", "Find the smallest loss within N steps.", INTEGER)
_within_examples = option("--examples", "Find the smallest loss within N examples.", NUMBER)
goal = bundle("goal", _goal, _fewest, _within_steps, _within_examples)
