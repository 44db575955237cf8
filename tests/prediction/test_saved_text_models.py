"""SavedModels by what they take and give: any program that keeps to the signatures will do.

The models here answer with what was written into them, so that only the way in and out is tested.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.predictor import Predictor, embed_all, load_saved_model
from bert_tf.programs.predict import PredictionOptions, Totals, choose_model, make_predictor


def save(folder, function, specs, signature="serving_default"):
    module = tf.Module()
    module.serve = tf.function(function, input_signature=specs, autograph=False)
    tf.saved_model.save(module, str(folder), signatures={signature: module.serve})
    return str(folder)


def strings(name, rank=1):
    return tf.TensorSpec([None] * rank, tf.string, name)


def test_entities_end_where_the_row_has_no_more(tmp_path):
    def tag(text):
        length = tf.strings.length(text, unit="UTF8_CHAR")
        start = tf.stack([tf.where(length > 0, 0, -1), tf.where(length > 4, 3, -1)], axis=1)
        end = tf.where(start >= 0, start + 1, -1)
        found = tf.where(start >= 0, 1.0, 0.0)
        part = tf.where(start >= 0, tf.strings.substr(text, 0, 1, unit="UTF8_CHAR")[:, None], "")
        kind = tf.where(start >= 0, "X", "")
        return {
            "type": kind, "start": start, "end": end, "entity": part, "probability": found
        }  # fmt: skip

    predictor = Predictor(save(tmp_path, tag, [strings("text")]), batch_size=2)
    answers = predictor.predict(["ö is long", "", "ab"])
    first = {"type": "X", "start": 0, "end": 1, "text": "ö", "probability": 1.0}
    assert answers[0]["entities"] == [first, {**first, "start": 3, "end": 4}]
    assert answers[1]["entities"] == []
    assert [entity["text"] for entity in answers[2]["entities"]] == ["a"]
    assert predictor.text_model.short(answers[0]) == "ö (X); ö (X)"


def test_choices_are_filled_up_and_cut_again(tmp_path):
    def choose(text_a, choices):
        shares = tf.cast(tf.strings.length(choices), tf.float32)  # the longest is the best
        best = tf.argmax(shares, axis=1, output_type=tf.int32)
        return {
            "prediction": best,
            "choice": tf.gather(choices, best, batch_dims=1),
            "probabilities": shares / tf.reduce_sum(shares, axis=1, keepdims=True),
        }

    folder = save(tmp_path, choose, [strings("text_a"), strings("choices", 2)])
    answers = Predictor(folder).predict([("q", ["a", "bbb"]), ("q", ["aa", "b", "c"])])
    assert answers[0] == {"prediction": 1, "choice": "bbb", "probabilities": [0.25, 0.75]}
    assert [answers[1]["choice"], answers[1]["probabilities"]] == ["aa", [0.5, 0.25, 0.25]]
    with pytest.raises(ValueError, match="A choice for 'q' is empty"):
        Predictor(folder).predict([("q", ["a", ""])])
    with pytest.raises(ValueError, match="There is 1 choice for"):
        Predictor(folder).predict([("q", ["a"])])


def test_embeddings_are_found_by_predict_and_by_embed(tmp_path):
    def embed(text_a):
        length = tf.cast(tf.strings.length(text_a), tf.float32)
        return {"embedding": tf.stack([length, -length], axis=1)}

    predictor = Predictor(save(tmp_path, embed, [strings("text_a")]), batch_size=2)
    assert predictor.embed(["abc", "", "x"]).tolist() == [[3, -3], [0, 0], [1, -1]]
    assert predictor.predict(["abc"]) == [{"embedding": [3.0, -3.0]}]
    assert predictor.predict([]) == []
    for given in ({"pooling": "cls"}, {"normalize": False}):
        with pytest.raises(
            ValueError, match=rf"^{next(iter(given))} is .* is an export, .* fixed by the export"
        ):
            choose_model(predictor, PredictionOptions(model_dir="unused", **given))
    with pytest.raises(ValueError, match=r"is a SavedModel.* Name the folder"):
        predictor.pseudo_perplexity(["abc"])


@pytest.mark.parametrize("as_query, num_cut", [(False, 2), (True, 1)])
def test_truncated_texts_of_an_export_are_counted(tmp_path, caplog, as_query, num_cut):
    def embed(text_a):
        return {"embedding": tf.ones([tf.size(text_a), 2])}

    module = tf.Module()
    module.serve = tf.function(embed, input_signature=[strings("text_a")], autograph=False)
    signatures = dict.fromkeys(("serving_default", "query"), module.serve)
    tf.saved_model.save(module, str(tmp_path), signatures=signatures)
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    facts = {"max_seq_length": 5, "do_lower_case": True}
    facts["task"] = {"document_prefix": "a ", "query_prefix": ""}
    (tmp_path / "assets.extra" / "export.json").write_text(json.dumps(facts))
    embed_all(Predictor(str(tmp_path)), ["A a", "a a a", "a a a a"], "texts", as_query)
    message = f"{num_cut} of 3 texts are longer than the longest input, 5 tokens, and were"
    assert message in caplog.text
    model = Predictor(str(tmp_path)).encoder()
    answers = model.answers(["a a a a"])
    totals = Totals()
    totals.add(answers[0])
    totals.report(model)
    assert "1 of 1 texts are longer" in caplog.text


def test_an_export_without_the_signature_of_queries_is_refused_for_queries(tmp_path):
    embed = lambda text_a: {"embedding": tf.ones([tf.size(text_a), 2])}  # noqa: E731
    save(tmp_path, embed, [strings("text_a")])
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    facts = {"max_seq_length": 5, "do_lower_case": True}
    for query_prefix, is_refused in (("a ", False), ("q ", True)):
        facts["task"] = {"document_prefix": "a ", "query_prefix": query_prefix}
        (tmp_path / "assets.extra" / "export.json").write_text(json.dumps(facts))
        predictor = Predictor(str(tmp_path))
        assert predictor.embed(["a"]).shape == (1, 2)
        if not is_refused:
            assert predictor.embed(["a"], as_query=True).shape == (1, 2)
            continue
        with pytest.raises(ValueError, match=r"Export it with signature=serving_default,query\."):
            predictor.embed(["a"], as_query=True)


def test_the_problem_type_of_an_export_without_its_task_is_that_of_its_outputs(tmp_path):
    def labels(text_a):
        rows = tf.tile([[0.75, 0.25]], [tf.size(text_a), 1])
        return {"logits": rows, "probabilities": rows, "has_label": rows > 0.5}

    def score(text_a):
        return {"logits": tf.ones([tf.size(text_a), 1]), "score": tf.ones([tf.size(text_a)])}

    for name, function, expected in (
        ("multi", labels, {"labels": ["a"], "probabilities": {"a": 0.75, "b": 0.25}}),
        ("regression", score, {"score": 1.0}),
    ):
        folder = save(tmp_path / name, function, [strings("text_a")])
        (tmp_path / name / "assets.extra").mkdir()
        names = "a\nb\n" if name == "multi" else ""
        (tmp_path / name / "assets.extra" / "labels.txt").write_text(names)
        assert Predictor(folder).predict(["x"]) == [expected]


@pytest.mark.parametrize(
    "names, outputs, task, fits, long",
    [
        (("text_a", "text_b"), ("logits",), {}, ("a", "a"), ("a", "a a")),
        (("text_a",), ("logits",), {}, "a a a", "a a a a"),
        (("text_a",), ("logits",), {"doc_stride": 1}, "a a a a", None),
        (("text_a", "choices"), ("choice",), {}, ("a", ["a", "a"]), ("a", ["a a", "a a"])),
        (("text",), ("token", "probability"), {}, "a a [MASK]", "a a a [MASK]"),
    ],
)
def test_truncated_inputs_of_every_export_are_counted(tmp_path, names, outputs, task, fits, long):
    takes = {name: {"dtype": "string"} for name in names}
    signature = {"inputs": takes, "outputs": dict.fromkeys(outputs)}
    unused = SimpleNamespace(signatures={"serving_default": signature})
    (tmp_path / "saved_model.pb").write_bytes(b"")
    folder = tmp_path / "assets.extra"
    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (folder / "labels.txt").write_text("x\ny\n")
    facts = {"max_seq_length": 5, "do_lower_case": True, "task": task}
    (folder / "export.json").write_text(json.dumps(facts))
    model = load_saved_model(str(tmp_path), runtime=unused)
    model.prepare(fits)
    assert model.num_cut == 0
    if long is not None:
        model.prepare(long)
        assert model.num_cut == 1


def test_masks_end_where_the_row_has_no_more(tmp_path):
    def fill(text):
        count = tf.size(text)
        token = tf.tile([[["a", "b"], ["c", "d"]]], [count, 1, 1])
        has_two = tf.strings.length(text) > 6
        token = tf.where(has_two[:, None, None] | [[[True], [False]]], token, "")
        return {"token": token, "probability": tf.where(tf.equal(token, ""), 0.0, 0.5)}

    predictor = Predictor(save(tmp_path, fill, [strings("text")]))
    one, two = predictor.predict(["[MASK]", "[MASK] [MASK]"])
    assert one["masks"] == [
        [{"token": "a", "probability": 0.5}, {"token": "b", "probability": 0.5}]
    ]
    assert [mask[0]["token"] for mask in two["masks"]] == ["a", "c"]
    model = choose_model(predictor, PredictionOptions(model_dir="unused", top_k=1))
    assert model.answers(["[MASK]"])[0]["masks"] == [[{"token": "a", "probability": 0.5}]]
    with pytest.raises(ValueError, match=r"There is no \[MASK\] in 'x'"):
        predictor.predict(["x"])


def test_an_export_that_fills_masks_is_asked_by_fill_mask_and_by_its_task(tmp_path):
    def fill(text):
        rows = [tf.size(text), 1, 1]
        return {
            "token": tf.tile([[["a", "b"]]], rows), "probability": tf.tile([[[0.5, 0.25]]], rows)
        }  # fmt: skip

    predictor = Predictor(save(tmp_path, fill, [strings("text")]))
    assert predictor.fill_mask("a [MASK]") == [[("a", 0.5), ("b", 0.25)]]
    assert predictor.fill_mask("a [MASK]", top_k=1) == [[("a", 0.5)]]
    asked = PredictionOptions(model_dir="unused", task="fill_mask", top_k=1)
    model = choose_model(predictor, asked)
    assert model.answers(["a [MASK]"]) == [{"masks": [[{"token": "a", "probability": 0.5}]]}]
    assert len(predictor.fill_mask("a [MASK]", top_k=2)[0]) == 2


def test_a_model_of_ids_alone_is_refused(tmp_path):
    ids = tf.TensorSpec([None, None], tf.int32, "input_ids")
    folder = save(tmp_path, lambda input_ids: {"logits": input_ids}, [ids], signature="tokens")
    with pytest.raises(ValueError, match=r"no signature serving_default on text.* export it"):
        load_saved_model(folder)


@pytest.mark.parametrize(
    "flags",
    [
        {"max_seq_length": 9},
        {"doc_stride": 3},
        {"precision": "mixed_bfloat16"},
        {"n_best_size": 3},
    ],
)
def test_what_was_fixed_when_a_model_was_exported_cannot_be_changed(tmp_path, flags):
    embed = lambda text_a: {"embedding": tf.zeros([tf.size(text_a), 2])}  # noqa: E731
    folder = save(tmp_path, embed, [strings("text_a")])
    with pytest.raises(ValueError, match=rf"^{next(iter(flags))} is .* its own, fixed by"):
        Predictor(folder, **flags)
    np.testing.assert_array_equal(Predictor(folder, precision="float32").embed(["x"]), [[0, 0]])


@pytest.mark.parametrize("beside", ["assets.extra", "."])
def test_float32_of_an_export_in_another_precision_is_refused(tmp_path, beside):
    embed = lambda text_a: {"embedding": tf.zeros([tf.size(text_a), 2])}  # noqa: E731
    folder = Path(save(tmp_path, embed, [strings("text_a")]))
    (folder / beside).mkdir(exist_ok=True)
    (folder / beside / "export.json").write_text('{"precision": "bfloat16"}')
    with pytest.raises(ValueError, match=r"^precision is float32, but .*fixed by the export"):
        Predictor(folder, precision="float32")
    Predictor(folder, precision="bfloat16")
    Predictor(folder)
    options = PredictionOptions(model_dir=str(folder))
    assert make_predictor(options).embed(["x"]).shape == (1, 2)
