"""run_ner: fine-tune, evaluate and predict on CoNLL columns; or the feature-based way.

Source: Devlin et al. 2019, section 5.3. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from bert_tf.data.conll import Columns, Sentence, read_conll, relabelled_lines
from bert_tf.data.files import open_whole, write_text
from bert_tf.data.label_schemes import SCHEMES, breaks, complete_labels, find_scheme
from bert_tf.modeling.feature_based import BILSTM_UNITS, FEATURE_LAYERS, check_feature_layers
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.conlleval import report
from bert_tf.training.trainer import Trainer
from bert_tf.workflows import training
from bert_tf.workflows.fine_tuning import (
    SPLITS,
    FineTuningOptions,
    Start,
    count_steps,
    make_trainer,
    prepare,
    write_beside_checkpoints,
)
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)

Splits = dict[str, list[Sentence]]

# How the files of a data set are usually called, for --data_dir.
FILE_NAMES: Mapping[str, Sequence[str]] = {
    "train": ("train.txt", "train.conll", "train.tsv", "eng.train", "wnut17train.conll"),
    "dev": (
        *("dev.txt", "dev.conll", "dev.tsv", "valid.txt", "eng.testa"),
        "emerging.dev.conll",
    ),
    "test": (
        *("test.txt", "test.conll", "test.tsv", "eng.testb"),
        "emerging.test.annotated",
    ),
}


@dataclass(frozen=True, kw_only=True)
class NerOptions(FineTuningOptions):
    """The flags of run_ner."""

    data_dir: str | None = option(
        "Folder with the three files under usual names, such as train.txt, dev.txt (or valid.txt) and "
        "test.txt; --train_file, --eval_file and --test_file go before.",
        default=None,
    )
    word_column: int = option("Column of the word, counted from 1.", default=1)
    label_column: int | None = option(
        "Column of the label, counted from 1. Default: the last.", default=None
    )
    test_labels: bool | None = option(
        "Whether --test_file has labels. Default: if it has more than one column.", default=None
    )
    label_scheme: str = option(
        "How labels mark entities. auto finds it in the training data, and only warns of labels that "
        "break it; with another value they are errors.",
        default="auto",
        choices=("auto", *SCHEMES),
    )
    document_context: bool = option(
        "Show the model as much of the document around each sentence as --max_seq_length holds, as in "
        "the paper. -DOCSTART- lines separate documents.",
        default=False,
    )
    doc_stride: int | None = option(
        "WordPieces between the beginnings of windows, where a sentence or document needs several. "
        "Default: half a window.",
        default=None,
    )
    feature_based: bool = option(
        "Do not fine-tune: train a two-layer BiLSTM on layers of the unchanged encoder.",
        default=False,
    )
    feature_layers: str = option(
        "With --feature_based: which layers.",
        default="concat_last_four_hidden",
        choices=tuple(FEATURE_LAYERS),
    )
    bilstm_units: int = option(
        "With --feature_based: units of each direction in each of the two layers of the BiLSTM.",
        default=BILSTM_UNITS,
    )
    bilstm_learning_rate: float = option(
        "With --feature_based: the learning rate, in place of --learning_rate.", default=1e-3
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data_dir is None:
            self.require_files()
        if not self.bilstm_learning_rate > 0:
            raise ValueError(
                f"--bilstm_learning_rate is {self.bilstm_learning_rate}, but must be above 0."
            )
        if self.bilstm_units < 1:
            raise ValueError(f"--bilstm_units is {self.bilstm_units}, but must be 1 or more.")
        if self.feature_based and self.freeze:
            raise ValueError("--freeze has no meaning with --feature_based: all of it is frozen.")


def run_ner(options: NerOptions) -> dict[str, float]:
    """Trains, evaluates and predicts, as the flags say; the results of the evaluation, if any.

    Writes `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `labels.txt`, what model_folder.py lists, and

        eval_results.txt        "key = value" lines: loss, accuracy, precision, recall and F1, 0 to 1
        eval_report.txt         what conlleval prints, in per cent
        eval_predictions.txt    the rows of --eval_file and the prediction as one more column: the
                                input of conlleval
        test_predictions.txt    the lines of --test_file with predictions in the place of the labels
        test_results.txt, test_report.txt    if --test_file has labels
    """
    options, start, trained = prepare(options, TokenClassificationTask)
    if options.feature_based:
        check_feature_layers(options.feature_layers, start.config.num_hidden_layers)
        options = replace(options, learning_rate=options.bilstm_learning_rate)
    options = find_files(options)
    task, splits = read_data(options, trained)

    num_train_steps = num_warmup_steps = 0
    if options.do_train:  # windows are what is trained on: a long sentence makes several
        num_windows = task.count_windows(splits["train"], start.tokenizer)
        num_train_steps, num_warmup_steps = count_steps(num_windows, options)
    trainer, options = make_trainer(task, start, options, num_train_steps, num_warmup_steps)
    results: dict[str, float] = {}
    if options.do_train:
        write_beside_checkpoints(options.output_dir, start, task, task.labels)
        path = os.path.join(options.output_dir, "train.tf_record")
        task.write_records(splits["train"], start.tokenizer, path)
        logger.info(
            "%d sentences, %d windows, %d steps", len(splits["train"]), num_windows, num_train_steps
        )
        training.train(trainer, task, [path], options, num_train_steps)
    if options.do_eval:
        results = evaluate(trainer, task, splits["dev"], start, options)
    if options.do_predict:
        predict(trainer, task, splits["test"], start, options)
    return results


def find_files(options: NerOptions) -> NerOptions:
    """The options with the files that --data_dir stands for.

    Raises:
        ValueError: a file that is needed is not there; the message lists what is.
    """
    if options.data_dir is None:
        return options
    found = {}
    names = set(tf.io.gfile.listdir(options.data_dir))
    for split, wanted, flag in SPLITS:
        if not getattr(options, wanted) or getattr(options, flag):
            continue
        matching = [name for name in FILE_NAMES[split] if name in names]
        if not matching:
            raise ValueError(
                f"--data_dir={options.data_dir} has none of {', '.join(FILE_NAMES[split])}, but "
                f"{', '.join(sorted(names)) or 'nothing'}. Give --{flag}."
            )
        found[flag] = os.path.join(options.data_dir, matching[0])
    return replace(options, **found)


def read_data(
    options: NerOptions, trained: TokenClassificationTask | None = None
) -> tuple[TokenClassificationTask, Splits]:
    """The task, and the sentences of the splits that the run needs.

    Args:
        options: with a `max_seq_length` and the files.
        trained: the task of the model that there is, if any.

    Raises:
        ValueError: a file cannot be read, is empty or breaks the scheme; a label is not known; or the
            task is another one than `trained`.
    """
    splits = {
        split: read_conll(getattr(options, flag), _columns(options, split))
        for split, wanted, flag in SPLITS
        if getattr(options, wanted)
    }
    scheme, labels = _scheme_and_labels(options, splits, trained)
    if trained is not None and not options.do_train:
        task = _adjusted(trained, options)
    else:
        task = TokenClassificationTask(
            labels,
            options.max_seq_length,
            options.document_context,
            options.doc_stride,
            options.feature_layers if options.feature_based else None,
            options.bilstm_units,
        )
    if trained is not None:
        _check_same_task(task, trained)
    for split, sentences in splits.items():
        _check_scheme(sentences, scheme, strict=options.label_scheme != "auto")
        _check_labels(sentences, labels, split)
        if task.document_context and not any(sentence.document for sentence in sentences):
            logger.warning(
                "%s has no -DOCSTART- line, so with --document_context all of it is one document.",
                sentences[0].file,
            )
    return task, splits


def _columns(options: NerOptions, split: str) -> Columns:
    labelled = options.test_labels if split == "test" else True
    return Columns(options.word_column, options.label_column, labelled)


def _scheme_and_labels(
    options: NerOptions, splits: Splits, trained: TokenClassificationTask | None
) -> tuple[str, Sequence[str]]:
    """Of the training set; without training, those that the model was trained for."""
    if "train" in splits:
        labels = [sentence.labels for sentence in splits["train"]]
        scheme = find_scheme(labels) if options.label_scheme == "auto" else options.label_scheme
        return scheme, complete_labels({label for row in labels for label in row}, scheme)
    if trained is None:
        raise ValueError(
            "It is not known which label each output of the model stands for: no task.json lies beside "
            "its weights. Name the --output_dir of a run_ner, or train with --do_train."
        )
    if options.label_scheme != "auto":
        return options.label_scheme, trained.labels
    for scheme in SCHEMES:
        if trained.labels == complete_labels(trained.labels, scheme):
            return scheme, trained.labels
    raise ValueError(
        f"The labels of the model, {', '.join(trained.labels)}, are those of no scheme. Give "
        "--label_scheme."
    )


def _check_scheme(sentences: Sequence[Sentence], scheme: str, strict: bool) -> None:
    """Reports labels that break the scheme; they stay as they are, and are read as conlleval does."""
    found = [
        f"{sentence.place(index)}: {why}"
        for sentence in sentences
        if sentence.labels is not None
        for index, why in breaks(sentence.labels, scheme)
    ]
    if not found:
        return
    examples = "; ".join(found[:3])
    if strict:
        raise ValueError(
            f"{len(found)} labels break --label_scheme={scheme}: {examples}. Mend them, or leave the "
            "flag out, to read them as conlleval does."
        )
    logger.warning(
        "%d labels break the scheme %s, and are read as conlleval reads them: %s",
        len(found),
        scheme,
        examples,
    )


def _check_labels(sentences: Sequence[Sentence], labels: Sequence[str], split: str) -> None:
    known = set(labels)
    for sentence in sentences:
        for index, label in enumerate(sentence.labels or ()):
            if label not in known:
                remedy = (
                    "If that column holds no labels, say --notest_labels."
                    if split == "test"
                    else "Is it a slip, or does the training data lack this type?"
                )
                raise ValueError(
                    f"{sentence.place(index)}: the label is {label!r}, but the labels of this model "
                    f"are {', '.join(labels)}. {remedy}"
                )


def _adjusted(trained: TokenClassificationTask, options: NerOptions) -> TokenClassificationTask:
    """The task of a model that is only used, with this run's length of inputs."""
    arguments = trained.arguments() | {"max_seq_length": options.max_seq_length}
    if options.document_context:
        arguments["document_context"] = True
    if options.doc_stride is not None or options.max_seq_length != trained.max_seq_length:
        arguments["doc_stride"] = options.doc_stride
    return TokenClassificationTask(**arguments)


def _check_same_task(task: TokenClassificationTask, trained: TokenClassificationTask) -> None:
    """What a training that goes on may not change; a model that is only used has it all the same."""
    if task.labels != trained.labels:
        raise ValueError(
            f"The labels of the data are {', '.join(task.labels)}, but the model was trained for "
            f"{', '.join(trained.labels)}. Use the data it was trained on, or another --output_dir."
        )
    for name in ("feature_layers", "bilstm_units"):
        now, there = getattr(task, name), getattr(trained, name)
        if now != there:
            raise ValueError(
                f"--output_dir holds a model with `{name}` {there}, and this run asks for {now} (None: "
                "fine-tuning). Use another --output_dir."
            )


def evaluate(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
) -> dict[str, float]:
    """The figures of the dev set; also written, with the predictions."""
    logger.info("***** Running evaluation *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = _run(trainer, task, sentences, start, options, "eval")
    _write_predictions(task, kept, options.eval_file, options, "eval", append=True)
    return _write_scores(trainer, task, kept, options, "eval")


def predict(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
) -> None:
    """The test file with predicted labels; and its figures, where it has labels of its own."""
    logger.info("***** Running prediction *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = _run(trainer, task, sentences, start, options, "test")
    _write_predictions(task, kept, options.test_file, options, "test", append=False)
    if sentences[0].labels is not None:
        _write_scores(trainer, task, kept, options, "test")


def _run(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
    name: str,
) -> dict[str, np.ndarray]:
    path = os.path.join(options.output_dir, f"{name}.tf_record")
    num_windows = task.write_records(sentences, start.tokenizer, path)
    logger.info("  Num windows = %d", num_windows)
    batch_size = options.eval_batch_size if name == "eval" else options.predict_batch_size
    return training.run_model(trainer, task, [path], batch_size, label=name)


def _write_scores(
    trainer: Trainer,
    task: TokenClassificationTask,
    kept: Mapping[str, np.ndarray],
    options: NerOptions,
    name: str,
) -> dict[str, float]:
    results = {"global_step": trainer.step, **task.metrics(kept)}
    scores = task.scores(kept)
    if scores.overall.actual and not scores.overall.predicted:
        logger.warning(
            "Every prediction is O, though there are %d entities: the model has learned nothing but "
            "that. Train longer, or with another --learning_rate.",
            scores.overall.actual,
        )
    text = report(scores)
    folder = options.output_dir
    if name != "eval":
        results = {key.replace("eval_", f"{name}_", 1): value for key, value in results.items()}
    training.write_results(os.path.join(folder, f"{name}_results.txt"), results, f"{name} results")
    write_text(os.path.join(folder, f"{name}_report.txt"), text)
    for line in text.splitlines():
        logger.info("%s", line)
    return results


def _write_predictions(
    task: TokenClassificationTask,
    kept: Mapping[str, np.ndarray],
    source: str,
    options: NerOptions,
    name: str,
    append: bool,
) -> None:
    labels = [label for row in task.sentence_labels(kept, "predictions") for label in row]
    columns = _columns(options, "test" if name == "test" else "dev")
    path = os.path.join(options.output_dir, f"{name}_predictions.txt")
    with open_whole(path) as file:
        for line in relabelled_lines(source, labels, columns, append=append):
            file.write(line + "\n")
    logger.info("Wrote %d predictions to %s", len(labels), path)
