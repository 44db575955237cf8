"""A warning about a vocabulary that does not fit a text."""

from bert_tf.data.multiple_choice import Question
from bert_tf.data.question_answering import SquadExample
from bert_tf.data.token_classification import Sentence
from bert_tf.data.windows import Passage
from bert_tf.embeddings.run_reranker import RerankingTask
from bert_tf.embeddings.task import EmbeddingExample, EmbeddingTask
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.run import warn_of_unknown_words
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

TOKENS = ["[UNK]", "the", "dog", "서울", "Zürich", "."]


def warned(caplog, lines, do_lower_case=False):
    warn_of_unknown_words(lines, FullTokenizer(TOKENS, do_lower_case))
    return caplog.text


def test_only_a_vocabulary_that_does_not_fit_is_warned_about(caplog):
    for lines in ([], [""], ["cat"], ["the dog ."] * 20 + ["cats the dog"]):
        assert warned(caplog, lines) == "", lines
    assert "38%" in warned(caplog, ["the dog 한국", "수도 한국", "the dog the"] * 9)


def test_every_task_has_the_texts_of_an_example():
    for task, example in (
        (ClassificationTask(["x", "y"], 9), InputExample("1", "a", "b", "x")),
        (EmbeddingTask(9), EmbeddingExample(("a", "b"))),
        (RerankingTask(9), EmbeddingExample(("a", "b"))),
        (MultipleChoiceTask(2, 9), Question("1", "a", ("b",), 0, "f:1")),
        (TokenClassificationTask(["O", "B-X"], 9), Sentence(("a", "b"), None, 0, "f", ())),
        (QuestionAnsweringTask(99), (SquadExample("1", "a", Passage("b")), None, None)),
    ):
        assert list(task.texts(example)) == ["a", "b"], task
