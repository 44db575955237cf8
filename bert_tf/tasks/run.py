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

import functools
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.heads import align_labels
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
    RunOptions,
    RunRecord,
    check_output_folder,
    describe_data,
    model_values,
)
from bert_tf.tasks.setup import Setup
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.best_checkpoint import BestCheckpoint, check_best_metric
from bert_tf.training.checkpoints import folder_lock, list_checkpoints
from bert_tf.training.loop import CheckpointHook, EvaluationHook, LogHook, TrainLoop
from bert_tf.training.optimizers import freeze
from bert_tf.training.progress import MetricsLog
from bert_tf.training.strategy import describe, is_chief

logger = logging.getLogger(__name__)

_SAMPLED_RECORDS = 500  # that the check of the vocabulary reads

AnyTask = TypeVar("AnyTask", bound=Task)
AnyOptions = TypeVar("AnyOptions", bound=Any)
Metrics = Mapping[str, float]
Splits = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Plan:
    """The steps of a training, and what a program decides of it beside the flags."""

    num_train_steps: int = 0  # 0 for a model that is only evaluated
    num_warmup_steps: int = 0
    stop_step: int | None = None  # last step, with the learning rates of `num_train_steps`
    # Regular expression of paths -> peak learning rate; "": of all others, instead of `learning_rate`.
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    init_optimizer: bool = False  # also read moments and step of `init_checkpoint`
    resolved: Mapping[str, Any] = field(default_factory=dict)  # options that depend on the data
    data: Sequence[Any] = ()  # rows of the model card; without `COUNT` the records are counted

    @property
    def last_step(self) -> int:
        return min(self.stop_step or self.num_train_steps, self.num_train_steps)


def start_fine_tuning(
    setup: Setup[AnyOptions],
    task: AnyTask,
    splits: Splits,
    num_examples: int | None = None,
    *,
    label_names: Sequence[str] = (),
    learning_rates: Mapping[str, float] = MappingProxyType({}),
) -> Run[AnyTask, AnyOptions]:
    """Start a run of as many steps as its epochs have; `splits` has "train" only for a training."""
    training, fine_tuning = setup.options.training, setup.options.fine_tuning
    plan, teacher = Plan(), None
    if training.do_train:
        count, num_epochs = num_examples or len(splits["train"]), fine_tuning.num_train_epochs
        steps = int(count / training.train_batch_size * num_epochs)
        if steps == 0:
            text = f"{count} examples make no step in {num_epochs} epochs. Lower it."
            raise OptionError("train_batch_size", text)
        warmup_steps = int(steps * fine_tuning.warmup_proportion)
        plan = Plan(steps, warmup_steps, learning_rates=learning_rates)
        windows = f" in {num_examples} windows" if num_examples else ""
        logger.info("%d examples%s, steps: %d", len(splits["train"]), windows, steps)
        if fine_tuning.teacher and setup.folder.step < steps:
            own = cast(ExampleTask, task), setup.tokenizer, setup.strategy, setup.policy
            teacher = load_teacher(fine_tuning, *own, label_names)
    return start(setup, task, plan, label_names, teacher)


