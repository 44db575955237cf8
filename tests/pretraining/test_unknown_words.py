"""A warning about a vocabulary that does not fit a text."""

import unicodedata

import pytest

from bert_tf.data.multiple_choice import Question
from bert_tf.data.question_answering import Passage, SquadExample
from bert_tf.data.token_classification import Sentence
from bert_tf.pretraining.unknown_words import warn_of_unknown_words
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.embeddings import EmbeddingExample, EmbeddingTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.reranking import RerankingTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

TOKENS = ["[UNK]", "the", "dog", "서울", "Zürich", "."]


def warned(caplog, lines, do_lower_case=False):
    warn_of_unknown_words(lines, FullTokenizer(TOKENS, do_lower_case))
    return caplog.text


@pytest.mark.parametrize("lines", [[], [""], ["cat"], ["the dog ."] * 20 + ["cats the dog"]])
def test_there_is_no_warning_of_few_words_or_below_5_percent(caplog, lines):
    assert warned(caplog, lines) == ""


def test_the_share_the_most_frequent_unknown_word_and_the_remedy_are_named(caplog):
    text = warned(caplog, ["the dog 한국", "수도 한국", "the dog the"] * 9)
    assert "38% of the words are [UNK] with this vocabulary of 6 tokens" in text
    assert "such as '한국'. Below 5% is usual" in text and "create_vocab" in text
    assert len(text.splitlines()) == 1


def test_the_other_case_is_the_remedy_if_it_helps(caplog):
    assert "Use --do_lower_case=False" in warned(caplog, ["서울 Zürich"] * 9, True)


def test_the_unicode_form_is_the_remedy_if_it_helps(caplog):
    assert "the form NFC" in warned(caplog, [unicodedata.normalize("NFD", "서울 Zürich")] * 9)


def test_learning_with_all_characters_is_the_remedy_if_a_few_are_missing(caplog):
    text = warned(caplog, ["the dog !", "the . dog; the", "dog; the dog ?"] * 9)
    assert "such as ';'. Below" in text and "The vocabulary lacks ; ! ?: learn it with" in text
    assert "create_vocab --character_coverage=1" in text and "language" not in text


def test_another_alphabet_is_not_a_few_missing_characters(caplog):
    text = "Жил-был у бабушки серенький козлик, вот как, хороший, умный, пёстрый; эхо, юг, цель, щи"
    assert "Use a vocabulary of this language" in warned(caplog, [text] * 9)


@pytest.mark.parametrize(
    "task, example",
    [
        (ClassificationTask(["x", "y"], 9), InputExample("1", "a", "b", "x")),
        (EmbeddingTask(9), EmbeddingExample(("a", "b"))),
        (RerankingTask(9), EmbeddingExample(("a", "b"))),
        (MultipleChoiceTask(2, 9), Question("1", "a", ("b",), 0, "f:1")),
        (TokenClassificationTask(["O", "B-X"], 9), Sentence(("a", "b"), None, 0, "f", ())),
        (QuestionAnsweringTask(99), (SquadExample("1", "a", Passage("b")), None, None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_task_has_the_texts_of_an_example(task, example):
    assert list(task.texts(example)) == ["a", "b"]
