"""Phases of a pre-training with sequences of different lengths.

    64:0.5,128:0.4,512:0.1

Half of the steps have 64 tokens, the next 40 % 128, and the rest 512. The paper's two phases are
128:0.9,512:0.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

LENGTH = "{length}"  # in names of files


@dataclass(frozen=True)
class Phase:
    """Sequences of one length.

    Attributes:
        max_seq_length: tokens of a sequence.
        start, end: fractions of the steps at which it begins and ends.
    """

    max_seq_length: int
    start: Fraction
    end: Fraction

    def first_step(self, num_train_steps: int) -> int:
        """Return the number of steps before the phase."""
        return int(self.start * num_train_steps)

    def last_step(self, num_train_steps: int) -> int:
        """Return the step at which the phase ends.

        >>> [phase.last_step(1001) for phase in parse_phases("64:0.5,128:0.5")]
        [500, 1001]
        """
        return int(self.end * num_train_steps)


def parse_phases(text: str) -> tuple[Phase, ...]:
    """Parse "LENGTH:FRACTION,...".

    Raises:
        ValueError: a part has another form, or the fractions do not sum to 1.
    """
    phases: list[Phase] = []
    end = Fraction(0)
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*:\s*(\d*\.?\d+)\s*", part)
        if not found or not Fraction(found[2]):
            raise ValueError(
                f"phases={text}: {part.strip()!r} is not LENGTH:FRACTION, such as 128:0.9, with a "
                "fraction above 0."
            )
        start, end = end, end + Fraction(found[2])
        phases.append(Phase(int(found[1]), start, end))
    if end != 1:
        raise ValueError(
            f"phases={text}: the fractions sum to {float(end):g}, but must sum to 1: they are parts of "
            "num_train_steps."
        )
    return tuple(phases)


def check_length_in_names(phases: str | None, option: str, files: str) -> None:
    """Check that each name of a file has `LENGTH` if phases need it, and none without phases.

    Args:
        phases: as in `parse_phases`; None without phases.
        option: the name of the option, for the message.
        files: its value, a comma list.

    Raises:
        ValueError: phases of several lengths would have the same file, or a name has `LENGTH` without
            phases.
    """
    if phases is None:
        if LENGTH in files:
            raise ValueError(
                f"{option}={files} has {LENGTH}, which becomes the length of a phase, but there are no "
                "phases. Give `phases`, such as phases=128:0.9,512:0.1, or another name."
            )
        return
    lengths = {phase.max_seq_length for phase in parse_phases(phases)}
    names = [name for name in files.split(",") if name.strip()]
    if len(lengths) > 1 and any(LENGTH not in name for name in names):
        raise ValueError(
            f"phases={phases} needs records of each length, but {option}={files} has no {LENGTH}, which "
            f"becomes the length, in each name: records-{LENGTH}.tf_record."
        )
