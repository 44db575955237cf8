"""The flags of distillation."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.options import Options, option, reject_unused

STATES = ("none", "hidden", "relations")


@dataclass(frozen=True, kw_only=True)
class TeacherOptions(Options):
    """Flags of every program that can train with a teacher."""

    teacher: str | None = option(
        "Trained model whose outputs the model learns: the --output_dir of a run, or any folder or "
        "checkpoint that bert_tf.load opens with its weights.",
        default=None,
        on_resume="warn",
    )
    temperature: float = option(
        "Divisor of the logits of --teacher and of the model, before the softmax. Higher values give "
        "the smaller probabilities more influence.",
        default=2.0,
        above=0,
        on_resume="warn",
    )
    hard_labels: float = option(
        "Fraction of the labels in the loss, 0 to 1; the rest is for the logits of --teacher.",
        default=0.5,
        between=(0, 1),
    )
    teacher_states: str = option(
        "States of --teacher that the last layer of the model also learns. hidden: its hidden states. "
        "relations: its relations between queries, between keys and between values, as in MiniLMv2. "
        "They are computed in every step, because they are too large to store: for relations 3 * "
        "hidden size numbers per token.",
        default="none",
        choices=STATES,
    )
    teacher_layer: int | None = option(
        "Layer of --teacher for --teacher_states, from 0. Default: the last.", default=None, min=0
    )
    relation_heads: int | None = option(
        "Heads of --teacher_states=relations. Must divide both hidden sizes. Default: the number of "
        "attention heads of the model.",
        default=None,
        min=1,
    )
    states_weight: float = option("Factor of the loss of --teacher_states.", default=1.0, above=0)

    @property
    def learns_labels(self) -> bool:
        """False if the examples are learned from the teacher alone, so that they need no labels."""
        return self.teacher is None or self.hard_labels > 0

    def __post_init__(self) -> None:
        super().__post_init__()
        of_states = ("teacher_layer", "relation_heads", "states_weight")
        self._need("teacher", ("temperature", "hard_labels", "teacher_states", *of_states))
        self._need("teacher_states", of_states)
        learns_outputs = self.hard_labels < 1 or getattr(self, "unlabelled_file", None)
        if not learns_outputs and self.teacher_states == "none":
            raise ValueError(
                "hard_labels is 1, so nothing is learned from the teacher. Lower hard_labels, or give "
                "teacher_states."
            )
        if not learns_outputs:
            reject_unused(self, ("temperature",), "with hard_labels=1, which learns no logits")
