"""Documentation strings become English sentences, documents, a corpus and a classification task."""

import inspect
import sys

import pytest

from bert_tf.programs.demo_corpus import (
    Document,
    collect_documents,
    default_packages,
    package_root,
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
    axis : None or int, optional
        The axis along which the sum is taken.

    Raises
    ------
    ValueError
        If the axis is not there at all.

    See Also
    --------
    other.sum : Equivalent function of the others.

    Notes
    -----
    The sum of an empty array is zero, *always*:

    .. math:: a + b is the sum of all of them.

    Examples
    --------
    The simplest case is shown here:

    >>> sum([1, 2])
    This is the output of the example.
"""

GOOGLE = """Computes the ``sum`` of a [tensor](https://example.org/t).

Long text about it, wrapped at
this place: it goes on.

Args:
  x: A `Tensor` of numbers
    that are summed.
  keep (bool): whether the
    axis is kept. It is not by default.

    Another paragraph belongs to it.
  *more: the rest of the arguments.

Returns:
  A tensor of the same type.

Raises:
  ValueError: if there is nothing in it.

References:
  - The paper by the authors is read by all.

```python
This is a line of the code.
```

Note: the order is not defined.
"""


def test_numpydoc_leaves_its_prose():
    assert sentences_of(NUMPYDOC) == [
        "Return the sum of all elements.",
        "The values to be added.",
        "If a is not an array, a conversion is attempted.",
        "The axis along which the sum is taken.",
        "The sum of an empty array is zero, always:",
        "The simplest case is shown here:",
    ]


def test_google_style_leaves_its_prose():
    assert sentences_of(GOOGLE) == [
        "Computes the sum of a tensor.",
        "Long text about it, wrapped at this place: it goes on.",
        "A Tensor of numbers that are summed.",
        "Whether the axis is kept.",
        "It is not by default.",
        "Another paragraph belongs to it.",
        "The rest of the arguments.",
        "A tensor of the same type.",
        "The order is not defined.",
    ]


SQUARES = "The squares x1**2 and x2**2 of all these numbers are now added to the others."


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("See :func:`~a.b` and `this text <there>`_ for it.", ["See a.b and this text for it."]),
        (
            "Use both [one](here) and `two`, but **never** three.",
            ["Use both one and two, but never three."],
        ),
        (SQUARES, [SQUARES]),
        (
            "So it is, according to Foo et al. [3]_ and others.",
            ["So it is, according to Foo et al. and others."],
        ),
        ("The first is here. The second is there!", ["The first is here.", "The second is there!"]),
        ("It is so for all, e.g. Smith and Jones.", ["It is so for all, e.g. Smith and Jones."]),
        (
            "- The first is made\n  here.\n- The second is it.",
            ["The first is made here.", "The second is it."],
        ),
        (
            "x: one of these:\n    - The first of two.\n    - The last of two.",
            ["The first of two.", "The last of two."],
        ),
        (":param x: the value of all this.", ["The value of all this."]),
        (".. note:: This is in the note.", ["This is in the note."]),
    ],
)
def test_markup_is_taken_off(text, sentences):
    assert sentences_of(text) == sentences


@pytest.mark.parametrize(
    "text",
    [
        "As is shown in::\n\n    It is not in the text.\n",
        "This is verbatim::\n\n    It is not in the text.\n",
        "The title of a text.\n********************\n",
        ".. code:: python\n\n   It is not in the text.\n",
        "| The table | is a table | of it. |\n",
        "@the decorator is not in the text.\n",
        "The text has %s in it.\n",
        "The text is at https://example.org today.\n",
        "Abj vf orggre guna arire.\n",
        "Too short it is.\n".replace(" it", ""),
        "The words have no full stop in the end\n",
        "If x[i] == y[j] and a < b, then z.\n",
    ],
)
def test_what_is_no_english_sentence_is_dropped(text):
    assert sentences_of(text + "\nBack in the text.") == ["Back in the text."]


def test_a_sentence_has_at_most_sixty_words():
    assert len(sentences_of("The " + "word " * 58 + "ends.")) == 1
    assert sentences_of("The " + "word " * 59 + "ends.") == []


# ---- Packages ----------------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two packages that may be found, but not imported: importing them fails."""
    files = {
        "first_library/__init__.py": """
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
        "first_library/long.py": f"TOPICS = {{1: {'The topic is long. ' + 'Is it not so? ' * 20!r}}}",
        "first_library/broken.py": "'The file is no Python. It has two sentences.'\n{{ template }",
        "first_library/made.py": f"MADE = f{'The text is made. ' + 'Is it {0} not so? ' * 20!r}",
        "first_library/alone.py": "'The only sentence is here.'",
        "first_library/again.py": "'The only sentence is here.'",
        "first_library/tests/test_it.py": "'The tests are left out. All of the tests are.'",
        "first_library/it_test.py": "'The tests are left out. All of the tests are.'",
        "first_library/guide.md": "# A guide\n\nThe guide is a text. So is this text.\n",
        "first_library/second/copy.py": "'This belongs to the second. And so does this one.'",
        "second_library.py": "'It is SEEN in both! The second is one file. It has two sentences.'",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(inspect.cleandoc(text), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    second = ("second_library", str(tmp_path / "first_library" / "second"))
    return {"first": ("first_library",), "second": second}


def test_documents_are_the_sentences_of_one_file_in_its_order(packages):
    documents = {d.source_path: d.sentences for d in collect_documents(packages)}
    assert documents["__init__.py"] == (
        "The first of all the modules.",
        "A class is in the module.",
        "The function of the class.",
        "It is seen in both.",
        "The order is that of lines.",
    )


def test_files_are_read_in_order_without_tests_broken_and_single_sentences(packages):
    documents = [(d.library, d.source_path, len(d.sentences)) for d in collect_documents(packages)]
    assert documents == [
        ("first", "__init__.py", 5),
        ("first", "guide.md", 2),
        ("first", "long.py", 2),
        ("second", "second_library.py", 2),
        ("second", "copy.py", 2),
    ]


def test_a_sentence_stays_where_it_came_first(packages):
    sentences = [s for d in collect_documents(packages) for s in d.sentences]
    assert len(sentences) == len(set(sentences)) == 13
    assert "It is seen in both." in sentences and "It is SEEN in both!" not in sentences


def test_a_long_file_is_several_documents(tmp_path):
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    texts = [
        f"'The {a} is the {b} here. Then the {a} was a {b}.'" for a in numbers for b in numbers
    ]
    (tmp_path / "long.py").write_text("\n".join(texts))
    documents = list(collect_documents({"one": [str(tmp_path)]}))
    assert [len(document.sentences) for document in documents] == [50, 50, 28]


def test_nothing_is_imported(packages):
    list(collect_documents(packages))
    assert "first_library" not in sys.modules


def test_a_subpackage_is_found_without_importing_its_parent(packages, tmp_path):
    assert package_root("first_library.second") == tmp_path / "first_library" / "second"


@pytest.mark.parametrize("name", ["no_such_library", "first_library.nowhere", "/no/such/folder"])
def test_a_package_that_is_not_installed_is_named(packages, name):
    with pytest.raises(ValueError, match=f"Documentation of '{name}' .* no such path. Install it"):
        list(collect_documents({"first": (name,)}))


def test_default_packages_are_installed():
    packages = default_packages()
    assert list(packages) == ["python", "numpy", "keras", "tensorflow"]
    roots = [package_root(name) for names in packages.values() for name in names]
    assert all(root.is_dir() for root in roots)


# ---- Files -------------------------------------------------------------------------------------


def make_documents(num_files=6, sentences_per_file=3):
    """Two libraries, the second of which has two documents per file."""
    documents = []
    for library, num_parts in (("cats", 1), ("dogs", 2)):
        for i in range(num_files):
            for part in range(num_parts):
                sentences = [f"{library} {i} {part} {s}" for s in range(sentences_per_file)]
                documents.append(Document(library, f"{i}.py", tuple(sentences)))
    return documents


def test_every_nth_file_of_each_library_is_held_out_with_all_its_documents():
    train, held_out = split_documents(make_documents(), held_out_every=3)
    assert [(d.library, d.source_path) for d in held_out] == [
        ("cats", "2.py"),
        ("cats", "5.py"),
        *[("dogs", "2.py")] * 2,
        *[("dogs", "5.py")] * 2,
    ]
    assert len(train) == 12 and not {(d.library, d.source_path) for d in train} & {
        (d.library, d.source_path) for d in held_out
    }


def test_holding_out_every_file_is_refused():
    with pytest.raises(ValueError, match="`held_out_every` is 1, but must be 2 or more"):
        split_documents(make_documents(), held_out_every=1)


def test_corpus_has_a_sentence_per_line_and_a_blank_line_between_documents(tmp_path):
    train_file, held_out_file = tmp_path / "train.txt", tmp_path / "held_out.txt"
    documents = make_documents(num_files=2, sentences_per_file=2)[:2]
    summary = write_corpus(documents, train_file, held_out_file, held_out_every=2)
    assert train_file.read_text() == "cats 0 0 0\ncats 0 0 1\n"
    assert held_out_file.read_text() == "cats 1 0 0\ncats 1 0 1\n"
    assert (summary.num_documents, summary.num_held_out_documents) == (2, 1)
    assert (summary.num_sentences, summary.num_held_out_sentences) == (4, 2)
    assert summary.num_bytes == 44
    write_corpus(documents, train_file, held_out_file, held_out_every=3)
    assert train_file.read_text() == "cats 0 0 0\ncats 0 0 1\n\ncats 1 0 0\ncats 1 0 1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held_out.txt", "train.txt"]


def write_and_read(tmp_path, documents, **settings):
    settings = {"min_words": 4, "held_out_every": 3, **settings}
    files = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    summary = write_classification_data(documents, *files, **settings)
    rows = [[line.split("\t") for line in file.read_text().splitlines()] for file in files]
    return summary, *rows


def test_classification_data_is_balanced_and_split_by_file(tmp_path):
    summary, train, dev = write_and_read(
        tmp_path, make_documents(), num_train_per_library=7, num_dev_per_library=4
    )
    assert train[0] == dev[0] == ["sentence", "label"]
    assert summary.labels == ("cats", "dogs")
    assert [label for _, label in sorted(train[1:])] == ["cats"] * 7 + ["dogs"] * 7
    assert [label for _, label in sorted(dev[1:])] == ["cats"] * 4 + ["dogs"] * 4
    assert {s.split()[1] for s, _ in dev[1:]} == {"2", "5"}
    assert {s.split()[1] for s, _ in train[1:]} <= {"0", "1", "3", "4"}


def test_classification_data_shrinks_to_the_smallest_library(tmp_path):
    summary, train, dev = write_and_read(tmp_path, make_documents())
    assert (summary.num_train_per_library, summary.num_dev_per_library) == (12, 6)
    assert (len(train), len(dev)) == (1 + 2 * 12, 1 + 2 * 6)


def test_classification_data_is_the_same_for_the_same_seed(tmp_path):
    settings = dict(num_train_per_library=5, num_dev_per_library=3)
    first = write_and_read(tmp_path, make_documents(), seed=1, **settings)
    assert write_and_read(tmp_path, make_documents(), seed=1, **settings) == first
    assert write_and_read(tmp_path, make_documents(), seed=2, **settings) != first


def test_sentences_that_name_a_library_or_are_short_are_left_out(tmp_path):
    sentences = (
        "It is short",
        "Call np.sum for all of it.",
        "All of TensorFlow is in it.",
        "The PyThonic way is in it.",
        "A tensor is in all of it.",
        "An extensor muscle moves all of it.",
    )
    documents = [Document("cats", f"{i}.py", sentences) for i in range(2)]
    summary, train, _ = write_and_read(tmp_path, documents, held_out_every=2)
    assert summary.num_train_per_library == 1
    assert train[1:] == [["An extensor muscle moves all of it.", "cats"]]


def test_a_library_without_usable_sentences_is_refused(tmp_path):
    mice = [Document("mice", f"{i}.py", ("Too short.",)) for i in range(3)]
    message = r"train.tsv: every library .*'dogs': 24, 'mice': 0}.* or lower `min_words` = 4"
    with pytest.raises(ValueError, match=message):
        write_and_read(tmp_path, make_documents() + mice)
    assert list(tmp_path.iterdir()) == []
