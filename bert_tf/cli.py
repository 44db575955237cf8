"""Command-line flags from option classes. The only file that imports absl.flags.

    cli.run(ClassifierOptions, run_classifier)

defines one flag for each field of the dataclass, with the field's name, default and help text. It then
parses the command line, makes the options, and calls the program.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import glob
import logging
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags
from absl import logging as absl_logging

from bert_tf.quiet import import_tensorflow, until_reader_stops

import_tensorflow()  # scripts import this file first

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
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
)


def run(options_class: type, workflow: Callable[[Any], Any]) -> None:
    """Define the flags of `options_class`, and call `workflow` with its instance.

    An options class with a true `only_answers` declares that the process changes no weight. One with
    `with_given` is made by this class method, from the flags that are given.

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
            workflow(options)
        except KeyboardInterrupt:
            print(f"\nInterrupted.{_continuation(options)}", file=sys.stderr)
            return 130
        except Exception as error:
            if not is_user_error(error):
                raise
            words = _missing_file(error, options) or _full_disk(error) or _unreachable(error)
            words = words or with_flags(str(error), options_class)
            print(f"\nerror: {words}", file=sys.stderr)
            if flags.FLAGS.verbosity >= absl_logging.DEBUG:
                raise
            return 1
        return 0

    def parse(argv: Sequence[str]) -> Sequence[str]:
        try:
            with until_reader_stops():  # of --help
                return flags.FLAGS(argv)
        except flags.Error as error:
            print(f"error: {flag_problem(error, options_class)}", file=sys.stderr)
            print("--help shows the flags, --helpfull those of the libraries too.", file=sys.stderr)
        sys.exit(1)

    app.run(main, flags_parser=parse)


# What absl says of a value -> the rule.
_RULES = {
    "invalid literal for int": "must be a whole number",
    "could not convert string to float": "must be a number",
    "Non-boolean argument": "must be true or false",
}


def flag_problem(error: flags.Error, options_class: type) -> str:
    """Return the message for a command line that absl cannot parse.

    >>> from bert_tf.programs.predict import PredictionOptions
    >>> flag_problem(flags.UnrecognizedFlagError("model"), PredictionOptions)
    '--model is unknown. Did you mean --model_dir?'
    """
    fields = dataclasses.fields(options_class)
    names = [field.name for field in fields]
    if isinstance(error, flags.UnrecognizedFlagError):
        given = error.flagname
        negated = re.fullmatch("no[-_]?(.+)", given)
        absent = negated[1].replace("-", "_") if negated else ""
        close = [f"no{f.name}" for f in fields if f.name == absent and "bool" in str(f.type)]
        close = close or [name for name in names if given in name and len(given) > 2]
        close = close or difflib.get_close_matches(given, names)
        meant = f" Did you mean {' or '.join(f'--{name}' for name in close[:3])}?" if close else ""
        return f"--{given} is unknown.{meant}"
    words = str(error).removeprefix("flag ")
    if missing := re.findall(r"--(\w+)=None: Flag .* must have a value other than None", words):
        return f"--{missing[0]} is missing."
    flag, _, reason = words.partition(": ")
    if choices := re.fullmatch(r"value should be one of <(.*)>", reason):
        return f"{flag}: must be one of {', '.join(choices[1].split('|'))}."
    return next((f"{flag}: {rule}." for start, rule in _RULES.items() if start in reason), words)


def _continuation(options: Any) -> str:
    """Return the effect of the same command after an interruption; "" if it saves no checkpoints."""
    if not hasattr(options, "save_checkpoints_steps"):
        return ""
    folder = options.output_dir
    if "://" in folder:  # remote
        return " The same command resumes from the last checkpoint, if any."
    for place in ("", "runs/*/"):  # the latter for --seeds and --grid
        if glob.glob(f"{glob.escape(folder)}/{place}model.ckpt-*.index"):
            return " The same command resumes from the last checkpoint."
    return f" {folder} has no checkpoint yet, so the same command starts anew."


