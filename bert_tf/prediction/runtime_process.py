"""A runtime of `runtimes.py` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from bert_tf.prediction import runtimes


class Process(runtimes.Runtime):
    """A runtime in a process of its own, with any Python.

        with Process("onnx", "exported/model.onnx") as runtime:
            runtime.ask("tokens", {"input_ids": ids, ...})

    Args:
        name: key of `runtimes.RUNTIMES`.
        path: file or folder of the export.
        python: path of the interpreter. Default: this one.
        settings: of `runtimes.load`.

    Raises:
        ValueError: the interpreter does not start, or the runtime cannot load the export.
    """

    def __init__(self, name: str, path: str, python: str | None = None, **settings: Any):
        self._name = f"{name} of {python or 'this Python'}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        environment = dict(os.environ)
        if python is not None:  # our packages are not for another Python
            environment.pop("PYTHONPATH", None)
        arguments = json.dumps({"format": name, "path": path, **settings})
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the user names the interpreter)
                [python or sys.executable, runtimes.__file__, arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
            )
        except OSError as error:
            self._errors.close()
            raise ValueError(
                f"environment has the interpreter {python}, which does not start ({error}). Give the "
                "path of the python of an environment, such as env/bin/python."
            ) from error
        self._peak = 0
        try:
            head, _ = self._receive()
        except BaseException:
            self.close()
            raise
        self.version, self.signatures = head["version"], head["signatures"]

    def ask(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        self._send({"signature": signature}, inputs)
        head, outputs = self._receive()
        self.seconds = head["seconds"]
        return outputs

    def token_ids(self, texts: Sequence[str]) -> list[list[int]] | None:
        self._send({"texts": list(texts)}, {})
        return self._receive()[0]["ids"]

    def peak_memory(self) -> int:
        return self._peak

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # of a request that an ended process has not read
                    stream.close()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, head: dict[str, Any], inputs: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None  # noqa: S101
        try:
            runtimes.send(self._process.stdin, head, dict(inputs))
        except BrokenPipeError as error:
            raise self._ended() from error

    def _receive(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        assert self._process.stdout is not None  # noqa: S101
        try:
            head, arrays = runtimes.receive(self._process.stdout)
        except EOFError as error:
            raise self._ended() from error
        self._peak = head.get("peak_memory", self._peak)
        if "error" in head:
            raise ValueError(f"The runtime {self._name} failed: {head['error']}")
        return head, arrays

    def _ended(self) -> ValueError:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        return ValueError(f"The runtime {self._name} ended with status {status}{last}")
