"""Docstrings become English sentences, documents, a corpus and a classification task."""

import inspect
import sys

import pytest

from bert_tf.programs.demo_corpus import (
    Document,
    collect_documents,
    default_folders,
    sentences_of,
    split_documents,
    write_classification_data,
    write_corpus,
)

NUMPYDOC = """
    Return the sum of all elements.

    Parameters
    ----------
    a : array_like
        The values to be added. If `a` is not an
        array, a conversion is attempted.

    Notes
    -----
    The sum of an empty array is zero, *always*.

    .. math:: a + b is the sum of all of them.

    >>> sum([1, 2])
    This is the output of the example.
"""

GOOGLE = """Computes the ``sum`` of `tf.Tensor` objects.

Args:
  x: A `Tensor` of numbers
    that are summed.
  keep: whether the
    axis is kept. It is not by default.

```python
This is a line of the code.

And this is another line.
```

- The first item is here.
- The second item is there!

Note: the order is not defined (i.e. it may change), see below.
"""


def test_numpydoc_leaves_its_prose():
    assert sentences_of(inspect.cleandoc(NUMPYDOC)) == [
        "Return the sum of all elements.",
        "The values to be added.",
        "If a is not an array, a conversion is attempted.",
        "The sum of an empty array is zero, always.",
    ]


def test_google_style_leaves_its_prose():
    assert sentences_of(GOOGLE) == [
        "Computes the sum of tf.Tensor objects.",
        "A Tensor of numbers that are summed.",
        "Whether the axis is kept.",
        "It is not by default.",
        "The first item is here.",
        "The second item is there!",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Too short it.",
        "There is no full stop at the end",
        "If x[i] == y[j] and a < b, then z.",
        "The text is at https://example.org today.",
        "The | table | has | four | columns.",
        "Return f(x) + g(y) of all these.",
        "word " * 61 + "ends.",
    ],
)
def test_code_and_fragments_are_dropped(text):
    assert sentences_of(f"{text}\n\nThis is the next paragraph.") == ["This is the next paragraph."]


