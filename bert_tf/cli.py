"""Command-line flags from option classes. The only file that imports absl.flags.

    cli.run(ClassifierOptions, run_classifier)

defines one flag for each field of the dataclass, with the field's name, default and help text. It then
parses the command line, makes the options, and calls the program.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags
from absl import logging as absl_logging

from bert_tf.quiet import until_reader_stops
from bert_tf.removed_flags import REMOVED

logger = logging.getLogger(__name__)

_DEFINERS: dict[type, Callable] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    tuple: flags.DEFINE_multi_string,
}

# Errors that a user can cause and fix. Any other error is a bug and shows its traceback.
_USER_ERRORS = (ValueError, OSError, FloatingPointError, ImportError)
# Such errors of TensorFlow, which has its own classes even for files.
_TENSORFLOW_USER_ERRORS = (
    "AlreadyExistsError",
    "DataLossError",
    "FailedPreconditionError",
    "NotFoundError",
    "OutOfRangeError",  # the maximum file size
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
)


def run(options_class: type, workflow: Callable[[Any], Any]) -> None:
    """Define the flags of `options_class`, and call `workflow` with its instance.

    An options class with a true `only_answers` declares that the process changes no weight.

    Exit with 0 on success, with 1 and one message for invalid input, and with 130 on Ctrl-C.
    """
    define_flags(options_class)
    if getattr(options_class, "only_answers", False):
        from bert_tf.modeling.inference_layout import keep_packed_kernels

        keep_packed_kernels()

    def main(argv: Sequence[str]) -> int:
        if len(argv) > 1 and _positional_field(options_class) is None:
            raise app.UsageError(f"Unknown argument {argv[1]!r}; every option starts with --.")
        _set_up_logging()
        options = None
        try:
            options = options_from_flags(options_class, arguments=argv[1:])
            unread = _given_flags(options_class)
            workflow(recorded(options, unread))
        except KeyboardInterrupt:
            resumes = hasattr(options, "save_checkpoints_steps")
            again = " The same command resumes from the last checkpoint, if any." if resumes else ""
            print(f"\nInterrupted.{again}", file=sys.stderr)
            return 130
        except Exception as error:
            if not is_user_error(error):
                raise
            flag = "--" if hasattr(error, "option") else ""  # an OptionError
            print(f"\nerror: {flag}{error}", file=sys.stderr)
            if flags.FLAGS.verbosity >= absl_logging.DEBUG:
                raise
            return 1
        if unread:
            names = ", ".join(f"--{name}" for name in sorted(unread))
            logger.warning("This run did not use %s", names)
        return 0

    def parse(argv: Sequence[str]) -> Sequence[str]:
        if {"--help", "-help", "-h"} & set(argv[1:]):
            with until_reader_stops():
                print(help_text(options_class))
            sys.exit(0)
        try:
            with until_reader_stops():  # of --helpfull
                return flags.FLAGS(argv)
        except flags.UnrecognizedFlagError as error:
            name = error.flagname.removeprefix("no")
            name = error.flagname if error.flagname in REMOVED else name
            instead = f"Version 3 has no --{name}: {REMOVED[name]}." if name in REMOVED else error
            print(f"error: {instead}", file=sys.stderr)
        except flags.Error as error:
            print(f"error: {error}", file=sys.stderr)
        sys.exit(1)

    app.run(main, flags_parser=parse)


def help_text(options_class: type) -> str:
    """Return the docstring of the program and its flags that have a `group`, by group."""
    from bert_tf.options import GROUPS  # imports TensorFlow

    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, value_type, field in _fields(options_class):
        if "group" not in field.metadata:
            continue
        flag = f"--[no]{name}" if value_type is bool else f"--{name}"
        default = "" if field.default in (None, dataclasses.MISSING) else f" [{field.default}]"
        text = f"{flag}: {field.metadata['help']}{default}"
        lines = textwrap.wrap(text, 98, initial_indent="  ", subsequent_indent="      ")
        groups[field.metadata["group"]].extend(lines)
    shown = [line for name, lines in groups.items() if lines for line in ("", f"{name}:", *lines)]
    description = sys.modules["__main__"].__doc__ or ""
    return "\n".join([description.rstrip(), *shown, "", "All flags: --helpfull"])


def _given_flags(options_class: type) -> set[str]:
    return {name for name, _, _ in _fields(options_class) if flags.FLAGS[name].present}


def recorded(options: Any, unread: set[str]) -> Any:
    """Return `options`, whose options leave `unread` when the program reads them."""
    options_class = type(options)

    def read(self: Any, name: str) -> Any:
        unread.discard(name)
        return object.__getattribute__(self, name)

    members = {"__getattribute__": read, "__reduce__": lambda self: (copy.copy, (options,))}
    recorded = copy.copy(options)
    object.__setattr__(
        recorded, "__class__", type(options_class.__name__, (options_class,), members)
    )
    return recorded


def is_user_error(error: Exception) -> bool:
    """Return True if the input or the machine caused an error, so that its message suffices."""
    tf = sys.modules.get("tensorflow")  # not loaded: then the error is not TensorFlow's
    of_tensorflow = (
        tuple(getattr(tf.errors, name) for name in _TENSORFLOW_USER_ERRORS) if tf else ()
    )
    return isinstance(error, _USER_ERRORS + of_tensorflow)


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
    """Define one flag per field. A field without a default is a required flag.

    The field's metadata contain `help`, and optionally `choices`.
    """
    for name, value_type, field in _fields(options_class):
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        # Flags of the script itself appear in --help.
        common = {"flag_values": flag_values, "module_name": sys.argv[0]}
        if "choices" in field.metadata:
            choices = field.metadata["choices"]
            flags.DEFINE_enum(name, default, choices, field.metadata["help"], **common)
        else:
            _DEFINERS[value_type](name, default, field.metadata["help"], **common)
        if required:
            flags.mark_flag_as_required(name, flag_values=flag_values)


def options_from_flags(
    options_class: type,
    flag_values: flags.FlagValues = flags.FLAGS,
    arguments: Sequence[str] = (),
) -> Any:
    """Return the options with the values of the parsed command line.

    Args:
        arguments: the arguments without a flag, for the positional field.
    """
    values = {
        name: tuple(flag_values[name].value) if value_type is tuple else flag_values[name].value
        for name, value_type, _ in _fields(options_class)
        if flag_values[name].present
    }
    positional = _positional_field(options_class)
    if positional is not None:
        values[positional] = tuple(arguments)
    return options_class(**values)


def _fields(options_class: type):
    """Yield (name, type of the value, dataclass field) of each option that is a flag."""
    hints = typing.get_type_hints(options_class)
    for field in dataclasses.fields(options_class):
        if not field.metadata.get("positional"):
            yield field.name, _value_type(hints[field.name]), field


def _positional_field(options_class: type) -> str | None:
    """Return the name of the field for arguments without a flag, if any."""
    for field in dataclasses.fields(options_class):
        if field.metadata.get("positional"):
            return field.name
    return None


def _value_type(hint: Any) -> type:
    """Return `int` for `int | None`, and `tuple` for a tuple."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return typing.get_origin(hint) or hint
