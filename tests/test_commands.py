"""What the documents tell their reader to type works; nothing is left out unsaid."""

import re
from importlib import import_module

import pytest
from absl import flags
from document_commands import (
    DOCUMENTS,
    GUIDES,
    NOT_RUN,
    SHORTER,
    Walks,
    all_commands,
    pieces_of,
    program_calls,
    whole_commands_of,
)

from bert_tf import cli
from bert_tf.__main__ import PROGRAMS
from bert_tf.options import flags_of

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in DOCUMENTS.items()}


@pytest.mark.night
def test_commands_of_the_readme_do_what_it_says(tmp_path):
    ran = Walks(tmp_path).walk("README.md")
    assert len(ran) > 10 and any(command.is_python for command in ran)


@pytest.mark.weekly
def test_commands_of_the_guides_do_what_they_say(tmp_path):
    walks, failed = Walks(tmp_path), {}
    for name in GUIDES:
        try:
            walks.walk(name)
        except AssertionError as error:  # the other guides are walked as well
            failed[name] = str(error)
    assert not failed, "\n\n".join(failed.values())


def parse(program, arguments, is_whole):
    """Make the options of a program; of a fragment, only its flags and their values."""
    module, options_name = PROGRAMS[program]
    options_class = getattr(import_module(f"bert_tf.{module}"), options_name)
    values = flags.FlagValues()
    cli.define_flags(options_class, values)
    if is_whole:
        rest = values([program, *arguments])[1:]
        assert not rest or tuple in {flag.type for flag in flags_of(options_class).values()}, rest
        cli.options_from_flags(options_class, values, rest)
        return
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        assert name == "..." or name in values or name.removeprefix("no") in values, name
        if value not in ("", "..."):
            values[name].parse(value)


def test_command_lines_of_documents_make_options():
    wrong, number = [], 0
    for name, text in TEXTS.items():
        for command in whole_commands_of(text):
            calls = () if command.is_python else program_calls(command.code)
            for program, arguments in calls:
                number += 1
                try:
                    parse(program, arguments, not command.is_a_fragment)
                except (flags.Error, ValueError, AssertionError) as error:
                    wrong.append(f"{name}: {command.code}: {error}")
    assert not wrong and number > 80


def test_everything_that_looks_like_a_command_is_found():
    type_this = (
        r"\b(?:python (?:-m|run_scripts/|benchmarks/|docs/)|pip install |curl -|docker run )"
    )
    for name, text in TEXTS.items():
        shown = re.findall(type_this, re.sub(r"\s+", " ", text))
        found = "\n".join(piece.code for piece in pieces_of(text))
        missed = [part for part in set(shown) if found.count(part) != shown.count(part)]
        assert not missed, name


def test_what_is_not_run_and_what_is_shortened_is_there():
    codes = [command.code for command in all_commands()]
    pieces = [piece.code for text in TEXTS.values() for piece in pieces_of(text)]
    as_they_stand = "\n".join([*pieces, ""]).replace("\n", " ")
    unused = [entry for entry in NOT_RUN if not any(map(entry.matches, codes))]
    assert not unused + [flag for flag in SHORTER if f"{flag} " not in as_they_stand]
