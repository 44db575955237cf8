"""The flags of run_embeddings."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.data.tables import TableOptions
from bert_tf.embeddings.losses import EMBEDDING_LOSSES
from bert_tf.embeddings.task import LIMITS
from bert_tf.limits import suggestion
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.tasks.options import FineTuningOptions, check_data
from bert_tf.training.options import DeviceOptions, TrainingOptions

# Usual names of columns, as in the data sets of sentence-transformers.
ANCHORS = (
    *("anchor", "query", "question", "sentence1", "sentence_A", "text_a"),
    *("text", "sentence"),
)
POSITIVES = ("positive", "answer", "sentence2", "sentence_B", "text_b", "passage", "document")
LABELS = ("score", "label", "similarity_score", "similarity")
NEGATIVE = "negative"  # and negatives, negative_1, negative_2, ...

TASK_NAMES = ("sts-b", "mrpc", "qqp", "mnli", "snli")


@dataclass(frozen=True, kw_only=True)
class TextsOptions:
    """Texts that belong together: a data set, or columns of .tsv, .csv and .jsonl files."""

    anchor_column: str | None = option(
        "Column of the anchor, the query, or the first text. Default: one with a usual name: "
        f"{', '.join(ANCHORS)}.",
        group="Data",
        default=None,
    )
    positive_column: str | None = option(
        "Column of the text that belongs to the anchor, or of the second text. Default: one with a "
        f"usual name: {', '.join(POSITIVES)}.",
        group="Data",
        default=None,
    )
    negative_columns: str | None = option(
        "Comma list of columns of texts that do not belong to the anchor. In JSON lines a value may be "
        f"a list of texts. Default: {NEGATIVE}, {NEGATIVE}s, and those that begin with {NEGATIVE}_; an "
        "empty list: none.",
        default=None,
    )
    label_column: str | None = option(
        "Column of the score of two texts, from 0 to 1, or of the class of one. Default: one with a "
        f"usual name: {', '.join(LABELS)}; an empty name: none.",
        group="Data",
        default=None,
    )
    data_dir: str | None = option(
        "Folder of a data set, for --task_name.", group="Data", default=None
    )
    task_name: str | None = option(
        f"Name of a data set, in any case: {', '.join(TASK_NAMES)} (the folder snli_1.0 with its .jsonl "
        "files). For your own data give --train_file instead. mnli, snli: premises with their entailed "
        "sentences, and contradictions as negatives.",
        group="Data",
        default=None,
    )

    @property
    def data_set(self) -> str | None:
        """Data set named by --task_name, in any case and with or without "-"; None without one."""
        names = {name.replace("-", ""): name for name in TASK_NAMES}
        return names.get((self.task_name or "").lower().replace("-", ""))

    def __post_init__(self) -> None:
        if self.task_name and self.data_set is None:
            end = ", ".join(TASK_NAMES) + suggestion(self.task_name, TASK_NAMES)
            raise OptionError("task_name", f"must be one of {end}")


LENGTH_OF_START: ModelOptions = changes(
    max_seq_length={
        "help": "WordPieces of a text, in run_reranker of a query with its document, with [CLS] and "
        "[SEP]. Default: that of the model of the same kind that the program begins with, else 128 (or "
        "the model's number of positions, if lower)."
    }
)


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """The flags of run_embeddings."""

    devices: DeviceOptions
    training: TrainingOptions = changes(
        train_batch_size={
            "help": "Examples per step, over all devices. The other texts of the batch are the "
            "negatives, so more are better; --gradient_accumulation_steps saves memory and keeps all of "
            "them."
        }
    )
    model: ModelOptions = LENGTH_OF_START
    fine_tuning: FineTuningOptions
    table: TableOptions = changes(text_a_column=None, text_b_column=None, choices_column=None)
    texts: TextsOptions
    loss: str | None = option(
        "Loss. Default: that of the model if it fits the examples; else multiple_negatives_ranking for "
        "anchors with positives, cosent for scores, contrastive for scores of 0 and 1, "
        "batch_all_triplet for classes.",
        group="Model",
        default=None,
        choices=tuple(EMBEDDING_LOSSES),
        on_resume="model",
    )
    scale: float | None = option(
        "Factor of the cosines in the ranking losses and cosent: 1 / temperature. Default: that of the "
        "model, else 20.",
        default=None,
        **LIMITS["scale"],
        on_resume="model",
    )
    matryoshka_dims: str | None = option(
        "Comma list of smaller widths: the loss is added for the first numbers of each vector, so that "
        "cut vectors are useful too. Default: those of the model; an empty list: none.",
        default=None,
        on_resume="model",
    )
    pooling: str | None = option(
        "Vector of a text, from those of its tokens. Default: that of the model, else mean.",
        group="Model",
        default=None,
        **LIMITS["pooling"],
    )
    normalize: bool | None = option(
        "Return vectors of length 1. Default: as the model, else true.",
        default=None,
    )
    query_prefix: str | None = option(
        'Put before every anchor, such as "query: ". Default: that of the model.',
        default=None,
    )
    document_prefix: str | None = option(
        'Put before every other text, such as "passage: ". Default: that of the model.',
        default=None,
    )

    def __post_init__(self) -> None:
        check_data(self, self.texts.data_set, self.texts.data_dir)

    @property
    def widths(self) -> tuple[int, ...] | None:
        """`matryoshka_dims` as numbers, None if not given.

        Raises:
            ValueError: a part is not a whole number of 1 or more.
        """
        if self.matryoshka_dims is None:
            return None
        parts = [part.strip() for part in self.matryoshka_dims.split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise OptionError(
                "matryoshka_dims", "must be whole numbers with commas, such as 256,128."
            )
        return tuple(int(part) for part in parts)
