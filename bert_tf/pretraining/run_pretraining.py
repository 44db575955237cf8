"""run_pretraining: from TFRecords to a pre-trained encoder.

Source: google-research/bert, run_pretraining.py.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bert_tf.checkpoints.checkpoint import TokenizerFiles, sibling_file
from bert_tf.checkpoints.tokenizer_files import find_case
from bert_tf.config import ATTENTION_DIRECTIONS
from bert_tf.data.records import check_records, feature_sizes
from bert_tf.files import expand_files
from bert_tf.limits import DataError
from bert_tf.options import ModelOptions, OptionError, changes, option, require_files
from bert_tf.pretraining.manifest import SUFFIX, Manifest, check_complete, read_manifests
from bert_tf.pretraining.masking import MaskingOptions, count_predictions
from bert_tf.pretraining.masking_ops import DynamicMasker
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.report.model_card import code
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.batches import RecordFiles, run_model
from bert_tf.tasks.run import Plan, Run, start
from bert_tf.tasks.run_folder import COUNT
from bert_tf.tasks.setup import Setup, resolve
from bert_tf.tokenization import load_tokenizer
from bert_tf.training.options import DeviceOptions, TrainingOptions
from bert_tf.vocabulary import vocabulary_digest

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
        on_resume="first",
    )
    num_warmup_steps: int = option(
        "Steps until the full learning rate. The default becomes a tenth of --num_train_steps if the "
        "training is shorter than it.",
        group="Training",
        default=_NUM_WARMUP_STEPS,
        min=0,
        on_resume="warn",
    )
    max_eval_steps: int = option("Most batches to evaluate on.", default=100, min=1)

    def __post_init__(self) -> None:
        require_files(self, dict.fromkeys(("do_train", "do_eval"), "input_file"))
        if self.init_optimizer and (self.training.init_layers or not self.training.init_checkpoint):
            rule = "needs init_checkpoint, the output_dir of a run, with all its layers."
            raise OptionError("init_optimizer", rule)


PretrainingRun = Run[PretrainingTask, PretrainingOptions]


def run_pretraining(options: PretrainingOptions) -> dict[str, float]:
    """Train and evaluate. Return the metrics of the evaluation, if any.

    Write the weights, `metrics.jsonl`, `eval_results.txt`, `report.html`, `README.md`.
    """
    training = options.training
    setup, record_sets, tasks = read_data(resolve(options, attention=options.attention))
    task = tasks["train" if training.do_train else "eval"]
    num_warmup_steps = options.num_warmup_steps
    if options.num_train_steps < num_warmup_steps == _NUM_WARMUP_STEPS:
        num_warmup_steps = options.num_train_steps // 10
    plan = Plan(
        options.num_train_steps if training.do_train else 0,
        num_warmup_steps,
        options.stop_step,
        init_optimizer=options.init_optimizer,
        resolved={
            "objective": task.objective,
            "max_predictions_per_seq": task.max_predictions_per_seq,
        },
        data=describe_records(record_sets["train"]) if training.do_train else (),
    )
    run: PretrainingRun = start(setup, task, plan)
    write_page = functools.partial(run.write_report, f"run_pretraining on {options.input_file}")

    def evaluate() -> dict[str, float]:
        files = RecordFiles(record_sets["eval"].files)
        size, max_batches = training.eval_batch_size, options.max_eval_steps
        outputs = run_model(run.loop, tasks["eval"], files, size, max_batches=max_batches)
        metrics = tasks["eval"].metrics(outputs)
        line = ", ".join(f"{key} {value:.3f}" for key, value in metrics.items())
        data = "" if options.eval_file else " (of the training records; give eval_file)"
        logger.info("step %d: %s%s", run.loop.step, line, data)
        results = {"global_step": run.loop.step, **metrics}
        write_page(results)
        return results

    results: Mapping[str, float] | None = None
    first_step = run.loop.step
    if training.do_train:
        metrics = evaluate if training.do_eval else None
        results = run.train_on(RecordFiles(record_sets["train"].files), metrics)
    if not training.do_eval:
        if run.loop.step > first_step:
            write_page({"global_step": run.loop.step})
        return {}
    results = run.write_results("eval", results or evaluate())
    write_page(results)
    return results


# ------------------------------------------------------------------------------------- the records


@dataclass(frozen=True)
class RecordSet:
    """Record files with the same features.

    Attributes:
        has_pairs: True if they have `next_sentence_labels`.
        manifests: path -> manifest, for manifests that list one of the files.
        max_predictions_per_seq: predictions of a record; 0 for records that are masked while training.
    """

    files: tuple[str, ...]
    has_pairs: bool
    manifests: Mapping[str, Manifest]
    max_predictions_per_seq: int = 0

    @property
    def objectives(self) -> tuple[str, ...]:
        """Possible objectives, the likeliest first; `mlm` ignores the labels of pairs.

        Without a manifest these may be about the next sentence, as in the reference, or about order.
        """
        if not self.has_pairs:
            return ("mlm",)
        for manifest in self.manifests.values():
            return (manifest.flags["objective"], "mlm")
        return ("mlm_nsp", "mlm_sop", "mlm")


def read_record_set(pattern_list: str) -> RecordSet:
    """Read the manifests, and the first record of each file."""
    files = [file for file in expand_files(pattern_list) if not file.endswith(SUFFIX)]
    manifests = read_manifests(files)
    check_complete(manifests)
    features = {file: sizes for file in files if (sizes := feature_sizes(file))}
    objectives = {path: manifest.flags["objective"] for path, manifest in manifests.items()}
    for noun, values in (("features", features), ("objectives", objectives)):
        for first, other in pairwise(values):
            if values[first] != values[other]:
                raise DataError(other, f"has other {noun} than {first}.")
    sizes = next(iter(features.values()), {})
    has_pairs = "next_sentence_labels" in sizes
    return RecordSet(tuple(files), has_pairs, manifests, sizes.get("masked_lm_ids", 0))


def read_data(
    setup: Setup,
) -> tuple[Setup, dict[str, RecordSet], dict[str, PretrainingTask]]:
    """Return the setup with vocabulary and case, and the records and tasks of "train" and "eval"."""
    options, checkpoint = setup.options, setup.checkpoint
    training, model = options.training, options.model
    record_sets = {}
    if training.do_train:
        record_sets["train"] = read_record_set(options.input_file)
    if training.do_eval:
        record_sets["eval"] = read_record_set(options.eval_file or options.input_file)
    do_lower_case = model.do_lower_case
    for record_set in record_sets.values():
        do_lower_case = match_case(record_set, do_lower_case)
    vocab_file = model.vocab_file
    if not vocab_file and model.bert_config_file:
        vocab_file = sibling_file(os.path.dirname(model.bert_config_file), "vocab.txt")
    if vocab_file or (checkpoint is not None and checkpoint.tokenizer.vocab):
        tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, setup.config)
        setup = setup.with_tokenizer(tokenizer)
        for record_set in record_sets.values():
            check_vocabulary(record_set, list(tokenizer.vocab), vocab_file)
    else:  # records with masks need none
        setup = replace(setup, do_lower_case=find_case(do_lower_case, checkpoint, TokenizerFiles()))
    trained = None
    if checkpoint is not None and not training.do_train:
        trained = (checkpoint.task or {}).get("objective")
    tasks = make_tasks(options, record_sets, setup.vocabulary, setup.max_seq_length, trained)
    for name, task in tasks.items():
        check_records(record_sets[name].files, task.record_features)
        masks = "are masked on the fly" if task.record_features != task.features else "have masks"
        logger.info("The %s records %s. The objective is %s.", name, masks, task.objective)
    if training.do_train:
        RecordFiles(record_sets["train"].files).check(training, setup.strategy)
    return setup, record_sets, tasks


def describe_records(record_set: RecordSet) -> list[list[str]]:
    """Return the rows of the records in the model card that their manifests tell, name and text."""
    counts, rows = {}, []
    for path, manifest in record_set.manifests.items():
        for shard in manifest.shards:
            counts[os.path.join(os.path.dirname(path), shard.file)] = shard.records
        names = [code(os.path.basename(entry["file"])) for entry in manifest.input]
        if len(names) > 10:
            names[10:] = [f"{len(names) - 10:,} more"]
        numbers = manifest.counts
        text = (
            f"{', '.join(names)}: {numbers.documents:,} documents, {numbers.sentences:,} sentences, "
            f"{numbers.tokens:,} tokens"
        )
        rows.append([f"text of {code(os.path.basename(path))}", text])
    if counts.keys() >= set(record_set.files):
        rows.insert(0, [COUNT, f"{sum(counts[file] for file in record_set.files):,}"])
    return rows


def make_tasks(
    options: PretrainingOptions,
    record_sets: Mapping[str, RecordSet],
    tokens: Sequence[str] | None,
    max_seq_length: int,
    trained: str | None = None,
) -> dict[str, PretrainingTask]:
    """Return a task for each set of records, with one objective."""
    objective, tasks = choose_objective(options.objective, list(record_sets.values()), trained), {}
    for name, record_set in record_sets.items():
        masker, max_predictions = None, options.masks.max_predictions_per_seq
        if record_set.max_predictions_per_seq:
            max_predictions = max_predictions or record_set.max_predictions_per_seq
        elif tokens is None:
            raise OptionError("vocab_file", f"needed to mask the records of {record_set.files[0]}.")
        else:
            prob = options.masks.masked_lm_prob
            max_predictions = max_predictions or count_predictions(max_seq_length, prob)
            vocab = {token: index for index, token in enumerate(tokens)}
            masker = DynamicMasker(vocab, options.masks, max_predictions)
        tasks[name] = PretrainingTask(max_seq_length, max_predictions, objective, masker)
    return tasks


def choose_objective(
    objective: str | None, record_sets: Sequence[RecordSet], trained: str | None = None
) -> str:
    """Return the objective: the flag's, else `trained` if all records allow it, else the first set's."""
    if trained and all(trained in record_set.objectives for record_set in record_sets):
        objective = objective or trained
    objective = objective or record_sets[0].objectives[0]
    for record_set in record_sets:
        if objective not in record_set.objectives:
            possible = " or ".join(record_set.objectives)
            raise OptionError("objective", f"{record_set.files[0]} is for {possible}.")
    return objective


def check_vocabulary(record_set: RecordSet, tokens: Sequence[str], vocab_file: str | None) -> None:
    """Raise if the vocabulary is not that of a manifest."""
    for path, manifest in record_set.manifests.items():
        if manifest.vocabulary["sha256"] != vocabulary_digest(tokens):
            remedy = f"not the vocabulary in {path}: give {manifest.vocabulary['file']}."
            raise DataError(vocab_file or "vocabulary of the checkpoint", remedy)


def match_case(record_set: RecordSet, do_lower_case: bool | None) -> bool | None:
    """Return the case of the manifests, else the given one; raise if they differ."""
    for path, manifest in record_set.manifests.items():
        case = manifest.flags["do_lower_case"]
        if do_lower_case not in (None, case):
            problem = f"{case} in {path}, but {do_lower_case} by the flag or other records."
            raise OptionError("do_lower_case", problem)
        do_lower_case = case
    return do_lower_case
