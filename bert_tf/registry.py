"""The types of task, and their classes in each package.

A user registers a type from its own module, with its classes (examples/custom_head.py). Those of this
package are named by module and imported on first use, so that every package may look up a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bert_tf.limits import DataError


class UnknownTaskError(DataError):
    """A task that this package does not have, such as a custom task trained by `bert_tf.Trainer`."""


_ROOT = ("output_weights", "output_bias")
_MASKED_LM = "cls/predictions/"
_NEXT_SENTENCE = "cls/seq_relationship/"
_ENTITIES = 'predict(["John Smith lives in New York."])'
_CHOICE = 'predict([("He opens the door.", ["He goes in.", "He eats it."])])'
_FILL = 'fill_mask("The dog [MASK] at the cat.")'


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """A type of task, or a head without a task. `register_task` makes one known.

    Args:
        name: in task.json and `--head`.
        architecture: Hugging Face's class, or "".
        variables: prefixes of the names of the head's variables; whole names at the root.
        optional: the same of variables that only some models of this type have.
        uses_pooler: True if Hugging Face's class has a pooler. Our models and the reference's always
            do.
        has_labels: True if the outputs have names.
        model, task, served: a class, `module:Class` in this package, or "".
        predictor: `TextModel` of a user's own type; `predictor.TEXT_MODELS` has the others.
        outputs: outputs of `model` that belong to this head; () for all.
        program: fine-tuning or pre-training program, or "".
        pipeline: name of the pipeline on Hugging Face's hub.
        usage: call of `bert_tf.load(folder)`, for the model card.
    """

    name: str
    architecture: str = ""
    variables: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    uses_pooler: bool = True
    has_labels: bool = False
    model: str | type
    task: str | type = ""
    predictor: type | None = None
    served: str | type = ""
    outputs: tuple[str, ...] = ()
    program: str = ""
    pipeline: str = "feature-extraction"
    usage: str = 'embed(["A dog barked."])'

    def load(self, part: str) -> Any:
        """Return the class in a field such as `task`, or None if the type has none."""
        value = getattr(self, part)
        if not isinstance(value, str):
            return value
        module, _, attribute = value.partition(":")
        return getattr(import_module(f"bert_tf.{module}"), attribute) if value else None

    def owns(self, variable: str) -> bool:
        """Return True if a variable belongs to this head."""
        starts = (*self.variables, *self.optional)
        return variable in starts or variable.startswith(
            tuple(start for start in starts if "/" in start)
        )


TYPES = {
    entry.name: entry
    for entry in (
        TaskType(
            name="encoder",
            architecture="BertModel",
            model="modeling.bert:BertModel",
            outputs=("sequence_output", "pooled_output"),
            served="serving.encoder:ServedEncoder",
        ),
        TaskType(
            name="pretraining",
            architecture="BertForPreTraining",
            variables=(_MASKED_LM, _NEXT_SENTENCE),
            model="modeling.models:BertForPreTraining",
            task="tasks.pretraining:PretrainingTask",
            program="run_pretraining",
            pipeline="fill-mask",
            usage=_FILL,
        ),
        TaskType(
            name="masked_lm",
            architecture="BertForMaskedLM",
            variables=(_MASKED_LM,),
            uses_pooler=False,
            model="modeling.models:BertForPreTraining",
            outputs=("masked_lm_logits",),
            served="serving.masked_lm:ServedMaskFiller",
            pipeline="fill-mask",
            usage=_FILL,
        ),
        TaskType(
            name="next_sentence",
            architecture="BertForNextSentencePrediction",
            variables=(_NEXT_SENTENCE,),
            model="modeling.models:BertForPreTraining",
            outputs=("next_sentence_logits",),
        ),
        TaskType(
            name="classification",
            architecture="BertForSequenceClassification",
            variables=_ROOT,
            has_labels=True,
            model="modeling.models:BertForSequenceClassification",
            task="tasks.classification:ClassificationTask",
            served="serving.classification:ServedClassifier",
            program="run_classifier",
            pipeline="text-classification",
            usage='predict(["A text."])',
        ),
        TaskType(
            name="token_classification",
            architecture="BertForTokenClassification",
            variables=_ROOT,
            uses_pooler=False,
            has_labels=True,
            model="modeling.models:BertForTokenClassification",
            task="tasks.token_classification:TokenClassificationTask",
            served="serving.token_classification:ServedTagger",
            program="run_ner",
            pipeline="token-classification",
            usage=_ENTITIES,
        ),
        TaskType(
            name="question_answering",
            architecture="BertForQuestionAnswering",
            variables=("cls/squad/",),
            uses_pooler=False,
            model="modeling.models:BertForQuestionAnswering",
            task="tasks.question_answering:QuestionAnsweringTask",
            served="serving.question_answering:ServedAnswerer",
            program="run_squad",
            pipeline="question-answering",
            usage='predict([("Who won?", "Denver beat Carolina.")])',
        ),
        TaskType(
            name="multiple_choice",
            architecture="BertForMultipleChoice",
            variables=_ROOT,
            model="modeling.models:BertForMultipleChoice",
            task="tasks.multiple_choice:MultipleChoiceTask",
            served="serving.multiple_choice:ServedChooser",
            program="run_swag",
            pipeline="multiple-choice",
            usage=_CHOICE,
        ),
        TaskType(
            name="embeddings",
            optional=("cls/embedding/",),
            uses_pooler=False,  # only with pooling=pooled
            model="modeling.models:BertForSentenceEmbedding",
            task="tasks.embeddings:EmbeddingTask",
            served="serving.embeddings:ServedEmbedder",
            program="run_embeddings",
            pipeline="sentence-similarity",
            usage='embed(["Who won?"], as_query=True) @ model.embed(["Denver beat Carolina."]).T',
        ),
    )
}
BY_ARCHITECTURE = {entry.architecture: entry for entry in TYPES.values() if entry.architecture}
TASK_FILE = "task.json"  # next to our checkpoints; `task` in it is a name


def has_task(name: object) -> bool:
    """Return True if a type with a task has this name."""
    return any(entry.task and entry.name == name for entry in TYPES.values())


def type_of_model(cls: type) -> TaskType | None:
    """Return the type of a class of models, which a subclass shares, or None."""
    names = (base.__name__ for base in cls.__mro__)
    return next((BY_ARCHITECTURE[name] for name in names if name in BY_ARCHITECTURE), None)


def register_task(entry: TaskType) -> None:
    """Make a type of task known: `bert_tf.load` and `predict` then answer with a model of `Trainer`.

    Args:
        entry: `name` and `task` are those of a `bert_tf.Task`, `predictor` is a
            `prediction.text_model.TextModel`. An earlier entry of this name is replaced.

    Raises:
        ValueError: the task has another name.
    """
    if entry.load("task").name != entry.name:
        raise ValueError(f"`name` is {entry.name!r}, but must be the `name` of the task.")
    TYPES[entry.name] = entry
