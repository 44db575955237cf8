"""The examples of run_embeddings from one file: a table of pairs, scores or classes, or a SQuAD file."""

import json
import logging

import pytest
from tiny_embeddings import options, write
from tiny_words_and_choices import write_json_lines

from bert_tf.cli import with_flags
from bert_tf.finetuning.embeddings_data import read_examples
from bert_tf.finetuning.embeddings_options import EmbeddingOptions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nx\ty\n", r"t.tsv:1: the columns are a, b, and none has the name of an anchor"),
        ("anchor\nx\n", "The anchor in 'anchor' needs a positive or a class"),
        ("anchor\tpositive\nx\t\n", r"t.tsv:2: positive is '', but must be a text"),
        ("anchor\tpositive\nx\t\u200b\n", r"t.tsv:2: positive is '\\u200b', but must be a text"),
        ("text_a\ttext_b\tscore\nx\ty\t3\n", r"score is '3', but a score must be a number from 0"),
        ("text_a\ttext_b\tscore\nx\ty\t-.1\n", r"'-.1', .* -1 to 1 write \(score \+ 1\) / 2\."),
        ("text_a\ttext_b\tscore\nx\ty\tnan\n", "score is 'nan'"),
        (
            "text_a\ttext_b\tscore\nx\ty\t0,8\n",
            r"t.tsv:2: score is '0,8', but .* number .* Write a decimal point, not a comma",
        ),
        ("text_a\ttext_b\tscore\nx\ty\tTRUE\n", "score is 'TRUE', .* Write 1 for true and 0 for"),
        (
            "text_a\ttext_b\tlabel\nx\ty\tsame\n",
            r"'same', but a score must be a number.* label_column \(an empty name: none\)",
        ),
        ("text\tlabel\nx\tA\ny\tA\n", "every text has the class 'A', but .* label_column"),
        ("text\tlabel\nx\té\ny\te\u0301\n", r"t.tsv:3: the label is 'e\\u0301', but '\\xe9'"),
        ("anchor\tnegative\tlabel\nx\ty\tA\n", "needs a positive"),
        (
            "anchor\tpositive\tnegatives\nx\ty\t['a', 'b']\n",
            r"t.tsv:2: column 'negatives' contains .* a list, but must contain one text.* JSON lines",
        ),
        ("anchor\tpositive\n", "t.tsv has no examples"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, text, message):
    file = write(tmp_path / "t.tsv", text)
    with pytest.raises(ValueError, match=message):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))


def test_a_score_of_json_lines_is_a_number(tmp_path):
    rows = [{"text_a": "x", "text_b": "y", "score": True}]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    with pytest.raises(ValueError, match=r"score is True, .* Write 1 for true and 0 for false"):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))


def test_empty_rows_of_a_spreadsheet_are_skipped_and_counted(tmp_path, caplog):
    file = write(tmp_path / "t.csv", "anchor,positive,note\na,b,c\n,,\nd,e,\n,,\n")
    _, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert [each.texts for each in splits["train"]] == [("a", "b"), ("d", "e")]
    assert "2 rows without any text were skipped, the last in" in caplog.text
    assert "t.csv:5" in caplog.text


def test_the_sentence_of_a_table_with_classes_is_its_anchor(tmp_path):
    file = write(tmp_path / "t.tsv", "sentence\tlabel\nx\tA\ny\tB\nz\tA\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert kinds == {"train": "classes"}
    assert [example.texts for example in splits["train"]] == [("x",), ("y",), ("z",)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sentence1,other,label\na,b,1\n", "'sentence1' is a name for two texts"),
        ("text,other,Similarity\na,b,1\n", "'Similarity' is a name for two texts"),
        ("text,other,label\na,b,1\nc,d,0.5\n", "label is '0.5', a score of two texts"),
        ('text,other,label\na,b,2\nc,d,"0,5"\n', "label is '0,5', a score of two texts"),
    ],
)
def test_a_table_of_two_texts_with_one_column_misnamed_has_no_classes(tmp_path, text, why):
    given = {"do_train": True, "train_file": write(tmp_path / "t.csv", text)}
    header = text.partition("\n")[0].replace(",", ", ")
    message = rf"t.csv:\d: the columns are {header}. {why}, but only one text.* positive_column"
    with pytest.raises(ValueError, match=message):
        read_examples(options(tmp_path / "out", **given))
    named = options(tmp_path / "out", positive_column="other", **given)
    if "2" not in text:
        assert read_examples(named)[0] == {"train": "scores"}


@pytest.mark.parametrize("labels", ["1 2 1.0", "v1.5 inf 2", "-1 1 -1"])
def test_names_and_whole_numbers_are_classes(tmp_path, labels):
    rows = [{"query": "x", "label": label} for label in labels.split()]
    given = {"do_train": True, "train_file": write_json_lines(tmp_path / "t.jsonl", rows)}
    assert read_examples(options(tmp_path / "out", **given))[0] == {"train": "classes"}


