"""run_pretraining: from TFRecords to a pre-trained encoder.

Source: google-research/bert, run_pretraining.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from bert_tf.checkpoints import sidecar
from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, file_beside
from bert_tf.checkpoints.hub import SCHEME
from bert_tf.config import ATTENTION_DIRECTIONS, BertConfig
from bert_tf.data.records import check_records
from bert_tf.options import (
    ModelOptions,
    OptionError,
    changes,
    option,
    require_files,
)
from bert_tf.pretraining.manifest import (
    RecordSet,
    check_record_sets,
    check_vocabulary_of_records,
    choose_objective,
    expand_record_files,
    find_case_of_records,
    read_record_set,
)
from bert_tf.pretraining.masking_ops import DynamicMasker
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.pretraining.settings import MaskingOptions, most_predictions
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.batches import RecordFiles, run_model
from bert_tf.tasks.load import load_task
from bert_tf.tasks.run import Plan, Run, start
from bert_tf.tasks.setup import Setup, resolve
from bert_tf.training.best_checkpoint import check_best_metric
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)

_NUM_WARMUP_STEPS = 10_000  # the reference's default


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions:
    """The flags of run_pretraining.

    Records without masks (`create_pretraining_data --masking=none`) are detected and get new masks in
    each epoch, by --masked_lm_prob, --do_whole_word_mask, --mask_token_prob and --random_token_prob. The
    masks of an evaluation depend only on --eval_batch_size.
    """

    masks: MaskingOptions = changes(
        max_predictions_per_seq={
            "help": "Most masked tokens per example. Default: that of records with masks. For records "
            "without masks --max_seq_length times --masked_lm_prob, rounded up.",
            "on_resume": "warn",
        },
        max_ngram_size=None,
        segmented_text=None,
    )
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions = changes(
        vocab_file={
            "help": "Vocabulary of the records, copied into --output_dir so that the folder works "
            "alone. Default: the one next to --bert_config_file or --init_checkpoint, if any. Required "
            "for records without masks."
        },
        do_lower_case={
            "help": "The records are lower-cased; stored in --output_dir. Default: by the manifest of "
            "the records, else by the checkpoint, else by the vocabulary."
        },
        max_seq_length={
            "help": "Tokens per example, as in the records.",
            "default": 128,
            "min": MIN_SEQ_LENGTH,
        },
    )
    input_file: str = option("TFRecord files to train on; comma list of globs.", group="Data")
    eval_file: str | None = option(
        "Held-out TFRecord files to evaluate on. Default: --input_file, as in the reference, which "
        "measures memory of the training data and not quality.",
        group="Data",
        default=None,
    )
    attention: str | None = option(
        "left_to_right: a token sees itself and those before it, as in the paper's ablation. Stored in "
        "the bert_config.json of --output_dir. Default: the value in --bert_config_file.",
        default=None,
        choices=ATTENTION_DIRECTIONS,
    )
    objective: str | None = option(
        "mlm_nsp: masked words and next sentence; mlm: only masked words; mlm_sop: masked words and the "
        "order of two segments. Default: the objective of the records; without --do_train that of the "
        "model.",
        group="Masking",
        default=None,
        choices=OBJECTIVES,
        on_resume="warn",
    )
    num_train_steps: int = option(
        "Optimizer steps.", group="Training", default=100000, min=1, on_resume="warn"
    )
    stop_step: int | None = option(
        "End at this step, with the learning rates of all training steps. For a first phase that "
        "--init_optimizer continues.",
        default=None,
        min=1,
    )
    init_optimizer: bool = option(
        "Also read the optimizer's moments and the step from --init_checkpoint, the --output_dir of a "
        "run or a model.ckpt-N in it. For a second phase that continues the first one, such as longer "
        "sequences or the decay of --lr_schedule=warmup_stable_decay.",
        default=False,
    )
    num_warmup_steps: int = option(
        "Steps until the full learning rate. The default becomes a tenth of --num_train_steps if the "
        "training is shorter than it.",
        group="Training",
        default=_NUM_WARMUP_STEPS,
        on_resume="warn",
    )
    max_eval_steps: int = option("Most batches to evaluate on.", default=100, min=1)

    def __post_init__(self) -> None:
        require_files(self, dict.fromkeys(("do_train", "do_eval"), "input_file"))
        if (self.stop_step or 0) > self.num_train_steps:
            raise OptionError(
                "stop_step", f"{self.stop_step} is above num_train_steps={self.num_train_steps}."
            )
        if self.init_optimizer and (self.training.init_checkpoint or SCHEME).startswith(SCHEME):
            raise OptionError("init_optimizer", "needs init_checkpoint, the output_dir of a run.")
        if self.training.do_train and not (
            0 <= self.num_warmup_steps <= self.num_train_steps
            or self.num_warmup_steps == _NUM_WARMUP_STEPS
        ):
            raise OptionError(
                "num_warmup_steps",
                f"must be from 0 to num_train_steps={self.num_train_steps}, but is "
                f"{self.num_warmup_steps}. A tenth of it is usual.",
            )


PretrainingRun = Run[PretrainingTask, PretrainingOptions]


def _num_warmup_steps(options: PretrainingOptions) -> int:
    """Return `num_warmup_steps`; a tenth of the steps if the training is shorter than the default."""
    if not options.training.do_train or options.num_warmup_steps <= options.num_train_steps:
        return options.num_warmup_steps
    return options.num_train_steps // 10


def run_pretraining(options: PretrainingOptions) -> dict[str, float]:
    """Train and evaluate. Return the metrics of the evaluation, if any.

    Write `model.ckpt-N`, `metrics.jsonl`, `eval_results.txt`, `report.html`, `README.md` (the model
    card) and the files that model_files.py lists.
    """
    training = options.training
    setup, record_sets, tasks = read_data(resolve(options, attention=options.attention))
    task = tasks["train" if training.do_train else "eval"]
    plan = Plan(
        options.num_train_steps if training.do_train else 0,
        _num_warmup_steps(options),
        options.stop_step,
        init_optimizer=options.init_optimizer,
        resolved={
            "objective": task.objective,
            "max_predictions_per_seq": task.max_predictions_per_seq,
        },
    )
    run: PretrainingRun = start(setup, task, plan)

    def evaluate_now() -> dict[str, float]:
        results = evaluate(run, tasks["eval"], record_sets["eval"].files)
        write_page(run, results)
        return results

    results: Mapping[str, float] | None = None
    first_step = run.trainer.step
    if training.do_train:
        metrics = evaluate_now if training.do_eval else None
        results = run.train_on(RecordFiles(record_sets["train"].files), metrics)
    if not training.do_eval:
        if run.trainer.step > first_step or not tf.io.gfile.exists(run.path("report.html")):
            write_page(run, {"global_step": run.trainer.step})
        return {}
    results = run.write_results("eval", results or evaluate_now())
    write_page(run, results)
    return results


def read_data(
    setup: Setup,
) -> tuple[Setup, dict[str, RecordSet], dict[str, PretrainingTask]]:
    """Return the setup with vocabulary and case of the records, the records and the tasks.

    The records and tasks are those of "train" and "eval" that the options need.

    Raises:
        ValueError: the records do not fit the options, the model or the devices.
    """
    options, config, record_sets = setup.options, setup.config, {}
    vocab_file, tokens = find_vocabulary(options.model, setup.checkpoint)
    sidecar.compare_vocabularies(vocab_file, setup.checkpoint)
    needed = {"train": options.training.do_train, "eval": options.training.do_eval}
    for name in (name for name, is_needed in needed.items() if is_needed):
        given = options.eval_file if name == "eval" else None
        files = expand_record_files(given or options.input_file)
        record_sets[name] = read_record_set(files, setup.max_seq_length)
        if tokens is not None:
            check_vocabulary_of_records(record_sets[name], tokens, vocab_file)
    if tokens is not None:
        vocab = {token: index for index, token in enumerate(tokens)}
        sidecar.check_vocabulary(vocab, config, vocab_file or "of the checkpoint")
    trained = None if options.training.do_train else trained_objective(setup.checkpoint)
    tasks = make_tasks(options, record_sets, tokens, setup.max_seq_length, trained)
    if options.training.do_eval:
        check_best_metric(options.training.best_metric, tasks["eval"].metric_keys)
    for name, task in tasks.items():
        found = record_sets[name]
        check_records(found.files, task.record_features, task.id_limits(config))
        check_record_sets(found.files, set_limits(config, task, found.is_masked))
    if options.training.do_train:
        RecordFiles(record_sets["train"].files).check(options.training, setup.devices)
    logger.info("The objective is %s", next(iter(tasks.values())).objective)
    for name, record_set in record_sets.items():
        masked = f"are masked while {'training' if name == 'train' else 'evaluating'}"
        logger.info("The %s records %s", name, "have masks" if record_set.is_masked else masked)
    case = sidecar.find_case(options.model.do_lower_case, setup.checkpoint, None, vocab_file)
    case = find_case_of_records(list(record_sets.values()), case)
    case = sidecar.find_case(case, None, tokens)
    return replace(setup, vocabulary=tokens, do_lower_case=case), record_sets, tasks


def write_page(run: PretrainingRun, results: Mapping[str, float]) -> None:
    """Write `report.html`."""
    run.write_report("run_pretraining", f"run_pretraining on {run.options.input_file}", results)


def make_tasks(
    options: PretrainingOptions,
    record_sets: Mapping[str, RecordSet],
    tokens: Sequence[str] | None,
    max_seq_length: int,
    trained: str | None = None,
) -> dict[str, PretrainingTask]:
    """Return a task for each set of records, with one objective. Records without masks get a masker.

    Args:
        tokens: the vocabulary, which such records need.
        trained: objective of the model that is evaluated, if known.

    Raises:
        ValueError: records contradict --objective or each other, or the vocabulary is missing.
    """
    objective = choose_objective(options.objective, list(record_sets.values()), trained)
    tasks = {}
    for name, record_set in record_sets.items():
        masker, most = None, options.masks.max_predictions_per_seq
        if record_set.is_masked:
            most = most or record_set.max_predictions_per_seq
        elif tokens is None:
            raise OptionError("vocab_file", f"needed to mask the records of {record_set.files[0]}.")
        else:
            most = most or most_predictions(max_seq_length, options.masks.masked_lm_prob)
            vocab = {token: index for index, token in enumerate(tokens)}
            masker = DynamicMasker(vocab, options.masks, most)
        tasks[name] = PretrainingTask(max_seq_length, most, objective, masker)
    return tasks


def trained_objective(checkpoint: PretrainedCheckpoint | None) -> str | None:
    """Return the objective of a bert_tf model, None if the files next to it do not state it."""
    if checkpoint is None or checkpoint.task is None:
        return None
    task, _ = load_task(checkpoint)
    return task.objective if isinstance(task, PretrainingTask) else None


_LOGGED = (
    *("masked_lm_loss", "masked_lm_perplexity", "masked_lm_accuracy"),
    "next_sentence_accuracy",
)


def evaluate(run: PretrainingRun, task: PretrainingTask, files: Sequence[str]) -> dict[str, float]:
    """Return and log the metrics of the current model."""
    options, step = run.options, run.trainer.step
    size, most = options.training.eval_batch_size, options.max_eval_steps
    kept = run_model(run.trainer, task, RecordFiles(files), size, max_batches=most)
    results = {"global_step": step, **task.metrics(kept)}
    line = ", ".join(f"{key} {results[key]:.3f}" for key in _LOGGED if key in results)
    data = "" if options.eval_file else " (of the training records; eval_file names held-out ones)"
    logger.info("step %d: %s%s", step, line, data)
    return results


def set_limits(
    config: BertConfig, task: PretrainingTask, is_masked: bool
) -> dict[str, tuple[str, int]]:
    """Return name -> (description, value) of the settings that the manifest must match."""
    names = ["max_seq_length", *(["max_predictions_per_seq"] if is_masked else [])]
    limits = {name: (name, getattr(task, name)) for name in names}
    return {"vocab_size": ("`vocab_size` of the model", config.vocab_size), **limits}


def find_vocabulary(
    model: ModelOptions, checkpoint: PretrainedCheckpoint | None
) -> tuple[str | None, Sequence[str] | None]:
    """Return the file of the vocabulary and its tokens, None for what is unknown."""
    vocab_file = model.vocab_file
    if not vocab_file and model.bert_config_file:
        vocab_file = file_beside(os.path.dirname(model.bert_config_file), "vocab.txt")
    if not vocab_file and checkpoint is not None:
        vocab_file = checkpoint.vocab_file
    return vocab_file, sidecar.find_vocabulary(vocab_file, checkpoint)
