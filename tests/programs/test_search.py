"""search: the documents that are nearest to a query, from texts, tables and SQuAD files."""

import json

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tiny_words_and_choices import read_json_lines, write_json_lines

import bert_tf
from bert_tf.cli import define_flags, options_from_flags, with_flags
from bert_tf.finetuning.embeddings_options import ANCHORS, POSITIVES
from bert_tf.metrics.retrieval import unit
from bert_tf.predictor import load
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.programs.search import SearchOptions, _texts, search

pytestmark = pytest.mark.usefixtures("models_loaded_once")

TEXTS = ("the owl is in the barn", "the dog is in the barn", "a cat", "a bad dog")


def test_each_query_of_the_command_line_is_answered(pretrained, tmp_path):
    (tmp_path / "texts.txt").write_text("a cat\nthe owl\n")
    values = flags.FlagValues()
    define_flags(SearchOptions, values)
    names = {"model_dir": pretrained, "documents": tmp_path / "texts.txt"}
    given = [f"--{name}={value}" for name, value in names.items()]
    output = tmp_path / "found.jsonl"
    values(["search", *given, "--query=a cat", "--query=the owl", f"--output_file={output}"])
    search(options_from_flags(SearchOptions, values))
    assert [line["query"] for line in read_json_lines(output)] == ["a cat", "the owl"]


def test_search_finds_and_ranks_the_documents(pretrained, reranker, tmp_path):
    documents = tmp_path / "documents.txt"
    documents.write_text("the owl is in the barn\n\nthe dog is in the barn\na cat\na cat\n")
    texts = ["the owl is in the barn", "the dog is in the barn", "a cat"]
    model = load(str(pretrained))
    cosines = (model.embed(["a dog"]) @ model.embed(texts).T)[0]
    given = {"model_dir": str(pretrained), "documents": str(documents), "top_k": 2}
    for name, changes in (("plain", {}), ("ranked", {"reranker": str(reranker), "depth": 3})):
        file = tmp_path / f"{name}.jsonl"
        search(SearchOptions(**given, **changes, query=("a dog",), output_file=str(file)))
        (line,) = read_json_lines(file)
        assert line["query"] == "a dog" and len(line["documents"]) == 2
        scores = [document["score"] for document in line["documents"]]
        if name == "plain":
            assert scores == pytest.approx(np.sort(cosines)[::-1][:2].tolist(), abs=1e-5)
            nearest = [texts[index] for index in np.argsort(-cosines)[:2]]
            assert [document["text"] for document in line["documents"]] == nearest
    assert scores == sorted(scores, reverse=True)
    first = line["documents"][0]
    lines = documents.read_text().splitlines()
    assert lines[first["line"] - 1] == first["text"]
    expected = load(str(reranker)).predict([("a dog", first["text"])])[0]["score"]
    assert first["score"] == pytest.approx(expected, abs=1e-4)


def test_max_seq_length_is_that_of_the_vectors(pretrained, exported, tmp_path):
    texts = ["a owl is in the barn", "a owl is here"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    given = {"documents": str(tmp_path / "texts.txt"), "query": ("a owl",), "max_seq_length": 4}
    file = tmp_path / "found.jsonl"
    search(SearchOptions(**given, model_dir=str(pretrained), output_file=str(file)))
    (line,) = read_json_lines(file)
    assert [each["score"] for each in line["documents"]] == pytest.approx([1, 1], abs=1e-5)
    with pytest.raises(ValueError, match=r"max_seq_length is .*, fixed by the export"):
        search(SearchOptions(**given, model_dir=str(exported.single)))


def test_queries_and_documents_come_from_tables_and_squad_files(pretrained, tmp_path):
    answers = [{"text": "owl", "answer_start": 2}]
    paragraph = {"context": "a owl", "qas": [{"id": "1", "question": "who ?", "answers": answers}]}
    values = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "squad.json").write_text(json.dumps(values))
    (tmp_path / "table.csv").write_text("id,passage\n1,a cat\n2,\n")
    (tmp_path / "queries.tsv").write_text("q\nwho\n")
    settings = {
        "model_dir": str(pretrained),
        "documents": f"{tmp_path}/squad.json,{tmp_path}/table.csv",
        "input_file": f"{tmp_path}/queries.tsv,{tmp_path}/squad.json",
        "output_file": str(tmp_path / "found.jsonl"),
    }
    with pytest.raises(
        ValueError, match=r"queries.tsv:1: the columns are q, .* Name one with query_c"
    ):
        search(SearchOptions(**settings))
    search(SearchOptions(**settings, query_column="q"))
    found = read_json_lines(tmp_path / "found.jsonl")
    assert [each["query"] for each in found] == ["who", "who ?"]
    assert {document["text"] for document in found[0]["documents"]} == {"a owl", "a cat"}
    with pytest.raises(ValueError, match="depth=3 has no effect without `reranker`"):
        SearchOptions(**settings, depth=3)