@pytest.fixture
def folders(tmp_path):
    files = {
        "first/__init__.py": """
            '''The first of all the modules.'''
            raise ImportError("It was imported.")
            class A:
                '''A class is in the module.'''
                def f(self):
                    '''The function of the class.

                    It is seen in both.
                    '''
            def g():
                "The order is that of lines."
            """,
        "first/broken.py": "'The file is no Python. It has two sentences.'\n{{ template }",
        "first/alone.py": "'The only sentence is here.'",
        "first/tests/it.py": "'The tests are left out. All of the tests are.'",
        "first/test_it.py": "'The tests are left out. All of the tests are.'",
        "second/one.py": "'It is SEEN in both! The second is one file. It has two sentences.'",
        "second/two.py": "'It is seen in BOTH. This file has two sentences. Both of them are kept.'",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(inspect.cleandoc(text), encoding="utf-8")
    return {"cats": (tmp_path / "first",), "dogs": (tmp_path / "second",)}


def test_documents_are_the_new_sentences_of_a_file_in_its_order(folders):
    documents = list(collect_documents(folders))
    assert documents[0] == Document(
        "cats",
        "__init__.py",
        (
            "The first of all the modules.",
            "A class is in the module.",
            "The function of the class.",
            "It is seen in both.",
            "The order is that of lines.",
        ),
    )
    assert [(d.library, d.source_path, len(d.sentences)) for d in documents[1:]] == [
        ("dogs", "one.py", 3),
        ("dogs", "two.py", 2),
    ]
    assert list(collect_documents(folders)) == documents


def test_a_long_file_is_several_documents(tmp_path):
    letters = "abcdefgh"
    texts = [f"The {a} is the {b} here. Then the {a} was a {b}." for a in letters for b in letters]
    (tmp_path / "long.py").write_text(f"'''{' '.join(texts)}'''")
    documents = list(collect_documents({"one": [tmp_path]}))
    assert [len(document.sentences) for document in documents] == [50, 50, 28]


def test_the_installed_packages_have_plain_sentences():
    folders = default_folders()
    assert list(folders) == ["python", "numpy", "keras", "tensorflow"]
    assert all(folder.is_dir() for part in folders.values() for folder in part)
    before = set(sys.modules)
    documents = list(collect_documents({"numpy": folders["numpy"]}))
    assert set(sys.modules) == before
    text = "\n".join(sentence for document in documents for sentence in document.sentences)
    assert len(text) > 200_000
    assert not set(text) & set("`*=<>{}[]|#@$%\\/\t")
    assert all(sentence[0].isupper() and sentence[-1] in ".!?" for sentence in text.split("\n"))
    assert len(text.split(" the ")) > 2_000  # English


# ---- Files -------------------------------------------------------------------------------------


def make_documents(num_files=30, sentences_per_file=3):
    """Two libraries, the second of which has two documents per file."""
    return [
        Document(
            library,
            f"{i}.py",
            tuple(
                f"{library} {i} {part} {s} are four more words" for s in range(sentences_per_file)
            ),
        )
        for library, num_parts in (("cats", 1), ("dogs", 2))
        for i in range(num_files)
        for part in range(num_parts)
    ]


def test_every_eighth_file_of_each_library_is_held_out_with_all_its_documents():
    train, held_out = split_documents(make_documents())
    assert [(d.library, d.source_path) for d in held_out] == [
        *[("cats", f"{i}.py") for i in (7, 15, 23)],
        *[("dogs", f"{i}.py") for i in (7, 7, 15, 15, 23, 23)],
    ]
    assert len(train) == 27 + 54


def test_corpus_has_a_sentence_per_line_and_a_blank_line_between_documents(tmp_path):
    documents = [
        Document("cats", "1.py", ("A b.", "C d.")),
        Document("cats", "2.py", ("E f.", "G.")),
    ]
    write_corpus(documents, tmp_path / "corpus.txt")
    assert (tmp_path / "corpus.txt").read_text() == "A b.\nC d.\n\nE f.\nG.\n"


def rows(path, documents, num_per_library, **settings):
    write_classification_data(documents, path, num_per_library, **settings)
    header, *lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert header == ["sentence", "label"]
    return lines


@pytest.mark.parametrize(("asked", "given"), [(7, 7), (1000, 90)])
def test_labels_have_equally_many_rows(tmp_path, asked, given):
    made = rows(tmp_path / "train.tsv", make_documents(), asked)
    assert sorted(label for _, label in made) == ["cats"] * given + ["dogs"] * given
    assert all(sentence.startswith(label) for sentence, label in made)
    assert len({sentence for sentence, _ in made}) == 2 * given


def test_classification_data_is_the_same_for_the_same_seed(tmp_path):
    first = rows(tmp_path / "a.tsv", make_documents(), 5, seed=1)
    assert rows(tmp_path / "b.tsv", make_documents(), 5, seed=1) == first
    assert rows(tmp_path / "c.tsv", make_documents(), 5, seed=2) != first


def test_sentences_that_name_a_library_or_are_short_are_left_out(tmp_path):
    sentences = (
        "It is one word too short.",
        "Call np.sum for all of it and the others.",
        "All of TensorFlow is in it and in the others.",
        "The PyThonic way is in it and in the others.",
        "A tensor is in all of it and in the others.",
        "An extensor muscle moves all of it and the others.",
    )
    made = rows(tmp_path / "train.tsv", [Document("cats", "1.py", sentences)], 9)
    assert made == [["An extensor muscle moves all of it and the others.", "cats"]]


def test_a_library_without_usable_sentences_is_named(tmp_path):
    documents = [*make_documents(), Document("mice", "1.py", ("Too short.", "This too."))]
    with pytest.raises(ValueError, match=r"train.tsv .*8.*'dogs': 180, 'mice': 0}.*installed"):
        write_classification_data(documents, tmp_path / "train.tsv", 5)
    assert list(tmp_path.iterdir()) == []
