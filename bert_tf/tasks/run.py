"""A run of a program that trains, or of `bert_tf.Trainer`: its model, its training, its results.

    setup = resolve(options, "classification")      # devices, output_dir, weights, tokenizer
    task, splits = read_data(...)                   # the program's own
    run = start_fine_tuning(setup, task, splits)    # compares with output_dir; the model
    run.train(splits["train"])                      # records, checkpoints, README.md
    run.outputs(splits["dev"], "eval", 8)           # for an evaluation

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import keras
import numpy as np

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import task_values
from bert_tf.checkpoints.labels import align_labels
from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.data.batching import PACKED_FEATURES
from bert_tf.data.parallel import workers_for
from bert_tf.data.records import explain_read_errors, make_once
from bert_tf.files import write_text
from bert_tf.modeling.bert import flops_per_token
from bert_tf.options import OptionError
from bert_tf.report.model_card import (
    described_step,
    model_facts,
    write_card,
    write_training_card,
)
from bert_tf.report.page import Section, write_report
from bert_tf.tasks.base import ExampleTask, Task
from bert_tf.tasks.batches import RecordFiles, Source, run_model
from bert_tf.tasks.distillation import Teacher, load_teacher
from bert_tf.tasks.load import load_weights
from bert_tf.tasks.run_folder import (
    RunFolder,
    RunRecord,
    check_output_folder,
    compared_options,
    describe_data,
    model_values,
)
from bert_tf.tasks.setup import Setup
from bert_tf.tokenization import FullTokenizer
from bert_tf.training import strategy
from bert_tf.training.best_checkpoint import BestCheckpoint, check_best_metric
from bert_tf.training.checkpoints import folder_lock, list_checkpoints
from bert_tf.training.loop import CheckpointHook, EvaluationHook, LogHook, TrainLoop
from bert_tf.training.optimizers import OPTIMIZERS, freeze, layer_learning_rate_factors
from bert_tf.training.options import TrainingOptions
from bert_tf.training.progress import MetricsLog
from bert_tf.training.schedules import WarmupDecay

logger = logging.getLogger(__name__)

AnyTask = TypeVar("AnyTask", bound=Task)
AnyOptions = TypeVar("AnyOptions", bound=Any)
Metrics = Mapping[str, float]
Splits = Mapping[str, Sequence[Any]]

# Examples of each split, and characters of a text, that the check of the vocabulary reads.
_SAMPLED_EXAMPLES, _SAMPLED_LENGTH = 500, 1_000


@dataclass(frozen=True)
class Plan:
    """The steps of a training, and what a program decides of it beside the flags.

    Args:
        num_train_steps: all steps; 0 for a model that is only evaluated.
        stop_step: last step, with the learning rates of `num_train_steps`. Default: that.
        learning_rates: regular expression of paths -> peak learning rate of those variables; "": of all
            others, instead of `learning_rate`.
        init_optimizer: also read moments and step of `init_checkpoint`.
        resolved: name -> value of options whose default depends on the data.
        data: rows of the data in the model card, name and text. Without one named `COUNT` the records
            are counted.
    """

    num_train_steps: int = 0
    num_warmup_steps: int = 0
    stop_step: int | None = None
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    init_optimizer: bool = False
    resolved: Mapping[str, Any] = field(default_factory=dict)
    data: Sequence[Any] = ()

    @property
    def last_step(self) -> int:
        return min(self.stop_step or self.num_train_steps, self.num_train_steps)

    @property
    def resolved_options(self) -> dict[str, Any]:
        """Name -> value of the options that the program decides."""
        own = {"learning_rate": self.learning_rates[""]} if "" in self.learning_rates else {}
        return {**self.resolved, **own}


def start_fine_tuning(
    setup: Setup[AnyOptions],
    task: AnyTask,
    splits: Splits,
    num_examples: int | None = None,
    *,
    label_names: Sequence[str] = (),
    metric_keys: Sequence[str] | None = None,
    learning_rates: Mapping[str, float] = MappingProxyType({}),
    program: str | None = None,
) -> Run[AnyTask, AnyOptions]:
    """Start a run of as many steps as its epochs have.

    Args:
        task: an `ExampleTask`.
        splits: name -> examples; "train" only for a training.
        num_examples: examples or windows of an epoch. Default: the examples of "train".
        metric_keys: keys of the metrics; default: of the task, None if unknown before an evaluation.
        label_names, learning_rates, program: see `start` and `Plan`.
    """
    options, example_task = setup.options, cast(ExampleTask, task)
    check_best_metric(options.training.best_metric, metric_keys or task.metric_keys)
    plan = Plan(learning_rates=learning_rates)
    if options.training.do_train:
        count = len(splits["train"])
        size, num_epochs = options.training.train_batch_size, options.fine_tuning.num_train_epochs
        steps = int((num_examples or count) / size * num_epochs)
        if steps == 0:
            text = (
                f"{num_examples or count} examples make no step in {num_epochs} epochs. Lower it."
            )
            raise OptionError("train_batch_size", text)
        warmup_steps = int(steps * options.fine_tuning.warmup_proportion)
        plan = replace(plan, num_train_steps=steps, num_warmup_steps=warmup_steps)
        windows = f" in {num_examples} windows" if num_examples not in (None, count) else ""
        logger.info("%d examples%s, %d step%s", count, windows, steps, "s" * (steps > 1))
    if strategy.is_chief(setup.devices):
        examples = (e for rows in splits.values() for e in rows[:_SAMPLED_EXAMPLES])
        texts = (text[:_SAMPLED_LENGTH] for e in examples for text in example_task.texts(e))
        warn_of_unknown_words(texts, setup.tokenizer)
    return start(setup, task, plan, label_names, program)


def start(
    setup: Setup[AnyOptions],
    task: AnyTask,
    plan: Plan = Plan(),
    label_names: Sequence[str] = (),
    program: str | None = None,
) -> Run[AnyTask, AnyOptions]:
    """Compare a run with `output_dir`, and make its model with the weights in place.

    Args:
        label_names: second names of the labels of `task`, in their order.
        program: for the model card, if its flags do not tell it.

    Raises:
        ValueError: the model in `output_dir` is another one, or the folder has other files that the run
            would overwrite. The weights do not fit, or an evaluation has untrained weights.
    """
    options, folder = setup.options, setup.folder
    setup.config.check_sequence_length(task.max_seq_length, task.min_seq_length)
    case = None if setup.vocabulary is None else setup.do_lower_case
    model = model_values(task.values(), setup.config, setup.vocabulary, case)
    values = compared_options(options, plan.resolved_options)
    changes = folder.compare(model, options, values, plan.num_train_steps)
    if strategy.is_chief(setup.devices):
        check_output_folder(folder.path)
    checkpoint = _align_labels(setup, task, label_names)
    best = None
    if plan.num_train_steps and options.training.evaluate_steps:
        metric = options.training.best_metric or task.best_metric
        best = BestCheckpoint(
            folder.path,
            metric,
            lower_is_better=metric in task.lower_is_better,
            is_new_run=folder.weights is None,
            patience=options.training.early_stopping,
        )
    is_stopped = best is not None and best.is_over
    teacher: Teacher | None = None
    has_steps = folder.step < plan.last_step and not is_stopped
    if has_steps and setup.task_type is not None and options.fine_tuning.teacher:
        own = cast(ExampleTask, task), setup.tokenizer, setup.devices, setup.policy
        teacher = load_teacher(options.fine_tuning, *own, label_names)
    learned: Any = task if teacher is None else teacher.student
    trainer = make_trainer(setup, learned, plan)
    _load_initial(trainer, learned, setup, plan, checkpoint, values)
    config, millions = setup.config, trainer.model.count_params() / 1e6
    sizes = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    text = "BERT with L=%d, H=%d, A=%d, %s WordPieces: %.1f million parameters"
    logger.info(text, *sizes, f"{config.vocab_size:,}", millions)
    last_step = min(plan.last_step, trainer.step) if is_stopped else plan.last_step
    record = folder.record
    if trainer.step < last_step:
        record = folder.next_record(options, values, plan.num_train_steps, changes)
        record.data = plan.data
    output_dir = folder.path if trainer.is_chief else _scratch_folder()
    return Run(setup, task, learned, trainer, last_step, record, output_dir, best, teacher, program)


@dataclass(repr=False, eq=False)
class Run(Generic[AnyTask, AnyOptions]):
    """A model in training, or one that is evaluated; `start` makes it.

    Args:
        learned: task of the training, which differs from `task` with a teacher.
        trainer: has the model with its weights.
        last_step: of this process; at most the trainer's step if there is nothing to train.
        record: of the training of the model in `output_dir`.
        output_dir: folder to write into; for a worker that is not the chief, a temporary one.
        best: keeps the best weights; None without evaluations during the training.
        teacher: writes its outputs into the records, once.
        program: for the model card, if its flags do not tell it.
    """

    setup: Setup[AnyOptions]
    task: AnyTask
    learned: Any
    trainer: TrainLoop
    last_step: int
    record: RunRecord
    output_dir: str
    best: BestCheckpoint | None = None
    teacher: Teacher | None = None
    program: str | None = None
    _outputs: dict[tuple, dict[str, np.ndarray]] = field(init=False, default_factory=dict)

    @property
    def options(self) -> AnyOptions:
        return self.setup.options

    @property
    def tokenizer(self) -> FullTokenizer:
        return self.setup.tokenizer

    def path(self, name: str) -> str:
        """Return the path of a file in the folder of the run."""
        return os.path.join(self.output_dir, name)

    # ---------------------------------------------------------------------------------- the training

    def train(self, examples: Sequence[Any], evaluate: Callable[[], Metrics] | None = None) -> None:
        """Write the records of the examples, with the outputs of a teacher, and train on them.

        Args:
            evaluate: see `train_on`.
        """
        self._write_model()  # before the records, so that a full disk is found early
        path = self.records(examples, "train")
        if self.teacher is not None:
            size = self.options.training.train_batch_size
            path = self.teacher.write_records(path, examples, self.tokenizer, size)
            self.teacher = None  # frees its weights
        labels = getattr(self.task, "labels", ())
        if labels and self.trainer.step < self.last_step:
            write_text(self.path("labels.txt"), "".join(f"{label}\n" for label in labels))
        self.train_on(RecordFiles([path], "bucketed"), evaluate)

    def train_on(
        self, source: Source, evaluate: Callable[[], Metrics] | None = None
    ) -> Metrics | None:
        """Train from the trainer's step up to `last_step`, and write README.md.

        Args:
            source: a resumed run skips the batches it has seen, so their order must be the same.
            evaluate: called every `evaluate_steps` of the options, if that is set.

        Returns:
            Metrics of an evaluation at the last step, or None without one.

        Raises:
            ValueError: there are fewer examples than one batch needs, or there is nothing to evaluate
                every `evaluate_steps`.
        """
        training, trainer, task = self.options.training, self.trainer, self.learned
        if training.evaluate_steps and evaluate is None:
            raise OptionError("evaluate_steps", "needs an evaluation: give do_eval or `evaluate`.")
        if training.pack_sequences and not (source.files and len(task.features[0].shape) == 1):
            raise OptionError("pack_sequences", "needs record files, of one sequence per example.")
        size, is_over = source.batch_size(training.train_batch_size), trainer.step >= self.last_step
        stream, config = source.stream(trainer, task, training), trainer.model.config
        logger.info("***** Running training *****")
        logger.info("  %s", _describe_devices(trainer, training, size))
        if trainer.is_chief and not is_over:
            self._write_record(source.files, size)
        self._write_model()
        log = MetricsLog(self.output_dir, training.tensorboard)
        flops = flops_per_token(config, task.max_seq_length, task.predictions_per_token)
        saving = training.save_checkpoints_steps, training.keep_checkpoint_max
        evaluation = EvaluationHook(log, evaluate, training.evaluate_steps, self.best)
        hooks = [
            LogHook(log, size, flops),
            CheckpointHook(self.output_dir, *saving),
            evaluation,
        ]
        with explain_read_errors(source.files):
            trainer.train(
                stream,
                self.last_step,
                hooks,
                max_steps_per_call=training.iterations_per_loop,
            )
        if trainer.is_chief and (not is_over or described_step(self.output_dir) != trainer.step):
            self._write_card()
        return evaluation.finish(trainer)

    def _write_model(self) -> None:
        """Write the files that describe the model, if there are steps to train."""
        if self.trainer.step < self.last_step:
            own = self.setup
            texts = model_files(own.config, self.task.values(), own.vocabulary, own.do_lower_case)
            write_files(self.output_dir, texts)

    def _write_record(self, files: Sequence[str], batch_size: int) -> None:
        """Write training.json, with the facts of the data."""
        record = self.record
        data = describe_data(record.flags, files, record.data)
        self.setup.folder.compare_data(data)
        if not files:  # the size of given batches is not an option to compare
            options = {n: v for n, v in record.options.items() if n != "train_batch_size"}
            flags = dict(record.flags)
            if batch_size != self.options.training.train_batch_size:
                flags["train_batch_size"] = batch_size
            record = replace(record, options=options, flags=flags)
        schedule = self.trainer.optimizer.schedule
        used = {
            "examples per step": f"{batch_size:,}",
            "steps of warm-up": f"{schedule.num_warmup_steps:,} of {schedule.num_train_steps:,}",
            "peak learning rate": f"{schedule.learning_rate:g}",
            "precision": f"`{self.setup.policy}`",
        }
        self.record = replace(record, used=used, data=data)
        self.record.save(self.output_dir)

    def _write_card(self) -> None:
        """Write README.md, and the facts that it follows from."""
        record, task = self.record, self.task
        start, size = record.flags.get("init_checkpoint"), self.trainer.model.count_params()
        training = {
            "program": self.program,
            "step": self.trainer.step,
            "flags": record.flags,
            "used": record.used,
            "resumed": record.resumed,
        }
        model = model_facts(start, task.name, task.arguments(), size)
        write_training_card(self.output_dir, model, record.data, training)

    # ---------------------------------------------------------------- evaluation and prediction

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
        if key not in self._outputs:
            source = RecordFiles([self.records(examples, name, task)], "bucketed")
            outputs = run_model(self.trainer, task, source, batch_size, label or name)
            if self.best is None:
                return outputs
            same_step = {other: v for other, v in self._outputs.items() if other[0] == key[0]}
            self._outputs = {**same_step, key: outputs}
        return dict(self._outputs[key])

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write a file of `output_dir`, such as predictions; the lines end in a newline."""
        path = self.path(name)
        write_text(path, "".join(lines))
        logger.info("Wrote %s", path)

    def write_results(self, name: str, metrics: Metrics) -> dict[str, float]:
        """Write and return the step and the metrics as `<name>_results.txt`.

        `eval_loss` becomes `test_loss` for "test".
        """
        renamed = {key.replace("eval_", f"{name}_", 1): value for key, value in metrics.items()}
        results = {"global_step": self.trainer.step, **renamed}
        title = f"{name.capitalize()} results"
        write_results(self.path(f"{name}_results.txt"), results, title)
        return results

    def write_report(self, title: str, results: Metrics, sections: Sequence[Section] = ()) -> None:
        """Write `report.html`."""
        write_report(self.path("report.html"), title, results, sections)