def start(
    setup: Setup[AnyOptions],
    task: AnyTask,
    plan: Plan = Plan(),
    label_names: Sequence[str] = (),
    teacher: Teacher | None = None,
) -> Run[AnyTask, AnyOptions]:
    """Compare a run with `output_dir`, and make its model with the weights in place."""
    options, folder = setup.options, setup.folder
    setup.config.check_sequence_length(task.max_seq_length, task.min_seq_length)
    arguments = task.values()
    fixed = {name: arguments.get(name) for name in ("task", *task.fixed_arguments)}
    current = model_values(fixed, setup.config, setup.vocabulary, setup.do_lower_case)
    own = RunOptions.read(options, plan.num_train_steps, plan.resolved)
    if plan.num_train_steps:
        current |= own.values
    changes = folder.compare(current, own.rules)
    if plan.init_optimizer and setup.checkpoint is not None and folder.weights is None:
        RunFolder.read(setup.checkpoint.folder).compare(current, own.rules)
    if is_chief(setup.strategy):  # other workers write elsewhere
        check_output_folder(folder.path)
        if plan.num_train_steps:
            with folder_lock(folder.path):
                pass  # detect another run in the folder before replacing files
    best, last_step = _find_best(setup, task, plan), plan.last_step
    if best is not None and best.is_over:
        last_step = min(last_step, folder.step)
    if folder.step >= last_step:
        teacher = None
    training_task: Any = task if teacher is None else teacher.student
    loop = make_loop(setup, training_task, plan)
    load_initial_weights(loop, training_task, setup, plan, label_names)
    record = folder.record
    if loop.step < last_step:
        record = folder.next_record(own, changes)
        record.data = plan.data
    output_dir = folder.path if loop.is_chief else _scratch_folder().name
    return Run(setup, task, training_task, loop, last_step, record, output_dir, best, teacher)


