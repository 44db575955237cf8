"""README.md: what it tells its reader to type works. Of all documents: nothing is left out unsaid."""

import re
from importlib import import_module

import pytest
from absl import flags
from document_commands import (
    DOCUMENTS,
    NOT_RUN,
    SHORTER,
    Walks,
    all_commands,
    commands_of,
    pieces_of,
    program_calls,
    whole_commands_of,
)

from bert_tf import cli
from bert_tf.__main__ import PROGRAMS


@pytest.mark.night
def test_the_commands_of_the_readme_do_what_it_says(tmp_path):
    ran = Walks(tmp_path).walk("README.md")
    assert len(ran) > 10 and any(command.is_python for command in ran)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_line_of_a_document_makes_the_options_of_its_program(name):
    for command in whole_commands_of(DOCUMENTS[name].read_text(encoding="utf-8")):
        if command.is_python or command.is_a_fragment:
            continue
        for program, arguments in program_calls(command.code):
            module, options_name = PROGRAMS[program]
            options_class = getattr(import_module(f"bert_tf.{module}"), options_name)
            values = flags.FlagValues()
            cli.define_flags(options_class, values)
            rest = values([program, *arguments])[1:]
            assert not rest or cli._positional_field(options_class), command.code
            cli.options_from_flags(options_class, values, rest)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_a_document_shows_is_found(name):
    """Nothing that looks like one stands where `pieces_of` does not look."""
    text = DOCUMENTS[name].read_text(encoding="utf-8")
    type_this = (
        r"\b(?:python (?:-m|run_scripts/|benchmarks/|docs/)|pip install |curl -|docker run )"
    )
    shown = re.findall(type_this, re.sub(r"\s+", " ", text))
    found = "\n".join(piece.code for piece in pieces_of(text))
    missed = [part for part in set(shown) if found.count(part) != shown.count(part)]
    assert not missed


def test_what_is_not_run_and_what_is_changed_is_there():
    codes = [command.code for command in all_commands()]
    as_they_stand = "\n".join(
        piece.code
        for path in DOCUMENTS.values()
        for piece in pieces_of(path.read_text(encoding="utf-8"))
    )
    unused = [entry for entry in NOT_RUN if not any(map(entry.matches, codes))]
    unused += [flag for flag in SHORTER if f"{flag} " not in f"{as_they_stand} ".replace("\n", " ")]
    assert not unused


def test_commands_are_taken_out_of_blocks_and_tables_and_sentences():
    text = """Some `python -m bert_tf
run_swag --help` or `--flag`, `a_name`.

| fill | `echo 'a [MASK]' \\| python run_scripts/predict.py --model_dir=BERT` |
| more | `... --top_k=3` |

    pip install -e .      # all of it
    printf 'a\\n' |
        python run_scripts/run_ner.py \\
        --do_eval

    {"json": [1.0]}

Text.

    import numpy as np

    print(np.zeros(2))

```python
print(1)
```
"""
    assert [(command.code, command.is_python) for command in commands_of(text)] == [
        ("python -m bert_tf run_swag --help", False),
        ("echo 'a [MASK]' | python run_scripts/predict.py --model_dir=BERT", False),
        ("echo 'a [MASK]' | python run_scripts/predict.py --model_dir=BERT --top_k=3", False),
        ("pip install -e .      # all of it", False),
        ("printf 'a\\n' | python run_scripts/run_ner.py  --do_eval", False),
        ("import numpy as np\n\nprint(np.zeros(2))", True),
        ("print(1)", True),
    ]
