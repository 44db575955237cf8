"""Flags as a view of the option classes, and how a script ends."""

import dataclasses
import importlib
import os
import subprocess
import sys
import typing

import pytest
import tensorflow as tf
from absl import flags

from bert_tf import cli
from bert_tf.__main__ import PROGRAMS

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

TPU_FLAGS = {
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
    "master": None,
    "num_tpu_cores": 8,
}
TRAINING_FLAGS = TPU_FLAGS | {
    "output_dir": "required",
    "init_checkpoint": None,
    "do_train": False,
    "do_eval": False,
    "max_seq_length": 128,
    "train_batch_size": 32,
    "eval_batch_size": 8,
    "learning_rate": 5e-5,
    "save_checkpoints_steps": 1000,
    "iterations_per_loop": 1000,
}
# google-research/bert: every flag of each script, with its default.
REFERENCE = {
    "PretrainingDataOptions": {
        "input_file": "required",
        "output_file": "required",
        "vocab_file": "required",
        "do_lower_case": True,
        "do_whole_word_mask": False,
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "random_seed": 12345,
        "dupe_factor": 10,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
    },
    "PretrainingOptions": TRAINING_FLAGS
    | {
        "input_file": "required",
        "bert_config_file": "required",
        "max_predictions_per_seq": 20,
        "num_train_steps": 100_000,
        "num_warmup_steps": 10_000,
        "max_eval_steps": 100,
    },
    "ClassifierOptions": TRAINING_FLAGS
    | {
        "data_dir": "required",
        "task_name": "required",
        "vocab_file": "required",
        "bert_config_file": "required",
        "do_lower_case": True,
        "do_predict": False,
        "predict_batch_size": 8,
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
    },
    "SquadOptions": TRAINING_FLAGS
    | {
        "vocab_file": "required",
        "bert_config_file": "required",
        "train_file": None,
        "predict_file": None,
        "do_lower_case": True,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "do_predict": False,
        "predict_batch_size": 8,
        "num_train_epochs": 3.0,
        "warmup_proportion": 0.1,
        "n_best_size": 20,
        "max_answer_length": 30,
        "verbose_logging": False,
        "version_2_with_negative": False,
        "null_score_diff_threshold": 0.0,
    },
    "ExtractionOptions": {
        "input_file": "required",
        "output_file": "required",
        "init_checkpoint": "required",
        "bert_config_file": "required",
        "vocab_file": "required",
        "layers": "-1,-2,-3,-4",
        "max_seq_length": 128,
        "do_lower_case": True,
        "batch_size": 32,
        "use_tpu": False,
        "master": None,
        "num_tpu_cores": 8,
        "use_one_hot_embeddings": False,
    },
}
# Where we differ on purpose.
BESIDE_THE_CHECKPOINT = {"bert_config_file": None, "vocab_file": None}
AS_THE_CHECKPOINT_SAYS = {"do_lower_case": None}  # else True
AS_THE_VOCABULARY_SAYS = AS_THE_CHECKPOINT_SAYS
AS_THE_RUN_IN_OUTPUT_DIR = {"max_seq_length": None}  # else 128, and 384 for SQuAD
FROM_LENGTH_AND_SHARE = {"max_predictions_per_seq": None}  # 20 for 128 and 0.15
OWN_TABLE_INSTEAD = {"data_dir": None, "task_name": None}  # --train_file
EXCEPTIONS = {
    "PretrainingDataOptions": FROM_LENGTH_AND_SHARE | AS_THE_VOCABULARY_SAYS,
    "PretrainingOptions": {"bert_config_file": None, "max_predictions_per_seq": None},  # else 20
    "ClassifierOptions": BESIDE_THE_CHECKPOINT
    | AS_THE_CHECKPOINT_SAYS
    | AS_THE_RUN_IN_OUTPUT_DIR
    | OWN_TABLE_INSTEAD,
    "SquadOptions": BESIDE_THE_CHECKPOINT
    | AS_THE_CHECKPOINT_SAYS
    | AS_THE_RUN_IN_OUTPUT_DIR
    | {"version_2_with_negative": None},  # else False
    "ExtractionOptions": BESIDE_THE_CHECKPOINT | AS_THE_CHECKPOINT_SAYS,
}


OPTION_CLASSES = {
    name: getattr(importlib.import_module(f"bert_tf.{module}"), name)
    for module, name in PROGRAMS.values()
}


def flags_of(name):
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