@dataclass(repr=False, eq=False)
class Run(Generic[AnyTask, AnyOptions]):
    """A model in training, or one that is evaluated; `start` makes it."""

    setup: Setup[AnyOptions]
    task: AnyTask
    training_task: Any  # differs from `task` with a teacher
    loop: TrainLoop  # has the model with its weights
    last_step: int  # at most the step of the loop if there is nothing to train
    record: RunRecord  # of the training of the model in `output_dir`
    output_dir: str  # for a worker that is not the chief, a temporary folder
    best: BestCheckpoint | None = None  # None without evaluations during the training
    teacher: Teacher | None = None  # writes its outputs into the records, once

    @property
    def options(self) -> AnyOptions:
        return self.setup.options

    def path(self, name: str) -> str:
        return os.path.join(self.output_dir, name)

    # ---------------------------------------------------------------------------------- the training

    def train(self, examples: Sequence[Any], evaluate: Callable[[], Metrics] | None = None) -> None:
        """Write the records of the examples, with the outputs of a teacher, and train on them."""
        self._write_model()  # before the records, so that a full disk is found early
        path = self.records(examples, "train")
        if self.teacher is not None:
            size = self.options.training.train_batch_size
            path = self.teacher.write_records(path, examples, self.setup.tokenizer, size)
            self.teacher = None  # frees its weights
        self.train_on(RecordFiles([path], "bucketed"), evaluate)

    def train_on(
        self, source: Source, evaluate: Callable[[], Metrics] | None = None
    ) -> Metrics | None:
        """Train up to `last_step`, write README.md, and return the metrics of an evaluation at the end.

        A resumed run skips the batches it has seen, so their order in `source` must be the same.
        """
        training, loop, task = self.options.training, self.loop, self.training_task
        if training.evaluate_steps and evaluate is None:
            raise OptionError("evaluate_steps", "needs an evaluation: give do_eval or `evaluate`.")
        if training.pack_sequences and not (source.files and len(task.features[0].shape) == 1):
            raise OptionError("pack_sequences", "needs record files, of one sequence per example.")
        size, is_over = source.batch_size or training.train_batch_size, loop.step >= self.last_step
        stream = source.stream(loop, task, training)
        logger.info("***** Running training *****")
        logger.info("  %s; %s", describe(loop.strategy, size), self.setup.policy)
        if loop.is_chief and not is_over:
            self._write_record(source.files, size)
        self._write_model()
        log = MetricsLog(self.output_dir, training.tensorboard)
        flops = flops_per_token(loop.model.config, task.max_seq_length, task.predictions_per_token)
        saving = training.save_checkpoints_steps, training.keep_checkpoint_max
        evaluation = EvaluationHook(log, evaluate, training.evaluate_steps, self.best)
        hooks = [
            LogHook(log, size, flops),
            CheckpointHook(self.output_dir, *saving),
            evaluation,
        ]
        max_steps = training.iterations_per_loop
        with explain_read_errors(source.files):
            loop.train(stream, self.last_step, hooks, max_steps_per_call=max_steps)
        if loop.is_chief and (not is_over or described_step(self.output_dir) != loop.step):
            self._write_card()
        return evaluation.finish(loop)

    def _write_model(self) -> None:
        """Write the files that describe the model, if there are steps to train."""
        if self.loop.step < self.last_step:
            own, labels = self.setup, getattr(self.task, "labels", ())
            texts = model_files(own.config, self.task.values(), own.vocabulary, own.do_lower_case)
            if labels:
                texts["labels.txt"] = "".join(f"{label}\n" for label in labels)
            write_files(self.output_dir, texts)

    def _write_record(self, files: Sequence[str], batch_size: int) -> None:
        """Write training.json, with the facts of the data."""
        record, schedule = self.record, self.loop.optimizer.schedule
        record.data = describe_data(record.flags, files, record.data)
        rows = dict(record.data)
        self.setup.folder.compare(rows, dict.fromkeys(rows, "warn"))
        record.used = {
            "examples per step": f"{batch_size:,}",
            "steps of warm-up": f"{schedule.num_warmup_steps:,} of {schedule.num_train_steps:,}",
            "peak learning rate": f"{schedule.learning_rate:g}",
            "precision": f"`{self.setup.policy}`",
        }
        record.save(self.output_dir)

    def _write_card(self) -> None:
        """Write README.md, and the facts that it follows from."""
        record, task = self.record, self.task
        start, size = record.flags.get("init_checkpoint"), self.loop.model.count_params()
        training = {"program": getattr(task, "program", None), "step": self.loop.step}
        training |= {name: getattr(record, name) for name in ("flags", "used", "resumed")}
        model = model_facts(start, task.name, task.arguments(), size)
        write_training_card(self.output_dir, model, record.data, training)

    # ---------------------------------------------------------------- evaluation and prediction

    def records(self, examples: Sequence[Any], name: str, task: Any = None) -> str:
        """Return the path of `<name>.tf_record`. Write it by the task (of the run) unless it exists."""
        task, tokenizer = task or self.task, self.setup.tokenizer
        path = self.path(f"{name}.tf_record")

        def write(path: str) -> int:
            workers = workers_for(task.num_sequences(examples))
            return task.write_records(examples, tokenizer, path, workers)

        make_once(path, task.records_key(examples, tokenizer), write)
        warn_of_unknown_words(path, tokenizer)
        return path

    def outputs(
        self, examples: Sequence[Any], name: str, batch_size: int, task: Any = None
    ) -> dict[str, np.ndarray]:
        """Return the outputs that `task.eval_outputs` keeps, in the order of the examples."""
        task = task or self.task
        source = RecordFiles([self.records(examples, name, task)], "bucketed")
        return run_model(self.loop, task, source, batch_size, label=name)

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write a file of `output_dir`, such as predictions; the lines end in a newline."""
        path = self.path(name)
        write_text(path, "".join(lines))
        logger.info("Wrote %s", path)

    def write_results(self, name: str, metrics: Metrics) -> dict[str, float]:
        """Write and return the step and the metrics, `eval_loss` as `test_loss` for "test"."""
        renamed = {key.replace("eval_", f"{name}_", 1): value for key, value in metrics.items()}
        results = {"global_step": self.loop.step, **renamed}
        lines = [f"{key} = {results[key]}" for key in sorted(results)]
        write_text(self.path(f"{name}_results.txt"), "\n".join(lines) + "\n")
        logger.info("***** %s results *****", name.capitalize())
        for line in lines:
            logger.info("  %s", line)
        write_card(self.output_dir)
        return results

    def write_report(self, title: str, results: Metrics, sections: Sequence[Section] = ()) -> None:
        write_report(self.path("report.html"), title, results, sections)


# ------------------------------------------------------------------------------- the parts of a start


def warn_of_unknown_words(path: str, tokenizer: FullTokenizer) -> None:
    """Warn if 5 % or more of the words of the first records are [UNK].

    With their usual vocabularies SST-2 and English Wikipedia have at most 0.5 %, the tweets of WNUT
    2017 at most 0.9 %, Korean and Chinese Wikipedia 0.5 %.
    """
    counts: Counter[str] = Counter()
    pieces = list(tokenizer.vocab)
    for record in tf.data.TFRecordDataset(path).take(_SAMPLED_RECORDS).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        counts.update(pieces[index] for index in features["input_ids"].int64_list.value)
    others = ("##", "[PAD]", "[CLS]", "[SEP]")
    num_words = sum(n for piece, n in counts.items() if not piece.startswith(others))
    if counts["[UNK]"] >= max(10, 0.05 * num_words):
        logger.warning(
            "%.0f%% of the words are [UNK] with this vocabulary and do_lower_case=%s: do they fit?",
            *(100 * counts["[UNK]"] / num_words, tokenizer.do_lower_case),
        )


def _find_best(setup: Setup, task: Task, plan: Plan) -> BestCheckpoint | None:
    training = setup.options.training
    if not (plan.num_train_steps and training.evaluate_steps):
        return None
    metric = training.best_metric or task.best_metric
    check_best_metric(metric, task.metric_keys)
    return BestCheckpoint(
        setup.folder.path,
        metric,
        lower_is_better=metric in task.lower_is_better,
        is_new_run=setup.folder.weights is None,
        patience=training.early_stopping,
    )


def make_loop(setup: Setup, task: Task, plan: Plan) -> TrainLoop:
    """Return a TrainLoop of a model with random weights."""
    training, config = setup.options.training, setup.config
    keras.utils.set_random_seed(training.seed)
    with setup.strategy.scope():
        model = task.build_model(replace(config, **training.dropouts), dtype=setup.policy)
        optimizer = None
        if plan.num_train_steps:
            freeze(model, training.freeze or "", config.num_hidden_layers)
            steps = plan.num_train_steps, plan.num_warmup_steps
            optimizer = training.make_optimizer(model, *steps, plan.learning_rates)
    sizes = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    text = "BERT with L=%d, H=%d, A=%d, %s WordPieces: %.1f million parameters"
    logger.info(text, *sizes, f"{config.vocab_size:,}", model.count_params() / 1e6)
    return TrainLoop(
        model,
        task.losses,
        strategy=setup.strategy,
        input_names=(*task.input_names, *PACKED_FEATURES),
        optimizer=optimizer,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        seed=training.seed,
        jit_compile=training.jit_compile,
        recompute_grads=training.recompute_grads,
    )


def load_initial_weights(
    loop: TrainLoop,
    task: Task,
    setup: Setup,
    plan: Plan,
    label_names: Sequence[str],
) -> None:
    """Load the weights of `output_dir`, else those of a checkpoint, if any."""
    folder, checkpoint, options = setup.folder, setup.checkpoint, setup.options
    if folder.weights is not None:
        loop.resume(folder.path)
        logger.info("Weights: %s", loop.checkpoint)
        return
    if plan.num_train_steps and (prefixes := list_checkpoints(folder.path)):
        logger.warning(
            "The training starts anew and will remove %s, because the file `checkpoint` is missing or "
            'corrupt. To resume, stop and write the line model_checkpoint_path: "%s" into it.',
            *(prefixes[-1], os.path.basename(prefixes[-1])),
        )
    if checkpoint is None:
        logger.info("The weights are random")
    elif plan.num_train_steps and plan.init_optimizer:
        if loop.resume(source := options.training.init_checkpoint) is None:
            text = f"init_checkpoint={source} has no checkpoint of a run."
            raise OptionError("init_optimizer", text)
        loop.checkpoint = None  # this run has none yet
        logger.info("The optimizer's state is carried over; checkpoints go to %s", folder.path)
    else:
        will_train, labels = plan.num_train_steps > 0, getattr(task, "labels", ())
        saved = setup.checkpoint_labels(task.name)
        checkpoint = align_labels(checkpoint, saved, labels, label_names, will_train)
        load_weights(loop.model, checkpoint, task, will_train)


@functools.cache
def _scratch_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="bert_tf-worker-")
