"""run_reranker: targets of its examples, and the order of equal scores."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.reranking import documents_of_rows, with_negatives
from bert_tf.metrics.retrieval import relevance
from bert_tf.tasks.embeddings import EmbeddingExample
from bert_tf.tasks.reranking import RERANKING_LOSSES


@pytest.mark.parametrize("loss", RERANKING_LOSSES)
def test_every_loss_falls_if_the_positive_rises(loss):
    examples = [EmbeddingExample((f"q{n}", f"p{n}"), origin=f"f:{n}") for n in range(4)]
    labels = tf.constant([each.label for each in with_negatives(examples, 2, seed=1)])
    low, high = (
        RERANKING_LOSSES[loss](tf.constant([[score, 0.0, 0.0]] * 4), tf.ones([4, 3]), labels)
        for score in (-1.0, 1.0)
    )
    assert np.all(high.numpy() < low.numpy())


def test_a_negative_that_is_a_positive_in_another_row_is_left_out():
    texts = [("a", "1", "2", "3"), ("a", "2", "3"), ("b", "4")]
    found = with_negatives([EmbeddingExample(each) for each in texts], 1, seed=1)
    assert [each.texts for each in found[:2]] == [("a", "1", "3"), ("a", "2", "3")]


def test_the_anchor_is_no_negative_of_itself():
    texts = [("a", "1", "a", "2"), ("b", "a")]
    found = with_negatives([EmbeddingExample(each) for each in texts], 1, seed=1)
    assert found[0].texts == ("a", "1", "2")


def test_relevant_documents_are_last_and_queries_without_negatives_are_counted(caplog):
    texts = [("a", "1", "2"), ("a", "3", "1", "4"), ("b", "5")]
    examples = [EmbeddingExample(each) for each in texts]
    queries, documents, relevant = relevance(each.texts for each in examples)
    found = documents_of_rows(examples, queries, documents, relevant)
    names = list(documents)
    assert [[names[index] for index in row] for row in found] == [["2", "4", "1", "3"], ["5"]]
    assert "1 of 2 queries have no negatives" in caplog.text
