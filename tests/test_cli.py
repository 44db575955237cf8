"""Flags as a view of the option classes, and how a script ends."""

import ast
import importlib
import subprocess

import pytest
import tensorflow as tf
from absl import flags
from helpers import python

from bert_tf import cli
from bert_tf.__main__ import PROGRAMS
from bert_tf.options import make_options

# Flags without which an option class refuses to be made, or that it needs for others.
LEAST = {
    "ClassifierOptions": ["--do_eval", "--task_name=mrpc", "--data_dir=d", "--output_dir=o"],
    "ConvertOptions": ["--init_checkpoint=c", "--output_dir=o"],
    "EmbeddingOptions": ["--do_train", "--train_file=t", "--output_dir=o"],
    "ExportOptions": ["--model_dir=m", "--export_dir=e"],
    "ExtractionOptions": ["--input_file=i", "--output_file=o", "--init_checkpoint=c"],
    "PredictionOptions": ["--model_dir=m"],
    "PretrainingDataOptions": ["--input_file=i", "--output_file=o", "--vocab_file=v"],
    "PretrainingOptions": ["--do_train", "--input_file=i", "--output_dir=o"],
    "NerOptions": ["--do_train", "--train_file=t", "--output_dir=o", "--init_checkpoint=c"],
    "RerankerOptions": ["--do_train", "--train_file=t", "--output_dir=o"],
    "SquadOptions": ["--do_predict", "--predict_file=p", "--output_dir=o"],
    "SwagOptions": ["--do_train", "--train_file=t", "--output_dir=o", "--init_checkpoint=c"],
    "VocabularyOptions": ["--input_file=i", "--output_dir=o"],
    "VisualizationOptions": ["--model_dir=m", "--text=t"],
}

# google-research/bert: every flag of each script, with its default; "!" where it has none.
TRAINING = """
    use_tpu=False tpu_name=None tpu_zone=None gcp_project=None master=None num_tpu_cores=8
    output_dir! init_checkpoint=None do_train=False do_eval=False max_seq_length=128
    train_batch_size=32 eval_batch_size=8 learning_rate=5e-05 save_checkpoints_steps=1000
    iterations_per_loop=1000
"""
REFERENCE = {
    "PretrainingDataOptions": """
        input_file! output_file! vocab_file! do_lower_case=True do_whole_word_mask=False
        max_seq_length=128 max_predictions_per_seq=20 random_seed=12345 dupe_factor=10
        masked_lm_prob=0.15 short_seq_prob=0.1
    """,
    "PretrainingOptions": TRAINING
    + """
        input_file! bert_config_file! max_predictions_per_seq=20 num_train_steps=100000
        num_warmup_steps=10000 max_eval_steps=100
    """,
    "ClassifierOptions": TRAINING
    + """
        data_dir! task_name! vocab_file! bert_config_file! do_lower_case=True do_predict=False
        predict_batch_size=8 num_train_epochs=3.0 warmup_proportion=0.1
    """,
    "SquadOptions": TRAINING
    + """
        max_seq_length=384 vocab_file! bert_config_file! train_file=None predict_file=None
        do_lower_case=True doc_stride=128 max_query_length=64 do_predict=False
        predict_batch_size=8 num_train_epochs=3.0 warmup_proportion=0.1 n_best_size=20
        max_answer_length=30 verbose_logging=False version_2_with_negative=False
        null_score_diff_threshold=0.0
    """,
    "ExtractionOptions": """
        input_file! output_file! init_checkpoint! bert_config_file! vocab_file!
        layers="-1,-2,-3,-4" max_seq_length=128 do_lower_case=True batch_size=32 use_tpu=False
        master=None num_tpu_cores=8 use_one_hot_embeddings=False
    """,
}
# Where we differ on purpose.
SIDECARS = {"bert_config_file": None, "vocab_file": None}  # next to the checkpoint
OF_A_CHECKPOINT = SIDECARS | {"do_lower_case": None}  # as the checkpoint says, else True
OF_A_TASK = OF_A_CHECKPOINT | {"max_seq_length": None}  # of the run in output_dir, else 128 or 384
EXCEPTIONS = {
    "PretrainingDataOptions": {"max_predictions_per_seq": None, "do_lower_case": None},
    "PretrainingOptions": {"bert_config_file": None, "max_predictions_per_seq": None},  # else 20
    "ClassifierOptions": OF_A_TASK | {"data_dir": None, "task_name": None},  # or --train_file
    "SquadOptions": OF_A_TASK | {"version_2_with_negative": None},  # else False
    "ExtractionOptions": OF_A_CHECKPOINT,
}