@pytest.mark.parametrize("name", LEAST)
def test_flags_are_the_fields(name):
    values, fields = flags_of(name), dataclasses.fields(OPTION_CLASSES[name])
    fields = [field for field in fields if "positional" not in field.metadata]
    assert set(values) == {field.name for field in fields}
    hints = typing.get_type_hints(OPTION_CLASSES[name])
    for field in fields:
        flag = values[field.name]
        required = field.default is dataclasses.MISSING
        assert is_required(values, field.name) == required, field.name
        assert flag.default == (None if required else field.default)
        assert type(flag.default) is type(None if required else field.default)
        expected_help = field.metadata["help"]
        assert expected_help, field.name
        if "choices" in field.metadata:
            expected_help = f"<{'|'.join(field.metadata['choices'])}>: {expected_help}"
            assert flag.parser.enum_values == list(field.metadata["choices"])
            assert required or field.default in (None, *field.metadata["choices"])
        is_repeated = hints[field.name] == (tuple[str, ...] | None)
        if is_repeated:
            expected_help += "; repeat this option to specify a list of values"
        assert flag.help.split() == expected_help.split()
        kinds = {"string": str, "bool": bool, "int": int, "float": float, "string enum": str}
        kind = kinds[flag.parser.flag_type()]
        assert is_repeated or hints[field.name] in (kind, kind | None), field.name


@pytest.mark.parametrize("name", LEAST)
def test_a_command_line_makes_the_same_options_as_python(name):
    values, least = flags_of(name), LEAST[name]
    values(["script", *least])
    arguments = dict(flag.removeprefix("--").split("=") for flag in least if "=" in flag)
    arguments |= {flag.removeprefix("--"): True for flag in least if "=" not in flag}
    expected = OPTION_CLASSES[name](**arguments)
    assert cli.options_from_flags(OPTION_CLASSES[name], values) == expected


def test_arguments_that_are_no_flags_go_to_the_positional_field():
    values, least = flags_of("PretrainingDataOptions"), LEAST["PretrainingDataOptions"]
    rest = values(
        ["script", *least, "--runner=DirectRunner", "--", "--project=x", "--num_workers=9"]
    )
    options_class = OPTION_CLASSES["PretrainingDataOptions"]
    options = cli.options_from_flags(options_class, values, rest[1:])
    assert options.runner_flags == ("--project=x", "--num_workers=9")
    assert options.num_workers == 1


def test_values_of_every_type_arrive():
    values = flags_of("ClassifierOptions")
    least = [flag for flag in LEAST["ClassifierOptions"] if flag != "--do_eval"]
    values(["script", *least, "--do_train", "--nodo_eval", "--do_lower_case=false", "--seed=7"])
    options = cli.options_from_flags(OPTION_CLASSES["ClassifierOptions"], values)
    assert (options.do_train, options.do_eval, options.do_lower_case) == (True, False, False)
    assert (options.seed, options.num_train_epochs, options.best_metric) == (7, 3.0, None)


@pytest.mark.parametrize("name", REFERENCE)
def test_every_flag_of_the_reference_is_there_with_its_default(name):
    values, expected = flags_of(name), REFERENCE[name] | EXCEPTIONS[name]
    assert set(EXCEPTIONS[name]) <= set(REFERENCE[name])
    for flag, default in expected.items():
        found = "required" if is_required(values, flag) else values[flag].default
        assert found == default, flag


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
        return subprocess.run(
            [sys.executable, str(script), *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_a_workflow_that_ends_well_exits_with_0_and_logs_to_standard_error(run_script):
    ended = run_script("--needed=x", "--number", "7", "--flag", "--mode=fancy")
    assert ended.returncode == 0
    expected = "Options(needed='x', number=7, share=0.5, mode='fancy', flag=True)"
    assert ended.stdout.splitlines() == [expected]
    assert ended.stderr == "started\nWARNING: look out\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--needed=x", "stray"], "Unknown argument 'stray'; every option starts with --"),
        (["--needed=x", "--nubmer=3"], "error: Unknown command line flag 'nubmer'. Did you mean:"),
        (["--needed=x", "--number=many"], "error: flag --number=many: "),
        (["--needed=x", "--mode=odd"], "error: flag --mode=odd: "),
        ([], "error: flag --needed=None: "),
        (["--needed=x", "--number=0"], "error: --number: must be 1 or more."),
        (
            ["--needed=x", "--phases=1"],
            "error: Version 3 has no --phases: run one command for each",
        ),
        (["--needed=x", "--noquoted"], "error: Version 3 has no --quoted: "),
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_1(run_script, arguments, message):
    ended = run_script(*arguments)
    assert ended.returncode == 1
    output = ended.stdout + ended.stderr
    assert output.count(message) == 1
    assert "Traceback" not in output


