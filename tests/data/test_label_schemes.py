"""IOB1, IOB2, BIOES: which labels break them, and which scheme some labels are in."""

import itertools

import pytest

from bert_tf.data.label_schemes import (
    SCHEMES,
    WORDS,
    complete_labels,
    convert_scheme,
    find_entities,
    find_scheme,
    find_violations,
)
from bert_tf.modeling.crf import allowed_transitions

# John Smith, Ann (two persons in a row), New York
EXAMPLES = {
    "iob1": "I-PER I-PER B-PER O I-LOC I-LOC",
    "iob2": "B-PER I-PER B-PER O B-LOC I-LOC",
    "bioes": "B-PER E-PER S-PER O B-LOC E-LOC",
}


def test_find_scheme_takes_the_fewest_violations():
    for scheme, labels in EXAMPLES.items():
        assert list(find_violations(labels.split(), scheme)) == []
        assert find_scheme([labels.split()]) == scheme
        assert all(list(find_violations(labels.split(), other)) for other in {*SCHEMES} - {scheme})
    assert find_scheme([EXAMPLES["iob2"].split()] * 3 + [["O", "I-PER"]]) == "iob2"
    assert find_scheme([["O", "O"]]) == "iob2"


def test_find_violations_names_the_label_with_its_place():
    for scheme, labels, expected in (
        ("iob2", "O I-PER", (1, "I-PER after O")),
        ("iob2", "B-PER I-LOC", (1, "I-LOC after B-PER")),
        ("iob2", "I-PER", (0, "I-PER after O")),
        ("iob2", "B-PER E-PER", (1, "E-PER is not a label of iob2")),
        ("iob1", "O B-PER", (1, "B-PER after O")),
        ("iob1", "I-LOC B-PER", (1, "B-PER after I-LOC")),
        ("bioes", "B-PER O", (1, "O after B-PER")),
        ("bioes", "O E-PER", (1, "E-PER after O")),
        ("bioes", "B-PER E-LOC", (1, "E-LOC after B-PER")),
        ("bioes", "O B-PER", (1, "the end of the sentence after B-PER")),
        ("bioes", "S-PER I-PER E-PER", (1, "I-PER after S-PER")),
    ):
        assert list(find_violations(labels.split(), scheme)) == [expected], labels


def test_complete_labels_have_all_prefixes_of_a_type():
    assert complete_labels(["O", "S-b-c"], "bioes") == ("O", "B-b-c", "I-b-c", "E-b-c", "S-b-c")
    assert complete_labels(["O"], "iob2") == ("O",)
    labels = ["NN", "DT", "O", "E-X"]
    assert complete_labels(labels, WORDS) == ("DT", "E-X", "NN", "O")
    assert list(find_violations(labels, WORDS)) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_allowed_transitions_are_those_of_unbroken_sentences(scheme):
    labels = complete_labels(["B-X", "B"], scheme)
    allowed = allowed_transitions(labels, scheme)
    border = len(labels)
    for length in (1, 2, 3):
        for path in itertools.product(range(border), repeat=length):
            pairs = itertools.pairwise([border, *path, border])
            is_allowed = all(allowed[before][after] for before, after in pairs)
            assert is_allowed == (not any(find_violations([labels[n] for n in path], scheme)))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_convert_scheme_marks_the_same_entities(scheme):
    labels = complete_labels(["B-X", "B"], scheme)
    for sentence in itertools.product(labels, repeat=4):
        found = convert_scheme(sentence, scheme)
        assert not any(find_violations(found, scheme)) and set(found) <= set(labels)
        assert find_entities(found) == find_entities(sentence)
        if not any(find_violations(sentence, scheme)):
            assert found == sentence