def with_flags(message: str, options_class: type) -> str:
    """Return an error message with flags instead of parameter names.

    A name is a parameter in backticks, before a value, and at the start before " is ". With an
    underscore, it is a parameter anywhere, except in a path, in quotes or in a longer name.

    >>> from bert_tf.programs.predict import PredictionOptions
    >>> with_flags("top_k is 0, but must be 1 or more. Use `top_k=5`.", PredictionOptions)
    '--top_k is 0, but must be 1 or more. Use --top_k=5.'
    >>> with_flags("The task in output_file/task.json needs `task`.", PredictionOptions)
    'The task in output_file/task.json needs --task.'
    """
    names = [field.name for field in dataclasses.fields(options_class)]
    any_name = "|".join(names)
    long_name = "|".join(name for name in names if "_" in name) or "(?!)"
    message = re.sub(rf"`(({any_name})(=[^`]*)?)`", r"--\1", message)
    begins, ends = r"(?<![\w`'\"/;.-])", r"(?![\w`\"/-]|\.\w|'(?!s\b))"
    return re.sub(
        rf"^({any_name})(?= is )|{begins}((?:{any_name})(?==[^\s=])|(?:{long_name}){ends})",
        r"--\1\2",
        message,
    )


def is_user_error(error: Exception) -> bool:
    """Return True if the input or the machine caused an error, so that its message suffices."""
    tf = sys.modules.get("tensorflow")  # not loaded: then the error is not TensorFlow's
    theirs = tuple(getattr(tf.errors, name) for name in _TENSORFLOW_USER_ERRORS) if tf else ()
    # TensorFlow raises OutOfRangeError at the maximum file size (`ulimit -f`).
    too_large = tf is not None and isinstance(error, tf.errors.OutOfRangeError)
    too_large = too_large and os.strerror(errno.EFBIG) in str(error)
    return too_large or isinstance(error, _USER_ERRORS + theirs)


_MOST_NAMED = 8  # files


def _missing_file(error: Exception, options: Any) -> str | None:
    """Return the message, with the flag, for a missing file or a folder that must be a file, or None."""
    tf = sys.modules.get("tensorflow")
    if tf is not None and isinstance(error, tf.errors.NotFoundError):
        file, _, _ = error.message.partition("; No such file")
    elif isinstance(error, FileNotFoundError | IsADirectoryError | ValueError):
        file = getattr(error, "filename", None)
    else:
        return None
    if not file or options is None:
        return None
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        named = (value, *value.split(",")) if isinstance(value, str) else ()
        if any(f"{file}/".startswith(f"{name.strip().rstrip('/')}/") for name in named if name):
            if isinstance(error, IsADirectoryError):
                remedy = " Name a file in it." if file == value else ""
                return f"--{field.name}={value}: {file} is a folder, but must be a file.{remedy}"
            if os.path.isdir(file):
                return f"--{field.name}={value}: folder {file} contains no file to read."
            folder, name = os.path.split(os.path.abspath(file))
            there = os.listdir(folder) if os.path.isdir(folder) else []
            close = difflib.get_close_matches(name, there, 1, cutoff=0.85)
            meant = f" Did you mean {close[0]}?" if close else ""
            if there and not close:
                nearest = difflib.get_close_matches(name, there, _MOST_NAMED, cutoff=0)
                meant = f" Its folder contains {', '.join(sorted(nearest))}."
            where = "" if os.path.isabs(file) else f" (in {os.getcwd()})"
            return f"--{field.name}={value}: file {file} was not found{where}.{meant}"
    return None


# Endings of files and folders that are not complete yet.
_UNFINISHED = r"(_temp/part-\d+-of-\d+)?(\.data-\d+-of-\d+)?(\.index)?\.tempstate\d+$|\.tmp(?=/|$)"


def _full_disk(error: Exception) -> str | None:
    """Return the message for a file on a full disk; None for other errors."""
    text = re.sub(r"^{{[^}]*}} *| *\[Op:\w+\].*$", "", str(error), flags=re.DOTALL)
    reasons = (os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    reason = next((reason for reason in reasons if reason in text), None)
    if reason is None:
        return None
    file = getattr(error, "filename", None) or text.partition("; ")[0]
    file = re.sub(_UNFINISHED, "", file)
    return (
        f"{file} could not be written: {reason[0].lower()}{reason[1:]}. Free some space or use another "
        "disk, and run the same command again."
    )


def _unreachable(error: Exception) -> str | None:
    """Return the message for a bucket (gs://) without a connection; None for other errors."""
    found = re.search(r"libcurl code \d+ meaning '([^']+)'.* of (\w+://\S+)", str(error), re.DOTALL)
    if found is None:
        return None
    reason, path = found.groups()
    return (
        f"{path} could not be reached: {reason[0].lower()}{reason[1:]}. Check the network and the "
        "credentials of the cloud, or use a local path."
    )


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
    return getattr(options_class, "with_given", options_class)(**values)


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