def test_a_name_in_other_capitals_than_given_is_suggested(tmp_path):
    file = write(tmp_path / "t.tsv", "ANCHOR\tpositive\nx\ty\n")
    given = {"do_train": True, "train_file": file, "anchor_column": "anchor"}
    with pytest.raises(ValueError, match=r"t.tsv:1: no column 'anchor'; did you mean \"ANCHOR\"\?"):
        read_examples(options(tmp_path / "out", **given))


def test_usual_names_of_columns_may_have_any_case(tmp_path):
    file = write(tmp_path / "t.tsv", "Sentence_a\tSENTENCE_B\tNegative\tNEGATIVE_2\na\tb\tc\td\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert kinds == {"train": "pairs"}
    assert splits["train"][0].texts == ("a", "b", "c", "d")


def test_spaces_around_the_names_of_columns_do_not_count(tmp_path):
    file = write(tmp_path / "t.csv", "query, positive , label\na,b, 1\nc,d, 0\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert kinds == {"train": "scores"}
    assert [each.label for each in splits["train"]] == [1.0, 0.0]
    file = write(tmp_path / "t.csv", "sentence1, label\na, x\nb, y\n")
    with pytest.raises(ValueError, match="'sentence1' is a name for two texts"):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    file = write(tmp_path / "t.csv", " sentence1,label\na,x\nb,y\n")
    with pytest.raises(ValueError, match="' sentence1' is a name for two texts"):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))


