"""IOB1, IOB2, BIOES: one canonical form, and which label may follow which."""

import itertools

from bert_tf.data.label_schemes import complete_labels, find_entities, to_iob2
from bert_tf.modeling.crf import WORDS, allowed_transitions

# John Smith, Ann (two persons in a row), New York
EXAMPLES = (
    "I-PER I-PER B-PER O I-LOC I-LOC",
    "B-PER I-PER B-PER O B-LOC I-LOC",
    "B-PER E-PER S-PER O B-LOC E-LOC",
    "B-PER L-PER U-PER O B-LOC L-LOC",
)


def test_to_iob2_of_every_scheme_is_the_same():
    for labels in EXAMPLES:
        assert to_iob2(labels.split()) == EXAMPLES[1].split()
    assert to_iob2(["B-X", "M-X", "E-X"]) == ["B-X", "I-X", "I-X"]


def test_complete_labels_have_both_prefixes_of_a_type():
    assert complete_labels(["O", "S-b-c", "B"]) == ("O", "B", "I", "B-b-c", "I-b-c")
    assert complete_labels(["O"]) == ("O",)


def test_allowed_transitions_are_those_of_iob2():
    labels = complete_labels(["B-X", "B"])
    allowed = allowed_transitions(labels)
    border = len(labels)
    for length in (1, 2, 3):
        for path in itertools.product(range(border), repeat=length):
            sentence = [labels[n] for n in path]
            pairs = itertools.pairwise([border, *path, border])
            is_allowed = all(allowed[before][after] for before, after in pairs)
            assert is_allowed == (to_iob2(sentence) == sentence)
    assert all(map(all, allowed_transitions(["DT", "I-X"], WORDS)))


def test_to_iob2_marks_the_same_entities():
    labels = [f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY"]
    for sentence in itertools.product(["O", "B", "I", *labels], repeat=3):
        assert find_entities(to_iob2(sentence)) == find_entities(sentence)