# ------------------------------------------------------------------------------- the parts of a start


def warn_of_unknown_words(texts: Iterable[str], tokenizer: FullTokenizer) -> None:
    """Warn if 5 % or more of the words of a sample of the texts are [UNK].

    With their usual vocabularies SST-2 and English Wikipedia have at most 0.5 %, the tweets of WNUT
    2017 at most 0.9 %, Korean and Chinese Wikipedia 0.5 %.
    """
    pieces = (piece for text in texts for piece in tokenizer.tokenize(text))
    words = [piece for piece in pieces if not piece.startswith("##")]
    num_unknown = words.count("[UNK]")
    if num_unknown >= max(10, 0.05 * len(words)):
        logger.warning(
            "%.0f%% of the words are [UNK] with this vocabulary and do_lower_case=%s; below 5%% is "
            "usual. Do the language and the case fit?",
            100 * num_unknown / len(words),
            tokenizer.do_lower_case,
        )


def _align_labels(
    setup: Setup, task: Task, label_names: Sequence[str]
) -> PretrainedCheckpoint | None:
    """Return the initial weights with a classifier's rows in the order of the task's labels."""
    labels, resumes = getattr(task, "labels", ()), setup.folder.weights is not None
    if setup.checkpoint is None or resumes or not labels:
        return setup.checkpoint
    values = task_values(setup.checkpoint)[0] or {}  # a custom task.json may have other arguments
    saved = values.get("labels", ()) if values.get("task") == task.name else ()
    return align_labels(
        setup.checkpoint,
        tuple(map(str, saved)),
        labels,
        label_names,
        will_train=setup.options.training.do_train,
    )


