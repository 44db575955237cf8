"""Raw text is split as the training words were, in Python and in a graph."""

import random

import pytest
import tensorflow as tf

from bert_tf.data.token_classification import RULES, choose_rule, join_words, split_words
from bert_tf.serving.text_tokenizer import graph_split_words

WHOLE = ("U.S.", "Yahoo!", "'s", "@a", "日本.")
OFFICES = "Yahoo! and AT&T left the U.S. for Baden-Baden , not ( for ) Kiel ."


def words_of(text, *rule):
    return [text[start:end] for start, end in split_words(text, *rule)]


def test_split_words_by_each_rule():
    text = "Yahoo!, AT&T (U.S.)...\u2028我2024年IBM。 "
    for rule, expected in (
        ("whitespace", "Yahoo!, AT&T (U.S.)... 我2024年IBM。"),
        ("outer_punctuation", "Yahoo! , AT&T ( U.S. ) . . . 我2024年IBM 。"),
        ("basic", "Yahoo ! , AT & T ( U . S . ) . . . 我 2024 年 IBM 。"),
        ("characters", " ".join("Yahoo!,AT&T(U.S.)...我2024年IBM。")),
    ):
        assert words_of(text, rule, WHOLE) == expected.split()


@pytest.mark.parametrize("rule, whole_words", [*((r, WHOLE) for r in RULES), (RULES[1], ())])
def test_graph_split_words_equals_python(rule, whole_words):
    rng, texts = random.Random(1), ["", "  ", "U.S.,", '"Yahoo!"', "In New York, 東京."]
    parts = [*"aB.!'&-1東@é😀 ", "\u00a0", "\u200d", "\u2028", "\x00", *WHOLE]
    texts += ["".join(rng.choices(parts, k=rng.randint(1, 12))) for _ in range(200)]
    placed = graph_split_words(tf.constant(texts), rule, whole_words)
    found = iter(zip(placed.starts.numpy(), placed.ends.numpy(), strict=True))
    for text, words in zip(texts, placed.words.to_list(), strict=True):
        assert [word.decode() for word in words] == words_of(text, rule, whole_words), text
        assert [next(found) for _ in words] == split_words(text, rule, whole_words)
    assert graph_split_words(tf.zeros([0], tf.string), rule, whole_words).words.to_list() == []


def test_choose_rule_finds_the_training_words():
    for sentence, expected in (
        (OFFICES.split(), ("outer_punctuation", ["U.S.", "Yahoo!"])),
        (["In", "Baden", "-", "Baden", ",", "東", "京", "."], ("basic", [])),
        (["Yahoo!", "and", "AT&T", "left", "Baden-Baden,", "not", "Kiel."], ("whitespace", [])),
        (list("我在2024年去IBM。"), ("characters", [])),
        (["我", "在", "2024", "年", "去", "IBM", "。"], ("basic", [])),
    ):
        assert choose_rule([sentence] * 2) == expected


def test_join_words_writes_as_people_do():
    text, spans = join_words(OFFICES.split())
    assert text == "Yahoo! and AT&T left the U.S. for Baden-Baden, not (for) Kiel."
    rule = choose_rule([OFFICES.split()] * 2)
    assert split_words(text, *rule) == spans
    assert words_of(OFFICES, *rule) == OFFICES.split()