@pytest.mark.weekly_cases("True-0")
@pytest.mark.parametrize("chosen", [None, "0"])
@pytest.mark.parametrize("only_answers", [False, True])
def test_packed_kernels_are_kept_where_no_weight_changes(
    run_script, monkeypatch, only_answers, chosen
):
    name = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"
    monkeypatch.delenv(name, raising=False)
    if chosen is not None:
        monkeypatch.setenv(name, chosen)
    ended = run_script(
        "--needed=x",
        body=f"print(__import__('os').environ.get({name!r}))",
        field=f"only_answers = {only_answers}",  # no annotation: not a flag
    )
    assert ended.stdout.splitlines()[0] == str(chosen or ("1" if only_answers else None))


def test_some_programs_change_no_weight():
    found = {n for n, options in OPTION_CLASSES.items() if getattr(options, "only_answers", False)}
    assert found == {"PredictionOptions"}


@pytest.mark.parametrize(
    "error",
    [
        "ValueError('the cause')",
        "FileNotFoundError(2, 'the cause')",
        "FloatingPointError('the cause')",
        "ImportError('the cause')",
    ],
)
def test_what_a_user_can_mend_is_one_message_and_exit_code_1(run_script, error):
    ended = run_script("--needed=x", body=f"raise {error}")
    assert ended.returncode == 1
    assert ended.stderr.startswith("started\nWARNING: look out\n\nerror: ")
    assert ended.stderr.endswith("the cause\n")
    assert ended.stderr.count("\n") == 4


def test_given_flags_that_the_program_did_not_read_are_named_once(run_script):
    ended = run_script("--needed=x", "--number=7", "--flag", body="options = options.number")
    assert ended.stderr.endswith("WARNING: This run did not use --flag, --needed\n")


def test_an_error_of_tensorflows_file_system_is_the_users_and_its_internal_ones_are_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(tf.errors.OpError) as not_a_folder:
        tf.io.gfile.makedirs(str(tmp_path / "file/folder"))
    with pytest.raises(tf.errors.OpError) as not_there:
        tf.io.gfile.listdir(str(tmp_path / "nowhere"))
    with pytest.raises(tf.errors.OpError) as shapes:
        tf.linalg.matmul(tf.ones([2, 3]), tf.ones([2, 3]))
    assert cli.is_user_error(not_a_folder.value) and cli.is_user_error(not_there.value)
    assert not cli.is_user_error(shapes.value)


def test_a_bug_shows_its_traceback(run_script):
    ended = run_script("--needed=x", body="{}['missing']")
    assert ended.returncode == 1
    assert "KeyError: 'missing'" in ended.stderr and "Traceback" in ended.stderr


def test_a_low_verbosity_hides_information(run_script):
    ended = run_script("--needed=x", "--verbosity=-1")
    assert (ended.returncode, ended.stderr) == (0, "WARNING: look out\n")


def test_debugging_shows_the_traceback_of_every_error(run_script):
    ended = run_script("--needed=x", "--verbosity=1", body="raise ValueError('the cause')")
    assert ended.returncode == 1
    assert "error: the cause" in ended.stderr and "Traceback" in ended.stderr


def test_an_interruption_exits_with_130(run_script):
    ended = run_script("--needed=x", body="raise KeyboardInterrupt")
    assert ended.returncode == 130
    assert ended.stderr.endswith("\nInterrupted.\n")


def test_help_shows_the_flags_of_groups_and_helpfull_all(run_script):
    field = 'rare: int = field(default=3, metadata={"help": "Seldom."})'
    text = run_script("--help", field=field).stdout
    assert "\nData:\n  --needed: What must be given.\n  --number: A whole number. [5]\n" in text
    assert "--[no]flag: Whether." in text and "--rare" not in text
    assert "--rare: Seldom." in run_script("--helpfull", field=field).stdout


@pytest.mark.parametrize("arguments", [(), ("predict", "--help")])
def test_a_reader_that_reads_no_further_is_no_error(arguments):
    """Like `--help | head -1`: the pipe is closed before the text is written."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "bert_tf", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    os.close(writing)
    assert "BrokenPipe" not in ended.stderr