def make_trainer(setup: Setup, task: Task, plan: Plan) -> TrainLoop:
    """Return a TrainLoop of a model with random weights."""
    training, devices, config = setup.options.training, setup.devices, setup.config
    keras.utils.set_random_seed(training.seed)
    with devices.scope():
        model = task.build_model(replace(config, **training.dropouts), dtype=setup.policy)
        optimizer = None
        if plan.num_train_steps:
            frozen = freeze(model, training.freeze or "", config.num_hidden_layers)
            if frozen:
                logger.info("%d of %d variables are frozen", len(frozen), len(model.weights))
            optimizer = make_optimizer(training, setup.policy, config.num_hidden_layers, plan)
    if plan.num_train_steps and strategy.is_chief(devices):  # other workers write elsewhere
        with folder_lock(training.output_dir):
            pass  # detect another run in the folder before replacing files
    return TrainLoop(
        model,
        task.losses,
        strategy=devices,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        seed=training.seed,
        jit_compile=training.jit_compile,
        recompute_grads=training.recompute_grads,
    )


def _load_initial(
    trainer: TrainLoop,
    task: Task,
    setup: Setup,
    plan: Plan,
    checkpoint: PretrainedCheckpoint | None,
    values: Mapping[str, Any],
) -> None:
    """Load the weights of `output_dir`, else those of a checkpoint, if any.

    Raises:
        ValueError: the weights do not fit, an evaluation has untrained weights, or the moments to carry
            over are for another task or other labels.
    """
    folder = setup.folder
    if folder.weights is not None:
        if trainer.resume(folder.path) is None:  # maybe a newer one than `resolve` found
            raise OptionError("output_dir", f"the checkpoints of {folder.path} are gone.")
        logger.info("Weights: %s", trainer.checkpoint)
        return
    if plan.num_train_steps and (prefixes := list_checkpoints(folder.path)):
        logger.warning(
            "The training starts anew and will remove %s, because the file `checkpoint` is missing or "
            'corrupt. To resume, stop and write the line model_checkpoint_path: "%s" into it.',
            *(prefixes[-1], os.path.basename(prefixes[-1])),
        )
    if checkpoint is not None and plan.num_train_steps and plan.init_optimizer:
        source = str(setup.options.training.init_checkpoint)
        model = model_values(task.values(), setup.config, None, None)
        first_run = RunFolder.read(checkpoint.folder)
        first_run.compare(model, setup.options, values, plan.num_train_steps)
        if trainer.resume(source) is None:
            text = f"init_checkpoint={source} has no checkpoint of a run."
            raise OptionError("init_optimizer", text)
        trainer.checkpoint = None  # this run has none yet
        logger.info("The optimizer's state is carried over; checkpoints go to %s", folder.path)
    elif checkpoint is not None:
        load_weights(trainer.model, checkpoint, task, will_train=plan.num_train_steps > 0)
    else:
        logger.info("The weights are random")