def test_the_log_names_columns_that_are_not_read(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = write(tmp_path / "t.csv", "query,positive,relevance\na,b,1\nc,d,0\n")
    read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert "t.csv: not read: relevance" in caplog.text
    file = write(tmp_path / "n.csv", "query,positive,negative,label\na,b,e,1\nc,d,f,0\n")
    read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert "n.csv:1: 'label' is not used as a score" in caplog.text


def test_a_table_of_another_name_names_no_flag_of_another_program(tmp_path):
    given = {"do_train": True, "train_file": write(tmp_path / "t.txt", "anchor\tpositive\n")}
    with pytest.raises(ValueError, match=r"unknown format of a table.* Rename the file\.$"):
        read_examples(options(tmp_path / "out", **given))


def test_columns_may_be_named_and_have_several_negatives(tmp_path):
    text = "q,good,bad1,bad2\nwho,me,you,\nwhat,this,that,it\n"
    file = write(tmp_path / "t.csv", text)
    given = {"anchor_column": "q", "positive_column": "good", "negative_columns": "bad1,bad2"}
    _, splits = read_examples(options(tmp_path, do_train=True, train_file=file, **given))
    texts = [example.texts for example in splits["train"]]
    assert texts == [("who", "me", "you"), ("what", "this", "that", "it")]


@pytest.mark.parametrize("name", ["hard_negative", "negs", "Negative 1"])
def test_a_column_that_may_have_negatives_and_is_not_read_is_a_warning(tmp_path, caplog, name):
    path = tmp_path / "t.csv"
    path.write_text(f"query,positive,{name}\na,b,c\nd,e,f\n")
    given = {"do_train": True, "train_file": str(path)}
    words = f"t.csv:1: the columns {name!r} are not read. If they contain negatives"
    examples = read_examples(options(tmp_path, **given))[1]["train"]
    assert [each.texts for each in examples] == [("a", "b"), ("d", "e")]
    assert words in caplog.text
    caplog.clear()
    examples = read_examples(options(tmp_path, **given, negative_columns=name))[1]["train"]
    assert examples[0].texts == ("a", "b", "c")
    assert "not read" not in caplog.text


@pytest.mark.parametrize(
    "column, values",
    [
        ("is_duplicate,1,0,1", "0 and 1"),
        ("relevant,True,False,False", "0 and 1"),
        ("relevance,3,0,3", "0 and 3"),
        ("relevance,0.0,2.0,0.0", "0 and 2"),
        ("relevance,3,1,3", None),
        ("words,3,0,9", None),
        ("id,0,1,2", None),
        ("is_duplicate,1,1,1", None),
        ("negative_1,1,0,1", None),
    ],
)
def test_a_column_of_marks_that_is_not_read_is_a_warning(tmp_path, caplog, column, values):
    lines = zip(["a,b", "d,e", "f,g", "h,i"], column.split(","), strict=True)
    text = "\n".join(f"{texts},{value}" for texts, value in lines)
    file = write(tmp_path / "t.csv", text.replace("a,b", "query,positive") + "\n")
    given = {"do_train": True, "train_file": str(file)}
    assert len(read_examples(options(tmp_path, **given))[1]["train"]) == 3
    name = column.partition(",")[0]
    warning = f"t.csv: column {name!r} has {values}, but is not read"
    assert (warning in caplog.text) == (values is not None)
    assert ("but is not read" in caplog.text) == (values is not None)
    assert ("and divide it by 3." in caplog.text) == (values == "0 and 3")
    caplog.clear()
    read_examples(options(tmp_path, **given, label_column=""))
    assert "but is not read" not in caplog.text


def test_a_class_that_stands_for_empty_cells_is_warned_of(tmp_path, caplog):
    file = write(tmp_path / "t.csv", "text,label\nx,#N/A\ny,a\nz,none\n")
    read_examples(options(tmp_path, do_train=True, train_file=str(file)))
    assert "t.csv: the label '#N/A' usually stands for an empty or broken cell" in caplog.text


def test_classes_that_are_probably_one_are_warned_of(tmp_path, caplog):
    file = write(tmp_path / "t.csv", "text,label\nw,1\nx,1.0\ny,Good\nz,good\n")
    read_examples(options(tmp_path, do_train=True, train_file=str(file)))
    assert "'1' and '1.0'; 'Good' and 'good'. Use one spelling" in caplog.text


def test_an_empty_name_of_a_column_is_no_label_and_no_negative(tmp_path):
    file = write(tmp_path / "t.csv", "query,positive,negative,label\nwho,me,you,7\n")
    files = {"do_train": True, "train_file": file, "do_predict": True, "predict_file": file}
    given = options(tmp_path / "out", **files, label_column="", negative_columns="")
    kinds, splits = read_examples(given)
    assert kinds == {"train": "pairs", "test": "pairs"}
    assert splits["train"][0].texts == splits["test"][0].texts == ("who", "me")


@pytest.mark.parametrize("name", ["negative", "negatives"])
def test_a_column_of_json_lines_may_have_several_negatives(tmp_path, name):
    rows = [
        {"anchor": "who", "positive": "me", name: ["you", "", "she"], "negative_2": "it"},
        {"anchor": "what", "positive": "this", name: [], "negative_2": ""},
    ]
    given = options(
        tmp_path, do_train=True, train_file=write_json_lines(tmp_path / "t.jsonl", rows)
    )
    texts = [example.texts for example in read_examples(given)[1]["train"]]
    assert texts == [("who", "me", "you", "she", "it"), ("what", "this")]
    write_json_lines(tmp_path / "t.jsonl", [{**rows[0], name: ["you", 3]}])
    with pytest.raises(ValueError, match=rf"t.jsonl:1: {name} is 3, but must be a text"):
        read_examples(given)


def test_a_list_of_positives_is_an_error_with_its_remedy(tmp_path):
    path = write_json_lines(tmp_path / "t.jsonl", [{"query": "x", "positive": ["y", "z"]}])
    message = r"t.jsonl:1: positive is \['y', 'z'\], but must be a text. Write a row for each"
    with pytest.raises(ValueError, match=message):
        read_examples(options(tmp_path, do_train=True, train_file=path))


def test_rows_of_json_lines_may_have_other_negatives_but_not_another_kind(tmp_path):
    rows = [
        {"anchor": "who", "positive": "me"},
        {"anchor": "what", "positive": "this", "negative": "that", "negative_2": "it"},
    ]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    given = options(tmp_path / "out", do_train=True, train_file=str(file))
    _, splits = read_examples(given)
    texts = [example.texts for example in splits["train"]]
    assert texts == [("who", "me"), ("what", "this", "that", "it")]
    write_json_lines(tmp_path / "t.jsonl", [*rows, {"anchor": "a", "positive": "b", "score": 1}])
    message = r"different types of examples \(.*t.jsonl:1: pairs, .*t.jsonl:3: scores\)"
    with pytest.raises(ValueError, match=message):
        read_examples(given)


def test_questions_of_squad_have_their_passages_as_positives(tmp_path):
    answers = [{"text": "me", "answer_start": 0}]
    paragraphs = [
        {"context": "me .", "qas": [{"id": "1", "question": "who ?", "answers": answers}]}
    ]
    values = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    file = write(tmp_path / "s.json", json.dumps(values))
    kind, splits = read_examples(options(tmp_path, do_eval=True, eval_file=file))
    assert kind == {"dev": "pairs"} and splits["dev"][0].texts == ("who ?", "me .")


def test_classes_are_names_without_spaces_around_them(pretrained, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na dog\tpet\nthe cat\tpet \na barn\tplace\n")
    splits = read_examples(options(tmp_path / "out", train_file=str(path), do_train=True))[1]
    assert [example.label for example in splits["train"]] == [0.0, 0.0, 1.0]
    path.write_text("text\tlabel\na dog\tpet\nthe cat\t \n")
    with pytest.raises(ValueError, match=r"train.tsv:3: label is ' ', but must be a class"):
        read_examples(options(tmp_path / "out", train_file=str(path), do_train=True))


def test_the_columns_of_a_table_are_logged(pretrained, embedding_files, tmp_path, caplog):
    with caplog.at_level("INFO"):
        read_examples(options(tmp_path, train_file=embedding_files["scores"][0], do_train=True))
    assert ": anchor in 'text_a', positive in 'text_b', label in 'score'" in caplog.text


def test_a_table_without_a_header_shows_the_cause(tmp_path):
    file = write(tmp_path / "t.csv", "who is it,me\nwhat is it,this\n")
    message = r"t.csv:1: the columns are who is it, me, .* If the first line is a row, use header=F"
    with pytest.raises(ValueError, match=message) as error:
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert "use --header=False." in with_flags(str(error.value), EmbeddingOptions)
    file = write_json_lines(tmp_path / "t.jsonl", [{"q": "who", "p": "me"}])
    with pytest.raises(ValueError, match=r"Name it with anchor_column\.$"):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))
