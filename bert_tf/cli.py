"""Command-line flags from option classes. The only file that imports absl.flags.

    cli.run(ClassifierOptions, run_classifier)

defines the flags of the options, parses the command line, makes the options, and calls the program.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import platform
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from absl import app, flags
from absl import logging as absl_logging

import __main__
from bert_tf.options import GROUPS, Flag, flag_values, flags_of, make_options
from bert_tf.removed_flags import REMOVED

logger = logging.getLogger(__name__)

# Before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if platform.machine() in ("x86_64", "AMD64"):
    # TensorFlow's default without AVX-512 VNNI is 0, with which batches take 1.4 times as long there.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

_DEFINERS: dict[type, Callable] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
}

# Errors that a user can cause and fix. Any other error is a bug and shows its traceback.
_USER_ERRORS = (ValueError, OSError, FloatingPointError, ImportError)
# Of TensorFlow's errors, these are bugs too; others are of files and memory.
_TENSORFLOW_BUGS = ("InternalError", "InvalidArgumentError", "UnimplementedError", "UnknownError")


def run(
    options_class: type, workflow: Callable[[Any], Any], description: str | None = None
) -> None:
    """Define the flags of `options_class`, and call `workflow` with its instance.

    An `environment` of the options class has environment variables, which a user's values replace.

    `description`, by default the docstring of the script, is the beginning of --help.

    Exit with 0 on success, with 1 and one message for invalid input, and with 130 on Ctrl-C.
    """
    define_flags(options_class)
    for name, value in getattr(options_class, "environment", {}).items():
        os.environ.setdefault(name, value)
    app.run(
        functools.partial(_run, options_class, workflow),
        flags_parser=functools.partial(
            _parse, options_class, description or __main__.__doc__ or ""
        ),
    )


def _run(options_class: type, workflow: Callable[[Any], Any], argv: Sequence[str]) -> int:
    """Return the exit code of a program whose flags are parsed."""
    if len(argv) > 1 and _positional(options_class) is None:
        raise app.UsageError(f"Unknown argument {argv[1]!r}; every option starts with --.")
    _set_up_logging()
    try:
        options = options_from_flags(options_class, arguments=argv[1:])
        unread = {f.name for f in _flags(options_class) if flags.FLAGS[f.name].present}
        workflow(recorded(options, unread))
    except KeyboardInterrupt:
        resumes = "save_checkpoints_steps" in flags_of(options_class)
        again = " The same command resumes from the last checkpoint, if any." if resumes else ""
        print(f"\nInterrupted.{again}", file=sys.stderr)
        return 130
    except Exception as error:
        if is_user_error(error):
            flag = "--" if hasattr(error, "option") else ""  # an OptionError
            print(f"\nerror: {flag}{error}", file=sys.stderr)
        if not is_user_error(error) or flags.FLAGS.verbosity >= absl_logging.DEBUG:
            raise
        return 1
    if unread:
        names = ", ".join(f"--{name}" for name in sorted(unread))
        logger.warning("This run did not use %s", names)
    return 0


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """End without an error if the reader of standard output, such as `head`, has stopped."""
    try:
        yield
    except BrokenPipeError:
        pass
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                sys.stdout.close()  # or Python would flush it again at its exit, and report the error


def _parse(options_class: type, description: str, argv: Sequence[str]) -> Sequence[str]:
    """Parse the flags and return the other arguments; --help and errors end the process."""
    text = None
    if {"--help", "-help", "-h"} & set(argv[1:]):
        text = help_text(options_class)
    elif {"--helpfull", "-helpfull"} & set(argv[1:]):
        text = f"\nflags:\n{flags.FLAGS.get_help()}"
    if text is not None:
        with ignore_broken_pipe():
            print(description.rstrip(), text, sep="\n")
        sys.exit(0)
    try:
        return flags.FLAGS(argv)
    except flags.UnrecognizedFlagError as error:
        name = error.flagname.removeprefix("no")
        name = error.flagname if error.flagname in REMOVED else name
        instead = f"Version 3 has no --{name}: {REMOVED[name]}." if name in REMOVED else error
        print(f"error: {instead}", file=sys.stderr)
    except flags.Error as error:
        print(f"error: {error}", file=sys.stderr)
    sys.exit(1)


def help_text(options_class: type) -> str:
    """Return the flags that have a `group`, by group."""
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for flag in _flags(options_class):
        if "group" not in flag.metadata:
            continue
        name = f"--[no]{flag.name}" if flag.type is bool else f"--{flag.name}"
        default = "" if flag.default in (None, dataclasses.MISSING) else f" [{flag.default}]"
        text = f"{name}: {flag.metadata['help']}{default}"
        lines = textwrap.wrap(text, 98, initial_indent="  ", subsequent_indent="      ")
        groups[flag.metadata["group"]].extend(lines)
    sections = ["\n".join(["", f"{name}:", *lines]) for name, lines in groups.items() if lines]
    return "\n".join([*sections, "", "All flags: --helpfull"])


def recorded(options: Any, unread: set[str]) -> Any:
    """Return `options`, whose flags leave `unread` when the program reads them."""
    options_class = type(options)

    def read(self: Any, name: str) -> Any:
        unread.discard(name)
        return object.__getattribute__(self, name)

    def reduce(self: Any) -> tuple:  # for workers, which tell nothing
        return functools.partial(make_options, options_class, **flag_values(self)), ()

    members = {"__getattribute__": read, "__reduce__": reduce}
    copy_: Any = object.__new__(type(options_class.__name__, (options_class,), members))
    for name, value in vars(options).items():
        vars(copy_)[name] = recorded(value, unread) if dataclasses.is_dataclass(value) else value
    return copy_


def is_user_error(error: Exception) -> bool:
    """Return True if the input or the machine caused an error, so that its message suffices."""
    if isinstance(error, _USER_ERRORS):
        return True
    tf = sys.modules.get("tensorflow")  # not loaded: then the error is not TensorFlow's
    if tf is None or not isinstance(error, tf.errors.OpError):
        return False
    return type(error).__name__ not in _TENSORFLOW_BUGS


class _PlainFormatter(logging.Formatter):
    """Messages without a prefix; warnings and errors begin with their level."""

    def format(self, record: logging.LogRecord) -> str:
        message = super().format(record)
        return message if record.levelno <= logging.INFO else f"{record.levelname}: {message}"


def _set_up_logging() -> None:
    verbosity = flags.FLAGS["verbosity"]  # its default hides what programs log
    absl_logging.set_verbosity(verbosity.value if verbosity.present else absl_logging.INFO)
    handler = absl_logging.get_absl_handler()
    handler.setFormatter(_PlainFormatter())
    logging.getLogger("tensorflow").handlers.clear()  # they would repeat every message
    if flags.FLAGS.verbosity <= absl_logging.INFO:
        # Information from TensorFlow and Keras is internal. Only their warnings are for the user.
        handler.addFilter(
            lambda record: record.name.startswith("bert_tf") or record.levelno > logging.INFO
        )


def define_flags(options_class: type, flag_values: flags.FlagValues = flags.FLAGS) -> None:
    for flag in _flags(options_class):
        required = flag.default is dataclasses.MISSING
        default = None if required else flag.default
        # Flags of the script itself appear in --help.
        common = {"flag_values": flag_values, "module_name": sys.argv[0]}
        if "choices" in flag.metadata:
            choices = flag.metadata["choices"]
            flags.DEFINE_enum(flag.name, default, choices, flag.metadata["help"], **common)
        else:
            _DEFINERS[flag.type](flag.name, default, flag.metadata["help"], **common)
        if required:
            flags.mark_flag_as_required(flag.name, flag_values=flag_values)


def options_from_flags(
    options_class: type,
    flag_values: flags.FlagValues = flags.FLAGS,
    arguments: Sequence[str] = (),
) -> Any:
    """Return the options with the values of the parsed command line."""
    names = [flag.name for flag in _flags(options_class) if flag_values[flag.name].present]
    values = {name: flag_values[name].value for name in names}
    if (positional := _positional(options_class)) is not None:
        values[positional] = tuple(arguments)
    return make_options(options_class, **values)


def _flags(options_class: type) -> list[Flag]:
    return [flag for flag in flags_of(options_class).values() if flag.type is not tuple]


def _positional(options_class: type) -> str | None:
    """Return the name of the option for arguments without a flag, if any: a tuple."""
    names = (name for name, flag in flags_of(options_class).items() if flag.type is tuple)
    return next(names, None)