def make_optimizer(
    training: TrainingOptions, policy: str, num_hidden_layers: int, plan: Plan
) -> keras.optimizers.Optimizer:
    """Return the optimizer of the flags with its schedule. Call it under `strategy.scope()`.

    Args:
        policy: Keras precision policy of the model.
    """
    rate = plan.learning_rates.get("") or training.learning_rate
    steps = plan.num_train_steps, plan.num_warmup_steps
    schedule = WarmupDecay(rate, *steps, training.lr_schedule)
    settings: dict[str, Any] = {}
    if training.optimizer == "muon" and policy == "mixed_bfloat16":
        settings["product_dtype"] = "bfloat16"
    factors = {path: own / rate for path, own in plan.learning_rates.items() if path}
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


# ------------------------------------------------------------------------------------- what a run says


def _describe_devices(trainer: TrainLoop, training: TrainingOptions, size: int) -> str:
    """Return one line for the log: devices, batch of each, precision."""
    num_parts, jit = training.gradient_accumulation_steps, training.jit_compile
    parts = f" in {num_parts} parts" if num_parts > 1 else ""
    compiled = f", --jit_compile={jit}" if jit != "auto" else ""
    policy = trainer.model.dtype_policy.name
    return f"{strategy.describe(trainer.strategy, size)}{parts}; {policy}{compiled}"


def write_results(path: str, results: Mapping[str, Any], title: str) -> None:
    """Write "key = value" lines, sorted by key. Log them, and update the model card next to the file."""
    lines = [f"{key} = {results[key]}" for key in sorted(results)]
    write_text(path, "\n".join(lines) + "\n")
    logger.info("***** %s *****", title)
    for line in lines:
        logger.info("  %s", line)
    write_card(os.path.dirname(path))