def defaults(text):
    """flag -> default, or "required", of a table like REFERENCE."""
    rows = (word.removesuffix("!").partition("=") for word in text.split())
    return {name: ast.literal_eval(value) if eq else "required" for name, eq, value in rows}


OPTION_CLASSES = {
    name: getattr(importlib.import_module(f"bert_tf.{module}"), name)
    for module, name in PROGRAMS.values()
}


def absl_flags(name):
    values = flags.FlagValues()
    cli.define_flags(OPTION_CLASSES[name], values)
    return values


def is_required(values, name):
    """Whether a command line without it is refused."""
    return any(
        name in validator.get_flags_names() and not validator.checker(None)
        for validator in values[name].validators
    )


def test_every_workflow_is_known_here():
    assert set(LEAST) == set(OPTION_CLASSES)


def test_a_command_line_makes_the_same_options_as_python():
    for name, least in LEAST.items():
        values = absl_flags(name)
        values(["script", *least])
        arguments = dict(flag.removeprefix("--").split("=") for flag in least if "=" in flag)
        arguments |= {flag.removeprefix("--"): True for flag in least if "=" not in flag}
        expected = make_options(OPTION_CLASSES[name], **arguments)
        assert cli.options_from_flags(OPTION_CLASSES[name], values) == expected


def test_values_of_every_type_and_arguments_that_are_no_flags_arrive():
    values, least = absl_flags("PretrainingDataOptions"), LEAST["PretrainingDataOptions"]
    given = ["--runner=DirectRunner", "--do_whole_word_mask", "--masked_lm_prob=0.5"]
    given += ["--dupe_factor=3", "--nodo_lower_case", "--", "--project=x", "--num_workers=9"]
    rest = values(["script", *least, *given])
    options_class = OPTION_CLASSES["PretrainingDataOptions"]
    options = cli.options_from_flags(options_class, values, rest[1:])
    assert options.runner_flags == ("--project=x", "--num_workers=9")
    assert (options.runner, options.num_workers, options.dupe_factor) == ("DirectRunner", 1, 3)
    assert (options.masks.do_whole_word_mask, options.do_lower_case) == (True, False)
    assert (options.masks.masked_lm_prob, options.masks.max_predictions_per_seq) == (0.5, None)


def test_every_flag_of_the_reference_is_there_with_its_default():
    for name in REFERENCE:
        values, reference = absl_flags(name), defaults(REFERENCE[name])
        expected = reference | EXCEPTIONS[name]
        assert set(EXCEPTIONS[name]) <= set(reference)
        for flag, default in expected.items():
            found = "required" if is_required(values, flag) else values[flag].default
            assert found == default, f"{name}.{flag}"


# ---- A script of our own, run as a user runs it -------------------------------------------------

SCRIPT = """
import logging
from dataclasses import dataclass, field
from bert_tf import cli

def option(help_text, choices=None, **kwargs):
    metadata = {{"help": help_text, "group": "Data"}} | ({{"choices": choices}} if choices else {{}})
    return field(metadata=metadata, **kwargs)

@dataclass(frozen=True)
class Options:
    needed: str = option("What must be given.")
    number: int = option("A whole number.", default=5)
    share: float = option("From 0 to 1.", default=0.5)
    mode: str = option("How.", default="plain", choices=("plain", "fancy"))
    flag: bool | None = option("Whether.", default=None)
    {field}

    def __post_init__(self):
        if self.number < 1:
            from bert_tf.options import OptionError
            raise OptionError("number", "must be 1 or more.")

def workflow(options):
    logging.getLogger("bert_tf.somewhere").info("started")
    logging.getLogger("keras").info("inner affairs")
    logging.getLogger("keras").warning("look out")
    {body}
    print(options)

if __name__ == "__main__":
    cli.run(Options, workflow)
"""


@pytest.fixture
def run_script(tmp_path):
    def run(*arguments, body="pass", field="pass"):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(body=body, field=field))
        return subprocess.run(**python(script, *arguments), capture_output=True, timeout=60)

    return run


