"""Programs as Apache Beam pipelines: their flags, and the pipeline.

--runner=DirectRunner -- --direct_num_workers=4 --direct_running_mode=multi_processing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bert_tf.options import Options, option


@dataclass(frozen=True, kw_only=True)
class BeamOptions(Options):
    """Options of a program that may run as an Apache Beam pipeline.

    Raises:
        ValueError: flags of Beam are given without a runner.
    """

    runner: str | None = option(
        "Run as an Apache Beam pipeline: DirectRunner, FlinkRunner, SparkRunner, DataflowRunner. "
        "Flags of Beam follow after --, for example: -- --project=... --region=...",
        group="Machine",
        default=None,
    )
    runner_flags: tuple[str, ...] = option("Flags of Beam.", default=(), positional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runner_flags and self.runner is None:
            raise ValueError(
                f"Unknown argument {self.runner_flags[0]!r}; every option starts with --, and flags "
                "of Beam need `runner`."
            )


def make_pipeline(runner: str, flags: Sequence[str]) -> Any:
    """Return an empty `apache_beam.Pipeline`, which runs at the end of its `with` block.

    Args:
        runner: "DirectRunner" and so on, or the full name of a class.
        flags: flags of Beam.

    Raises:
        ImportError: Beam is not installed.
        ValueError: the runner is unknown, or its part of Beam is not installed.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise ImportError(
            "`runner` needs Apache Beam, an optional extra: pip install -e '.[beam]' in the "
            "checkout of bert_tf"
        ) from error
    try:
        return beam.Pipeline(options=PipelineOptions([*flags, f"--runner={runner}"]))
    except (AttributeError, ImportError, ValueError) as error:
        raise ValueError(f"`runner` is {runner!r}, but Apache Beam rejects it: {error}") from error