def test_search_refuses_what_it_cannot_use(pretrained, reranker, sentence_model, tmp_path):
    (tmp_path / "empty.txt").write_text("\n")
    given = {
        "model_dir": str(pretrained),
        "documents": str(tmp_path / "empty.txt"),
        "query": ("a",),
    }
    with pytest.raises(ValueError, match=r"empty.txt contains no text"):
        search(SearchOptions(**given))
    (tmp_path / "empty.txt").write_text("a cat\n")
    for other in (sentence_model, pretrained):
        with pytest.raises(ValueError, match="has no score for a pair of texts"):
            search(SearchOptions(**given, reranker=str(other)))
    for folder in (reranker, sentence_model):
        with pytest.raises(
            ValueError, match="is a model for classification, whose vectors are not"
        ):
            search(SearchOptions(**{**given, "model_dir": str(folder)}))
    with pytest.raises(ValueError, match="depth is 3, but must be top_k=10 or more"):
        SearchOptions(**given, reranker="r", depth=3)
    with pytest.raises(ValueError, match="query is ' ', but must be a text that is not empty"):
        SearchOptions(**{**given, "query": (" ",)})
    with pytest.raises(ValueError, match=r"query is '\\u200b', but must be a text that is not"):
        SearchOptions(**{**given, "query": ("\u200b",)})
    with pytest.raises(ValueError, match="Give either `query` or `input_file`"):
        SearchOptions(**given, input_file="b")


@pytest.mark.parametrize(
    "name, value, source",
    [
        ("document_column", "x", "documents"),
        ("query_column", "x", "input_file"),
        ("header", False, "documents"),
    ],
)
def test_search_refuses_a_flag_of_tables_without_a_table(tmp_path, name, value, source):
    (tmp_path / "texts.txt").write_text("a cat\n")
    files = {"documents": f"{tmp_path}/texts.txt", "input_file": f"{tmp_path}/texts.txt"}
    message = f"{name}={value} has no effect, because {source} names no table"
    for queries in (files, {**files, "input_file": None, "query": ("a",)}):
        with pytest.raises(ValueError, match=message):
            search(SearchOptions(model_dir="m", **queries, **{name: value}))


def test_search_opens_its_output_before_the_model(tmp_path, monkeypatch):
    (tmp_path / "documents.txt").write_text("a cat\n")
    monkeypatch.setattr("bert_tf.programs.search.Predictor", lambda *_, **__: pytest.fail("loaded"))
    files = {"documents": f"{tmp_path}/documents.txt", "output_file": f"{tmp_path}/documents.txt/x"}
    with pytest.raises(tf.errors.OpError):
        search(SearchOptions(model_dir="m", query=("a",), **files))


@pytest.mark.parametrize("flag, names", [("document_column", POSITIVES), ("query_column", ANCHORS)])
def test_search_knows_the_columns_of_run_embeddings(tmp_path, flag, names):
    given = SearchOptions(model_dir="m", documents="d", query=("q",))
    for name in names:
        (tmp_path / "table.tsv").write_text(f"id\t{name}\n1\ta cat\n")
        found = list(_texts(given, str(tmp_path / "table.tsv"), flag))
        assert found == [("a cat", {"line": 2, "row": {"id": "1"}})]


