"""Questions with the tokens of their answers."""

from test_question_answering import TOKENIZER, example

from bert_tf.data.question_answering import Findings, Passage, SquadAnswer, TrainingExample
from bert_tf.tasks.answer_decoding import ANSWER_SPANS
from bert_tf.tasks.labeled_questions import label
from bert_tf.tokenization import FullTokenizer


def test_an_answer_that_the_tokenizer_drops_is_left_out_and_counted():
    passage = Passage("owl \u200b hen")
    findings = Findings()
    found = label(
        [TrainingExample(example("a", passage, "\u200b"), SquadAnswer("\u200b", 4))],
        TOKENIZER,
        findings,
    )
    assert not found
    matter = "are left out, because their answer has no tokens"
    assert findings.questions == {matter: ["a"]}


def test_answers_learned_with_more_than_they_are_are_counted_or_found_by_characters():
    tokenizer = FullTokenizer(["[UNK]", "un", "##happy", "happy", "hen"])
    passage = Passage("unhappy hen")
    chosen = [
        TrainingExample(example(name, passage, text), SquadAnswer(text, passage.text.index(text)))
        for name, text in (("inside", "happy"), ("whole", "unhappy"), ("cut", "hap"))
    ]
    spans = {}
    for answer_spans in ANSWER_SPANS:
        findings = Findings()
        found = label(chosen, tokenizer, findings, answer_spans=answer_spans)
        spans[answer_spans] = [span for _, _, span in found]
        wider = {matter: names for matter, names in findings.questions.items() if "more" in matter}
        assert list(wider.values()) == ([["inside"]] if answer_spans == "words" else [])
        assert all("--answer_spans=characters" in matter for matter in wider)
    assert spans == {
        "words": [(0, 1), (0, 1), (0, 1)],
        "characters": [(1, 1), (0, 1), (1, 1)],
    }