@pytest.mark.night
def test_a_workflow_that_ends_well_exits_with_0_and_logs_to_standard_error(run_script):
    ended = run_script("--needed=x", "--number", "7", "--flag", "--mode=fancy")
    assert ended.returncode == 0
    expected = "Options(needed='x', number=7, share=0.5, mode='fancy', flag=True)"
    assert ended.stdout.splitlines() == [expected]
    assert ended.stderr == "started\nWARNING: look out\n"


USAGE = [  # arguments, what is printed
    (["--needed=x", "stray"], "Unknown argument 'stray'; every option starts with --"),
    (["--needed=x", "--nubmer=3"], "error: Unknown command line flag 'nubmer'. Did you mean:"),
    (["--needed=x", "--number=many"], "error: flag --number=many: "),
    (["--needed=x", "--mode=odd"], "error: flag --mode=odd: "),
    ([], "error: flag --needed=None: "),
    (["--needed=x", "--number=0"], "error: --number: must be 1 or more."),
    (["--needed=x", "--phases=1"], "error: Version 3 has no --phases: run one command for each"),
    (["--needed=x", "--noquoted"], "error: Version 3 has no --quoted: "),
]


@pytest.mark.night
def test_a_wrong_command_line_is_one_message_and_exit_code_1(run_script):
    for arguments, message in USAGE:
        ended = run_script(*arguments)
        output = ended.stdout + ended.stderr
        assert (ended.returncode, output.count(message)) == (1, 1), arguments
        assert "Traceback" not in output, arguments


STARTED = "started\nWARNING: look out\n"
ENDS = [  # arguments, what the workflow does, exit code, what is printed to standard error
    ([], "raise ValueError('the cause')", 1, f"{STARTED}\nerror: the cause\n"),
    ([], "raise FileNotFoundError(2, 'the cause')", 1, f"{STARTED}\nerror: [Errno 2] the cause\n"),
    ([], "raise FloatingPointError('the cause')", 1, f"{STARTED}\nerror: the cause\n"),
    ([], "raise ImportError('the cause')", 1, f"{STARTED}\nerror: the cause\n"),
    ([], "raise KeyboardInterrupt", 130, f"{STARTED}\nInterrupted.\n"),
    (["--verbosity=-1"], "pass", 0, "WARNING: look out\n"),
    (
        ["--number=7", "--flag"],
        "options = options.number",
        0,
        f"{STARTED}WARNING: This run did not use --flag, --needed\n",
    ),
]


@pytest.mark.night
def test_ends_of_a_workflow_have_a_message_and_an_exit_code(run_script):
    for arguments, body, code, printed in ENDS:
        ended = run_script("--needed=x", *arguments, body=body)
        assert (ended.returncode, ended.stderr) == (code, printed), body


@pytest.mark.night
def test_tracebacks_are_of_bugs_and_of_debugging(run_script):
    for arguments, body, message in (
        ([], "{}['missing']", "KeyError: 'missing'"),
        (["--verbosity=1"], "raise ValueError('the cause')", "error: the cause"),
    ):
        ended = run_script("--needed=x", *arguments, body=body)
        assert ended.returncode == 1
        assert message in ended.stderr and "Traceback" in ended.stderr, body


def test_errors_of_files_are_the_users_and_other_ones_ours(tmp_path):
    (tmp_path / "file").write_text("")
    for call, expected in (
        (lambda: tf.io.gfile.makedirs(str(tmp_path / "file/folder")), True),
        (lambda: tf.io.gfile.listdir(str(tmp_path / "nowhere")), True),
        (lambda: tf.linalg.matmul(tf.ones([2, 3]), tf.ones([2, 3])), False),
    ):
        with pytest.raises(tf.errors.OpError) as error:
            call()
        assert cli.is_user_error(error.value) is expected


@pytest.mark.night
def test_help_shows_the_flags_of_groups_and_helpfull_all(run_script):
    field = 'rare: int = field(default=3, metadata={"help": "Seldom."})'
    text = run_script("--help", field=field).stdout
    assert "\nData:\n  --needed: What must be given.\n  --number: A whole number. [5]\n" in text
    assert "--[no]flag: Whether." in text and "--rare" not in text
    assert "--rare: Seldom." in run_script("--helpfull", field=field).stdout