def test_search_keeps_the_other_columns_and_one_of_equal_texts(pretrained, tmp_path, caplog):
    caplog.set_level("INFO")
    rows = ("7,A cat,3", "8,A  cat,4", "9,the owl,5", "10,a CAT,6", "11,,7")
    (tmp_path / "table.csv").write_text("\n".join(("sku,Text,price", *rows)))
    given = {"model_dir": str(pretrained), "documents": str(tmp_path / "table.csv")}
    output = tmp_path / "found.jsonl"
    search(SearchOptions(**given, query=("a cat",), output_file=str(output)))
    (line,) = read_json_lines(output)
    found = {each["text"]: (each["line"], each["row"]) for each in line["documents"]}
    assert found == {
        "A cat": (2, {"sku": "7", "price": "3"}),
        "the owl": (4, {"sku": "9", "price": "5"}),
        "a CAT": (5, {"sku": "10", "price": "6"}),
    }
    assert "table.csv: document in 'Text'" in caplog.text
    assert "1 documents were left out, because they equal an earlier one except" in caplog.text
    assert "table.csv: 1 rows without a text were skipped, the last in line 6" in caplog.text


def test_search_skips_null_as_it_skips_empty_cells(tmp_path, caplog):
    given = SearchOptions(model_dir="m", documents="d", query=("q",))
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "a cat"}\n{"text": null}\n')
    assert list(_texts(given, str(path), "document_column")) == [("a cat", {"line": 1})]
    assert "t.jsonl: 1 rows without a text were skipped, the last in line 2" in caplog.text
    path.write_text('{"text": 5}\n')
    with pytest.raises(ValueError, match=r"t.jsonl:1: text is 5, but must be a text"):
        list(_texts(given, str(path), "document_column"))


def test_search_writes_halves_of_surrogate_pairs_as_escapes(pretrained, tmp_path):
    row = {"text": "a cat \ud83d", "title": "\ude00", "query": "who \ud83d"}
    write_json_lines(tmp_path / "texts.jsonl", [row])
    files = dict.fromkeys(("documents", "input_file"), f"{tmp_path}/texts.jsonl")
    output = tmp_path / "found.jsonl"
    search(SearchOptions(model_dir=str(pretrained), **files, output_file=str(output)))
    (line,) = read_json_lines(output)
    (found,) = line["documents"]
    assert line["query"] == row["query"]
    assert (found["text"], found["row"]["title"]) == (row["text"], row["title"])


def test_search_keeps_the_origin_of_the_queries(pretrained, tmp_path):
    (tmp_path / "texts.txt").write_text("a cat\n")
    (tmp_path / "queries.csv").write_text("id,query\n3,who\n4,\n5,a cat\n")
    (tmp_path / "queries.txt").write_text("\nwho\n")
    files = [f"{tmp_path}/queries.{ending}" for ending in ("csv", "txt")]
    given = {"documents": f"{tmp_path}/texts.txt", "input_file": ",".join(files)}
    output = tmp_path / "found.jsonl"
    search(SearchOptions(model_dir=str(pretrained), **given, output_file=str(output)))
    found = [{**line, "documents": len(line["documents"])} for line in read_json_lines(output)]
    assert found == [
        {"query": "who", "file": files[0], "line": 2, "row": {"id": "3"}, "documents": 1},
        {"query": "a cat", "file": files[0], "line": 4, "row": {"id": "5"}, "documents": 1},
        {"query": "who", "file": files[1], "line": 2, "documents": 1},
    ]


