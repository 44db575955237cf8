"""The flags of run_squad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.options import OptionError, option
from bert_tf.tasks.answer_decoding import ANSWER_SPANS, AnswerSettings


@dataclass(frozen=True, kw_only=True)
class SquadOptions(FineTuningOptions):
    """The flags of run_squad."""

    actions: ClassVar[tuple[str, ...]] = (*FineTuningOptions.actions, "predictions")

    train_file: str | None = option("SQuAD JSON to train on.", group="Data", default=None)
    predict_file: str | None = option("SQuAD JSON to answer.", group="Data", default=None)
    max_seq_length: int | None = option(
        "Tokens of a question and a window of its passage. Default: that of the model in --output_dir, "
        "else 384 (or the model's number of positions, if lower).",
        group="Model",
        default=None,
        on_resume="model",
    )
    doc_stride: int = option(
        "Tokens from one window of a passage to the next. An evaluation alone also takes this value, "
        "not the model's.",
        group="Model",
        default=128,
        min=1,
        on_resume="model",
    )
    max_query_length: int = option(
        "Longer questions are truncated to this many tokens. An evaluation alone also takes this "
        "value, not the model's.",
        default=64,
        min=1,
        on_resume="warn",
    )
    do_predict: bool = option(
        "Answer --predict_file. If it contains answers, exact match and F1 are written too.",
        group="Actions",
        default=False,
    )
    predict_batch_size: int = option("Windows per prediction batch.", default=8, min=1)
    n_best_size: int = option("Answers in nbest_predictions.json.", default=20, min=1)
    max_answer_length: int = option("Longest answer, in tokens.", group="Model", default=30, min=1)
    verbose_logging: bool = option("Log every malformed question.", default=False)
    answer_spans: str | None = option(
        "WordPieces of an answer. words: those of its text inside its words, else all of its words, as "
        "in the reference. characters: the fewest pieces that contain it, for answers inside words as "
        "in Thai and Arabic; predictions.json is cut by characters too. Default: that of the model in "
        "--output_dir, else words.",
        default=None,
        choices=ANSWER_SPANS,
        on_resume="model",
    )
    version_2_with_negative: bool | None = option(
        "Questions may have no answer (SQuAD 2.0). Default: that of the model in --output_dir or, "
        "without --do_train, of --init_checkpoint; else false.",
        group="Data",
        default=None,
    )
    null_score_diff_threshold: float = option(
        "The answer is empty if its value in null_odds.json exceeds this.",
        default=0.0,
        infinite=True,
    )
    predictions: str | None = option(
        "Ensemble instead of a model: comma list of the --output_dir (or nbest_predictions.json) of "
        "runs on the same --predict_file.",
        default=None,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predictions and self.do_train:
            raise OptionError("predictions", "combines finished runs: omit do_train.")
        asking = ("do_predict", "do_eval", "predictions")
        self.require_files([("do_train", "train_file"), *((ask, "predict_file") for ask in asking)])
        if self.evaluate_steps and not (self.do_train and self.asks):
            raise OptionError("evaluate_steps", "needs do_train, and do_eval or do_predict.")

    @property
    def asks(self) -> bool:
        """True if --predict_file is answered."""
        return self.do_predict or self.do_eval

    def answer_settings(
        self, version_2_with_negative: bool, answer_spans: str = "words"
    ) -> AnswerSettings:
        """Return the settings of the answers, with the values that a run has resolved."""
        return AnswerSettings(
            self.n_best_size,
            self.max_answer_length,
            version_2_with_negative,
            self.null_score_diff_threshold,
            answer_spans,
        )
