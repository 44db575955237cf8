"""A run of a program that trains, or of `bert_tf.Trainer`: its start, its model, its training.

    run = start(options, "classification")         # devices, output_dir, weights, tokenizer
    task, splits = read_data(...)                  # the program's own
    run.prepare(task, splits)                      # compares with output_dir; the model
    run.train(splits["train"])                     # records, checkpoints, README.md
    run.outputs(splits["dev"], "eval", 8)          # for an evaluation

A run resumes from the checkpoints in `output_dir`. Otherwise it starts with the weights of
`init_checkpoint`, or with random weights.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.model_files import model_files, write_files
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sidecar import find_config, load_tokenizer
from bert_tf.config import BertConfig
from bert_tf.data.batching import PACKED_FEATURES
from bert_tf.data.parallel import workers_for
from bert_tf.data.records import make_once, naming_damaged_file
from bert_tf.files import check_writable, write_text
from bert_tf.modeling.flops import flops_per_token
from bert_tf.options import OptionError
from bert_tf.pretraining.wordpieces import warn_of_unknown_words
from bert_tf.registry import TYPES
from bert_tf.report.model_card import described_step, write_training_card
from bert_tf.report.page import Command, Section, write_report
from bert_tf.report.run_facts import (
    HASH,
    INITIAL,
    changed_options,
    data_rows,
    resolved_values,
    shown_value,
)
from bert_tf.tasks import evaluation as loop
from bert_tf.tasks.base import Task
from bert_tf.tasks.initial_weights import load_weights, with_init_layers
from bert_tf.tasks.load import load_task, make_task
from bert_tf.tasks.of_checkpoint import align_head
from bert_tf.tasks.options import FineTuningOptions
from bert_tf.tasks.run_folder import (
    RunFolder,
    RunRecord,
    check_output_folder,
    compared_options,
    model_values,
    resume_rules,
)
from bert_tf.tasks.teacher import Teacher, load_teacher
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.best_checkpoint import BestCheckpoint, check_best_metric
from bert_tf.training.checkpoints import folder_lock, list_checkpoints
from bert_tf.training.encoder_parts import freeze, layer_learning_rate_factors
from bert_tf.training.loop import CheckpointHook, EvaluationHook, LogHook, TrainLoop
from bert_tf.training.optimization import OPTIMIZERS
from bert_tf.training.progress import MetricsLog, Speed
from bert_tf.training.schedules import WarmupDecay
from bert_tf.training.strategy import is_chief

logger = logging.getLogger(__name__)

AnyTask = TypeVar("AnyTask", bound=Task)
AnyOptions = TypeVar("AnyOptions", bound=Any)  # with groups `devices`, `training` and `model`
Metrics = Mapping[str, float]
Splits = Mapping[str, Sequence[Any]]

# Examples of each split, and characters of a text, that the check of the vocabulary reads.
_SAMPLED_EXAMPLES, _SAMPLED_LENGTH = 500, 1_000


def start(
    options: Any,
    task_type: str | None = None,
    default_length: int = 128,
    config: BertConfig | None = None,
    attention: str | None = None,
) -> Run[Any, Any]:
    """Resolve the devices, `output_dir`, initial weights and architecture of a run.

    Args:
        task_type: key of `HEADS`. With it also the tokenizer, S, and the task of the weights.
        default_length: S if neither the options nor an earlier training set it.
        config: architecture. Default: that of the flags or of the weights.
        attention: direction of the model. Default: that of the architecture.

    Raises:
        ValueError: there are no weights, or they are for another type of task.
    """
    devices, folder = options.devices.make_strategy(), RunFolder.read(options.training.output_dir)
    path = options.training.init_checkpoint
    checkpoint = read_checkpoint(path) if path else folder.weights
    if checkpoint is None and not options.training.do_train:
        raise OptionError(
            "init_checkpoint", f"give it, or train: output_dir={folder.path} has no checkpoint."
        )
    if config is None:
        config = find_config(options.model.bert_config_file, checkpoint)
    checkpoint, config = with_init_layers(options.training, checkpoint, config)
    if attention is not None:
        config = replace(config, attention_direction=attention)
        if checkpoint is not None and checkpoint.config is not None:
            there = replace(checkpoint.config, attention_direction=attention)
            checkpoint = replace(checkpoint, config=there)
    if task_type is not None and options.fine_tuning.num_bilstm_layers is not None:
        config = replace(config, num_bilstm_layers=options.fine_tuning.num_bilstm_layers)
    length = options.model.max_seq_length
    if length is not None:
        config.check_sequence_length(length)
        default_length = length
    default_length = min(default_length, config.max_position_embeddings)
    run = Run[Any, Any](options, devices, folder, checkpoint, config, default_length)
    if task_type is not None:
        run.trained = trained_task(run, task_type)
        if run.trained is not None and length is None:
            run.max_seq_length = run.trained.max_seq_length
        files = options.model.vocab_file, options.model.do_lower_case
        run.set_tokenizer(load_tokenizer(*files, checkpoint, config))
    return run


def trained_task(run: Run, task_type: str) -> Task | None:
    """Return the task that the model was trained for. A resumed run or an evaluation uses it.

    None for a new model, or if no file states the task.

    Raises:
        ValueError: the weights are for another type of task.
    """
    resumes = run.folder.weights is not None
    if resumes:
        source, task = run.folder.path, run.known
    elif run.options.training.do_train or run.checkpoint is None:
        return None
    else:
        source = run.checkpoint.folder
        task, _ = load_task(run.checkpoint, run.max_seq_length)
    if task is None or task.name == task_type:
        return task
    if not resumes and not HEADS[task_type].variables:
        return None  # it needs no head, so any encoder will do
    raise OptionError(
        "output_dir" if resumes else "init_checkpoint",
        f"{source} contains a model for {task.name}, but this program is for {task_type}. Use "
        + ("another folder." if resumes else "do_train, to train it for this first."),
    )


@dataclass(repr=False, eq=False)
class Run(Generic[AnyTask, AnyOptions]):
    """What `start` has resolved, and the model after `make_model`.

    Args:
        folder: `output_dir`, as an earlier process left it.
        checkpoint: initial weights, None for random ones.
        max_seq_length: S.
        vocabulary, do_lower_case: of the texts; None if unknown.
        learning_rates: see `make_optimizer`.
        program: for the model card, if its flags do not tell it.

    Attributes:
        trained: task that a resumed or evaluated model was trained for; None for a new model, or if no
            file states it.
        tokenizer: of a run that reads texts.
        task: of the model, after `make_model`.
        learned: task of its training, which differs with a teacher.
        output_dir: folder to write into; for a worker that is not the chief, a temporary one.
        record: of the training of the model in `output_dir`.
    """

    options: AnyOptions
    devices: tf.distribute.Strategy
    folder: RunFolder
    checkpoint: PretrainedCheckpoint | None
    config: BertConfig
    max_seq_length: int
    vocabulary: Sequence[str] | None = None
    do_lower_case: bool | None = None
    trained: Any = None
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    program: str | None = None
    tokenizer: FullTokenizer = field(init=False)
    task: AnyTask = field(init=False)
    trainer: TrainLoop = field(init=False)
    output_dir: str = field(init=False)
    record: RunRecord = field(init=False)
    teacher: Teacher | None = field(init=False, default=None)
    learned: Any = field(init=False)
    _outputs: dict[tuple, dict[str, np.ndarray]] = field(init=False, default_factory=dict)

    @functools.cached_property
    def known(self) -> Any:
        """Task of the weights that the run begins with; None if no file states it."""
        if self.folder.weights is None:
            return None if self.checkpoint is None else load_task(self.checkpoint)[0]
        values = self.folder.weights.task
        return None if values is None else make_task(values, self.folder.path)

    def known_labels(self, task_type: str) -> Sequence[str]:
        """Return the labels of the initial weights, in the order of the outputs.

        () without a head of this type, whose key in `checkpoints.heads.HEADS` is `task_type`.
        """
        known = self.known
        return getattr(known, "labels", ()) if known and known.name == task_type else ()

    def set_tokenizer(self, tokenizer: FullTokenizer) -> None:
        self.tokenizer, self.do_lower_case = tokenizer, tokenizer.do_lower_case
        self.vocabulary = list(tokenizer.vocab)

    # ------------------------------------------------------------------------------------- the model

    def prepare(
        self,
        task: AnyTask,
        splits: Splits,
        num_examples: int | None = None,
        label_names: Sequence[str] = (),
        metric_keys: Sequence[str] | None = None,
    ) -> None:
        """Make the model of a fine-tuning, for as many steps as its epochs have.

        Args:
            splits: name -> examples; "train" only for a training.
            num_examples: examples or windows of an epoch. Default: the examples of "train".
            label_names: second names of the labels of `task`, in their order.
            metric_keys: keys of the metrics; default: of the task, None if unknown before an evaluation.
        """
        options: Any = self.options
        check_best_metric(options.training.best_metric, metric_keys or task.metric_keys)
        num_steps = num_warmup_steps = 0
        if options.training.do_train:
            num_examples = num_examples or len(splits["train"])
            num_steps, num_warmup_steps = count_steps(num_examples, options)
        if is_chief(self.devices):
            warn_of_unknown_words(_sample_texts(task, splits), self.tokenizer)
        self.make_model(task, num_steps, num_warmup_steps, label_names, options.fine_tuning)
        self._num_examples = num_examples

    def make_model(
        self,
        task: AnyTask,
        num_train_steps: int = 0,
        num_warmup_steps: int = 0,
        label_names: Sequence[str] = (),
        fine_tuning: FineTuningOptions | None = None,
        init_optimizer: bool = False,
        resolved: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the model of a task, with its weights in place.

        Args:
            num_train_steps: all steps of the training; 0 for a model that is only evaluated.
            label_names: second names of the labels of `task`, in their order.
            fine_tuning: with the teacher whose outputs the model learns, if any.
            init_optimizer: also read moments and step of `init_checkpoint`.
            resolved: name -> value of options whose default depends on the data.

        Raises:
            ValueError: the model in `output_dir` is another one, or the folder has other files that the
                run would overwrite. The weights do not fit, or an evaluation has untrained weights.
        """
        options: Any = self.options
        self.config.check_sequence_length(task.max_seq_length, task.min_seq_length)
        self.task, self.num_train_steps = task, num_train_steps
        self._values = {**compared_options(options), **(resolved or {})}
        if "" in self.learning_rates:
            self._values["learning_rate"] = self.learning_rates[""]
        self._changes = self.changes_since(self.folder, self.config, self.vocabulary)
        self.record = self.folder.record
        if is_chief(self.devices):
            check_output_folder(self.folder.path)
        self.checkpoint = self._with_labels_of(task, label_names)
        self.best = None
        if num_train_steps and options.training.evaluate_steps:
            metric = options.training.best_metric or task.best_metric
            self.best = BestCheckpoint(
                self.folder.path,
                metric,
                lower_is_better=metric in task.lower_is_better,
                is_new_run=self.folder.weights is None,
                patience=options.training.early_stopping,
            )
        is_over = self.folder.step >= num_train_steps or (self.best and self.best.is_over)
        self.learned = task
        if fine_tuning is not None and fine_tuning.teacher and not is_over:
            learner: Any = task  # an `ExampleTask`, as of all programs with a teacher
            own = self.tokenizer, self.devices, options.devices.policy
            self.teacher = load_teacher(fine_tuning, learner, *own, label_names)
            self.learned = self.teacher.student
        steps = num_train_steps, num_warmup_steps
        self.trainer = make_trainer(self, self.learned, *steps, init_optimizer)
        logger.info("%s", loop.describe_model(self.trainer.model))
        self.output_dir = self.folder.path if self.trainer.is_chief else _scratch_folder()

    def changes_since(
        self,
        folder: RunFolder,
        config: BertConfig | None = None,
        vocabulary: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Return name -> value in a folder of what this run changes; see `RunFolder.changes`."""
        case = None if vocabulary is None else self.do_lower_case
        values = model_values(self.task.values(), config, vocabulary, case)
        rules = {"steps": "warn", **resume_rules(self.options)}
        if self.num_train_steps:
            values |= self._values
            if "num_train_steps" not in rules:
                values["steps"] = self.num_train_steps
        return folder.changes(values, rules)

    def _with_labels_of(
        self, task: AnyTask, label_names: Sequence[str]
    ) -> PretrainedCheckpoint | None:
        """Return the initial weights with a classifier's rows in the order of the task's labels."""
        resumes, own = self.folder.weights is not None, TYPES.get(task.name)
        if self.checkpoint is None or resumes or not getattr(task, "labels", ()):
            return self.checkpoint
        if own is None or own.task is not type(task):
            return self.checkpoint  # a custom task.json may have arguments that ours do not take
        will_train = self.options.training.do_train
        return align_head(self.checkpoint, self.known, task, label_names, will_train=will_train)

    # ---------------------------------------------------------------------------------- the training

    def train(
        self,
        examples: Sequence[Any],
        evaluate: Callable[[], Metrics] | None = None,
        name: str = "examples",
    ) -> None:
        """Write the records of the examples, with the outputs of a teacher, and train on them.

        Args:
            evaluate: see `train_on`.
            name: of the examples, in the log.
        """
        self._write_model()  # before the records, so that a full disk is found early
        path = self.records(examples, "train")
        if self.teacher is not None:
            size = self.options.training.train_batch_size
            path = self.teacher.write_records(path, examples, self.tokenizer, size)
            self.teacher = None  # frees its weights
        shown, num_steps = f"{len(examples)} {name}", self.num_train_steps
        if self._num_examples != len(examples):
            shown += f" in {self._num_examples} windows"
        logger.info("%s, %d step%s", shown, num_steps, "s" * (num_steps > 1))
        labels = getattr(self.task, "labels", ())
        if labels and self.trainer.step < num_steps:
            write_text(self.path("labels.txt"), "".join(f"{label}\n" for label in labels))
        self.train_on([path], evaluate)

    def train_on(
        self,
        data: Sequence[str] | tf.data.Dataset,
        evaluate: Callable[[], Metrics] | None = None,
        lengths: str = "bucketed",
        stop_step: int | None = None,
    ) -> Metrics | None:
        """Train from the trainer's step up to `num_train_steps`, and write README.md.

        Args:
            data: record files; or batches of `task.record_features`, repeated when they end. A resumed
                run skips those it has seen, so their order must be the same.
            evaluate: called every `evaluate_steps` of the options, if that is set.
            lengths: one of `loop.LENGTHS`. Becomes "full" under a strategy that needs static shapes, and
                "packed" with `pack_sequences`.
            stop_step: last step, with the learning rates of `num_train_steps`. Default: that.

        Returns:
            Metrics of an evaluation at the last step, or None without one.

        Raises:
            ValueError: there are fewer examples than one batch needs, or there is nothing to evaluate
                every `evaluate_steps`.
        """
        training, trainer, task = self.options.training, self.trainer, self.learned
        if training.evaluate_steps and evaluate is None:
            raise OptionError("evaluate_steps", "needs an evaluation: give do_eval or `evaluate`.")
        files = [] if isinstance(data, tf.data.Dataset) else data
        size = (
            loop.batch_size(data)
            if isinstance(data, tf.data.Dataset)
            else training.train_batch_size
        )
        stream = loop.stream(trainer, task, data, training, size, lengths)
        logger.info("***** Running training *****")
        logger.info("  %s", loop.describe(trainer, self.options, size))
        last_step, first_step = stop_step or self.num_train_steps, trainer.step
        if self.best is not None and self.best.is_over:
            logger.info("Training ended early, at step %d", first_step)
            last_step = min(last_step, first_step)
        is_over = first_step >= last_step
        if trainer.is_chief and not is_over:
            self._write_record(files, size)
        self._write_model()
        log = MetricsLog(self.output_dir, training.tensorboard)
        evaluation = EvaluationHook(log, evaluate, training.evaluate_steps, self.best)
        saving = training.save_checkpoints_steps, training.keep_checkpoint_max
        flops = flops_per_token(
            trainer.model.config, task.max_seq_length, task.predictions_per_token
        )
        with naming_damaged_file(files, task.id_limits(trainer.model.config)):
            trainer.train(
                stream,
                last_step,
                [
                    LogHook(log, Speed(size, flops)),
                    CheckpointHook(self.output_dir, *saving),
                    evaluation,
                ],
                max_steps_per_call=training.iterations_per_loop,
                batch_size=size,
            )
        if trainer.is_chief and (not is_over or described_step(self.output_dir) != trainer.step):
            parameters = loop.num_parameters(trainer.model)
            write_training_card(
                self.output_dir, self.record, self.program, self.task, parameters, trainer.step
            )
        return evaluation.finish(trainer)

    def _write_model(self) -> None:
        """Write the files that describe the model, if there are steps to train."""
        if self.trainer.step < self.num_train_steps:
            texts = model_files(self.config, self.task, self.vocabulary, self.do_lower_case)
            write_files(self.output_dir, texts)

    def _write_record(self, files: Sequence[str], batch_size: int) -> None:
        """Write training.json."""
        options, before = self.options, self.folder.record
        flags = changed_options(options)
        data = data_rows(flags, files)
        if before.data:
            none = [(name, "none") for name, _ in data if name != HASH]
            folder = replace(self.folder, record=replace(before, data=[*none, *before.data]))
            rows = dict(data)
            folder.changes(rows, dict.fromkeys(rows, "warn"))
        if not files and batch_size != options.training.train_batch_size:
            flags["train_batch_size"] = batch_size
        if options.training.init_checkpoint:
            # An absolute path is valid in every working folder.
            path = options.training.init_checkpoint
            flags["init_checkpoint"] = path if "://" in path else os.path.abspath(path)
        if before.flags:
            flags = {name: value for name, value in flags.items() if name not in INITIAL}
            flags |= {name: before.flags[name] for name in INITIAL if name in before.flags}
        changes = [f"{n} {shown_value(v)}" for n, v in self._changes.items() if n in self._values]
        text = f"Resumed at step {self.folder.step}; before: {', '.join(changes)}."
        values = dict(self._values)
        if not files:  # the size of given batches is not an option to compare
            values.pop("train_batch_size", None)
        used = resolved_values(batch_size, self.trainer.optimizer.schedule, options.devices.policy)
        resumed = [*before.resumed, *([text] if changes else [])]
        self.record = RunRecord(values, self.num_train_steps, flags, used, data, resumed)
        self.record.save(self.output_dir)

    # ---------------------------------------------------------------- evaluation and prediction

    def path(self, name: str) -> str:
        return os.path.join(self.output_dir, name)

    def records(self, examples: Sequence[Any], name: str, task: Any = None) -> str:
        """Return the path of `<name>.tf_record`. Write it unless it exists.

        Args:
            task: `ExampleTask` that writes the records; default: the task of the run.
        """
        task = task or self.task
        path, key = self.path(f"{name}.tf_record"), task.records_key(examples, self.tokenizer)
        workers = workers_for(task.num_sequences(examples))
        make_once(
            path, key, lambda path: task.write_records(examples, self.tokenizer, path, workers)
        )
        return path

    def outputs(
        self,
        examples: Sequence[Any],
        name: str,
        batch_size: int,
        task: Any = None,
        label: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the outputs that `task.eval_outputs` keeps, in the order of the examples.

        With `evaluate_steps`, outputs of the current step are kept, because the last evaluation during
        the training and the final one use the same weights.

        Args:
            name: of the records; with one task it always means the same examples.
            task: of the records; default: the task of the run.
            label: of the progress; default: `name`.
        """
        task = task or self.task
        key = (self.trainer.step, name, task, batch_size)
        if key in self._outputs:
            return dict(self._outputs[key])
        files = [self.records(examples, name, task)]
        outputs = loop.run_model(
            self.trainer, task, files, batch_size, label=label or name, lengths="bucketed"
        )
        if self.best is not None:
            same_step = {each: v for each, v in self._outputs.items() if each[0] == key[0]}
            self._outputs = {**same_step, key: outputs}
        return dict(outputs)

    def write_results(self, name: str, metrics: Metrics) -> dict[str, float]:
        """Write and return the step and the metrics as `<name>_results.txt`.

        `eval_loss` becomes `test_loss` for "test".
        """
        renamed = {key.replace("eval_", f"{name}_", 1): value for key, value in metrics.items()}
        results = {"global_step": self.trainer.step, **renamed}
        title = f"{name.capitalize()} results"
        loop.write_results(self.path(f"{name}_results.txt"), results, title)
        return results

    def write_report(
        self, program: str, title: str, results: Metrics, sections: Sequence[Section] = ()
    ) -> None:
        """Write `report.html`."""
        path, command = self.path("report.html"), self.command(program)
        write_report(path, title, results, sections, command)

    def command(self, program: str) -> Command:
        """Return the command of the run, for report.html."""
        return Command(program, self.options, self.trainer.checkpoint, self.record.flags)


def _sample_texts(task: Any, splits: Splits) -> Iterator[str]:
    """Yield the texts of the first examples of each split, truncated."""
    for examples in splits.values():
        for example in examples[:_SAMPLED_EXAMPLES]:
            yield from (text[:_SAMPLED_LENGTH] for text in task.texts(example))


def count_steps(num_examples: int, options: Any) -> tuple[int, int]:
    """Return the numbers of training steps and of warm-up steps.

    Raises:
        ValueError: there are too few examples for one step.
    """
    num_epochs = options.fine_tuning.num_train_epochs
    num_train_steps = int(num_examples / options.training.train_batch_size * num_epochs)
    if num_train_steps == 0:
        raise OptionError(
            "train_batch_size",
            f"{num_examples} examples make no step in {num_epochs} epochs. Lower it.",
        )
    return num_train_steps, int(num_train_steps * options.fine_tuning.warmup_proportion)


def make_trainer(
    run: Run,
    task: Task,
    num_train_steps: int = 0,
    num_warmup_steps: int = 0,
    init_optimizer: bool = False,
) -> TrainLoop:
    """Return a TrainLoop with its weights in place.

    Args:
        num_train_steps: 0 for a model that is only evaluated.

    Raises:
        ValueError: the weights do not fit, an evaluation has untrained weights, a layer to freeze does
            not exist, or the moments to carry over are for another task or other labels.
    """
    options: Any = run.options
    training, devices, num_layers = options.training, run.devices, run.config.num_hidden_layers
    keras.utils.set_random_seed(training.seed)
    with devices.scope():
        config = replace(run.config, **training.dropouts)
        model = task.build_model(config, dtype=options.devices.policy)
        optimizer = None
        if num_train_steps:
            frozen = freeze(model, training.freeze or "", num_layers)
            if frozen:
                logger.info("%d of %d variables are frozen", len(frozen), len(model.weights))
            steps = num_train_steps, num_warmup_steps
            optimizer = make_optimizer(options, num_layers, *steps, run.learning_rates)
    if num_train_steps and is_chief(devices):  # other workers write elsewhere
        check_writable(training.output_dir)
        with folder_lock(training.output_dir):
            pass  # detect another run in the folder before replacing files
    trainer = TrainLoop(
        model,
        task.losses,
        strategy=devices,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        seed=training.seed,
        jit_compile=training.jit_compile,
    )
    if run.folder.weights is not None:
        if trainer.resume(run.folder.path) is None:  # maybe a newer one than `start` found
            raise OptionError("output_dir", f"the checkpoints of {run.folder.path} are gone.")
        logger.info("Weights: %s", trainer.checkpoint)
        return trainer
    if num_train_steps:
        _warn_of_unnamed_checkpoints(training.output_dir)
    if num_train_steps and run.checkpoint and init_optimizer:
        _carry_over(run, trainer, run.checkpoint.folder)
    elif run.checkpoint is not None:
        load_weights(model, run.checkpoint, task, will_train=bool(num_train_steps))
    else:
        logger.info("The weights are random")
    return trainer


def _warn_of_unnamed_checkpoints(folder: str) -> None:
    """Warn that a new training starts in a folder whose file `checkpoint` is missing or damaged."""
    if prefixes := list_checkpoints(folder):
        logger.warning(
            "The training starts anew and will remove %s, because the file `checkpoint` is missing or "
            'damaged. To resume, stop and write the line model_checkpoint_path: "%s" into it.',
            *(prefixes[-1], os.path.basename(prefixes[-1])),
        )


def _carry_over(run: Run, trainer: TrainLoop, folder: str) -> None:
    """Load the weights, moments and step of another run, of its latest or a named checkpoint."""
    source = str(run.options.training.init_checkpoint)
    run.changes_since(RunFolder.read(folder))
    if trainer.resume(source) is None:
        raise OptionError("init_optimizer", f"init_checkpoint={source} has no checkpoint of a run.")
    trainer.checkpoint = None  # this run has none yet
    logger.info(
        "The optimizer state is carried over; checkpoints are written to %s", run.folder.path
    )


def make_optimizer(
    options: Any,
    num_hidden_layers: int,
    num_train_steps: int,
    num_warmup_steps: int,
    learning_rates: Mapping[str, float] = MappingProxyType({}),
) -> keras.optimizers.Optimizer:
    """Return the optimizer of the flags with its schedule. Call it under `strategy.scope()`.

    Args:
        learning_rates: regular expression of paths -> peak learning rate of those variables; "": of all
            others, instead of `learning_rate`.
    """
    training, policy = options.training, options.devices.policy
    rate = learning_rates.get("") or training.learning_rate
    schedule = WarmupDecay(rate, num_train_steps, num_warmup_steps, training.lr_schedule)
    settings: dict[str, Any] = {}
    if training.optimizer == "muon" and policy == "mixed_bfloat16":
        settings["product_dtype"] = "bfloat16"
    factors = {path: own / rate for path, own in learning_rates.items() if path}
    if training.layer_lr_decay < 1:
        factors |= layer_learning_rate_factors(num_hidden_layers, training.layer_lr_decay)
    return OPTIMIZERS[training.optimizer](
        schedule,
        weight_decay_rate=training.weight_decay_rate,
        learning_rate_factors=factors,
        skip_nonfinite=policy == "mixed_float16",
        **settings,
    )


@functools.cache
def _scratch_folder() -> str:
    folder = tempfile.mkdtemp(prefix="bert_tf-worker-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