def test_search_compares_the_first_numbers_of_vectors(pretrained, tmp_path):
    texts = ["the owl is in the barn", "the dog is in the barn", "a cat"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    given = {"model_dir": str(pretrained), "documents": str(tmp_path / "texts.txt")}
    output = tmp_path / "found.jsonl"
    search(SearchOptions(**given, query=("a dog",), output_file=str(output), truncate_dim=3))
    (line,) = read_json_lines(output)
    model = load(str(pretrained))
    query, *documents = unit(model.embed(["a dog", *texts])[:, :3])
    expected = {text: float(query @ each) for text, each in zip(texts, documents, strict=True)}
    found = {each["text"]: each["score"] for each in line["documents"]}
    assert found == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match=r"truncate_dim is 999, but the vectors have \d+ numbers"):
        search(SearchOptions(**given, query=("a",), truncate_dim=999))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": "queries.csv"}, r"queries.csv:1: the columns are q, .* query_column"),
        ({"query": ("a",), "truncate_dim": 999}, r"truncate_dim is 999, but the vectors have \d+"),
    ],
)
def test_search_finds_faults_before_it_encodes(pretrained, tmp_path, monkeypatch, changes, message):
    (tmp_path / "texts.txt").write_text("a cat\n")
    (tmp_path / "queries.csv").write_text("q\nwho\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "bert_tf.programs.search.embed_all", lambda *_, **__: pytest.fail("encoded")
    )
    with pytest.raises(ValueError, match=message):
        search(SearchOptions(model_dir=str(pretrained), documents="texts.txt", **changes))


def test_search_counts_documents_that_are_too_long(pretrained, tmp_path, caplog):
    (tmp_path / "documents.txt").write_text("a cat\n" + "a dog " * 200 + "\n")
    given = {"model_dir": str(pretrained), "documents": str(tmp_path / "documents.txt")}
    search(SearchOptions(**given, query=("a",), output_file=str(tmp_path / "found.jsonl")))
    assert "1 of 2 documents are longer than the longest input, " in caplog.text


def test_other_modules_need_a_pooling_that_search_has(pretrained, tmp_path):
    pytest.importorskip("safetensors")
    folder, tokenizer = tmp_path / "folder", bert_tf.FullTokenizer.from_pretrained(str(pretrained))
    encoder = bert_tf.BertModel.from_pretrained(str(pretrained))
    encoder.save_pretrained(folder, tokenizer)
    types = [
        {"type": f"sentence_transformers.models.{n}", "path": ""} for n in ("Transformer", "LSTM")
    ]
    (folder / "modules.json").write_text(json.dumps(types))
    (tmp_path / "texts.txt").write_text("a cat\nthe owl\n")
    output = tmp_path / "found.jsonl"
    given = {"documents": f"{tmp_path}/texts.txt", "query": ("a cat",), "output_file": str(output)}
    with pytest.raises(ValueError, match=r"modules Transformer, LSTM.*Give pooling=mean") as error:
        search(SearchOptions(model_dir=str(folder), **given))
    assert "Give --pooling=mean" in with_flags(str(error.value), SearchOptions)
    search(SearchOptions(model_dir=str(folder), pooling="mean", **given))
    assert json.loads(output.read_text())["documents"][0]["text"] == "a cat"


@pytest.mark.slow
@pytest.mark.long
def test_an_export_ranks_like_the_folder(reranker, pretrained, tmp_path):
    saved = str(tmp_path / "saved" / "1")
    export_saved_model(ExportOptions(model_dir=str(reranker), export_dir=saved, warm_up=False))
    documents = str(write_json_lines(tmp_path / "texts.jsonl", [{"text": t} for t in TEXTS]))
    found = []
    for folder in (str(reranker), saved):
        file = tmp_path / "found.jsonl"
        given = {"documents": documents, "query": ("a dog",), "output_file": str(file)}
        search(SearchOptions(model_dir=str(pretrained), reranker=folder, **given))
        found.append(json.loads(file.read_text())["documents"])
    assert [each["text"] for each in found[0]] == [each["text"] for each in found[1]]
    scores = [[each["score"] for each in documents] for documents in found]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)
