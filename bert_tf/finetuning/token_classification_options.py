"""The flags of run_ner."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.data.label_schemes import SCHEMES, WORDS
from bert_tf.finetuning.options import SPLITS, ThreeFilesOptions
from bert_tf.modeling.feature_based import FEATURE_LAYERS
from bert_tf.options import option

_BILSTM_LEARNING_RATE = 1e-3
_CRF_LEARNING_RATE = 1e-2  # of the transitions, which start at zero


@dataclass(frozen=True, kw_only=True)
class NerOptions(ThreeFilesOptions):
    """The flags of run_ner."""

    data_dir: str | None = option(
        "Folder with the three files under usual names, such as train.txt, dev.txt (or valid.txt) and "
        "test.txt. --train_file, --eval_file and --predict_file take precedence.",
        group="Data",
        default=None,
    )
    word_column: int = option("Column of the word, counted from 1.", group="Data", default=1, min=1)
    label_column: int | None = option(
        "Column of the label, counted from 1. Default: the last.", group="Data", default=None, min=1
    )
    label_scheme: str = option(
        "Scheme of the entity labels. auto: found in the training data. words: labels of words, such as "
        "parts of speech; the metrics are accuracy and macro F1. Labels that break the scheme are "
        "errors; with auto, warnings.",
        group="Data",
        default="auto",
        choices=("auto", *SCHEMES, WORDS),
    )
    document_context: bool = option(
        "Surround each sentence with its document, up to --max_seq_length, as in the paper. -DOCSTART- "
        "lines separate documents.",
        default=False,
        on_resume="warn",
    )
    doc_stride: int | None = option(
        "WordPieces from the start of a window to the next, if a sentence or document needs several. "
        "Default: half a window.",
        group="Model",
        default=None,
        min=1,
        on_resume="warn",
    )
    feature_based: bool = option(
        "Train a two-layer BiLSTM on layers of the unchanged encoder, instead of fine-tuning. Its "
        "learning rate is 1e-3.",
        group="Model",
        default=False,
    )
    feature_layers: str = option(
        "With --feature_based: layers to use.",
        default="concat_last_four_hidden",
        choices=tuple(FEATURE_LAYERS),
    )
    crf: bool = option(
        "Train a linear-chain CRF on the scores of the labels, which never takes a transition that the "
        "label scheme forbids. The model in --output_dir keeps it.",
        group="Model",
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.data_dir is None:
            self.require_files((wanted, file) for _, wanted, file in SPLITS)

    @property
    def base_learning_rate(self) -> float:
        return _BILSTM_LEARNING_RATE if self.feature_based else self.learning_rate

    @property
    def own_learning_rates(self) -> dict[str, float]:
        return {"^crf/": _CRF_LEARNING_RATE} if self.crf else {}
