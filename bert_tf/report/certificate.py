"""Page of certify: each export, its differences from the model, its faults and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.report.charts import paragraph, table
from bert_tf.report.page import Section, page

_HEADER = (
    *("export", "runtime", "precision", "texts with equal ids", "largest difference", "allowed"),
    *("changed decisions", "ms per input", "memory (MB)", "files (MB)", "result"),
)


def certificate_page(values: Mapping[str, Any]) -> str:
    """Return the page for the JSON of a certificate."""
    exports = values["exports"]
    figures = {
        "result": "passed" if values["passed"] else "failed",
        "exports": len(exports),
        "inputs": values["inputs"],
        "variants of them": values["variants"],
    }
    sections = [_table("Exports", _HEADER, list(map(_row, exports)), _NOTE)]
    faults = [(*_names(each), fault) for each in exports for fault in each["faults"]]
    if faults:
        sections.insert(0, _table("Faults", ("export", "runtime", "fault"), faults))
    notes = [paragraph(note) for note in values["notes"]]
    if notes:
        sections.append(Section("Not compared", notes, wide=True))
    rows = [row for each in exports for row in _outputs(each)]
    names = ("export", "runtime", "signature", "output", "largest difference", "largest value")
    sections.append(_table("Outputs", names, rows))
    sections.append(_table("Files", ("of", "file", "MB", "SHA-256"), list(_files(values))))
    command = {"kind": "command", "text": " \\\n    ".join(values["command"])}
    sections.append(
        Section("Command", [command], "Flags at their defaults are omitted.", wide=True)
    )
    return page(f"Certificate of {values['model_dir']}", figures, sections)


_NOTE = (
    "Each export answered the same inputs as the Python classes (the model in float32, FullTokenizer): "
    "one at a time, and in batches with padding. Differences are absolute, or relative to the largest "
    "value of an output if that exceeds 1. Times are medians of one input alone. Memory is the most "
    "that the runtime's process had."
)


def _table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], note: str = ""
) -> Section:
    return Section(title, [table(header, rows, texts=True)], note, wide=True)


def _names(export: Mapping[str, Any]) -> tuple[str, str]:
    return export["export_dir"], " ".join(filter(None, (export["runtime"], export["environment"])))


def _row(export: Mapping[str, Any]) -> Sequence[Any]:
    ids = [f"{found['equal']} of {found['texts']}" for found in export["ids"].values()]
    tallies = export["signatures"].values()
    flipped = [f"{t['flipped']} of {t['decisions']}" for t in tallies if t["decisions"]]
    return (
        *_names(export),
        export["precision"],
        ", ".join(dict.fromkeys(ids)) or "-",
        export["largest_difference"] if tallies else "-",
        export["max_difference"],
        ", ".join(dict.fromkeys(flipped)) or "-",
        next((tally["milliseconds"] for tally in tallies), "-"),
        export["peak_memory"] / 1e6 if export["peak_memory"] else "-",
        sum(file["bytes"] for file in export["files"].values()) / 1e6,
        "failed" if export["faults"] else "passed",
    )


def _outputs(export: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    for name, tally in export["signatures"].items():
        for output, found in tally["outputs"].items():
            yield *_names(export), name, output, found["difference"], found["magnitude"]


def _files(values: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    sides = {values["model_dir"]: values["model_files"]}
    sides |= {each["export_dir"]: each["files"] for each in values["exports"]}
    for folder, files in sides.items():
        for name, file in files.items():
            yield folder, name, file["bytes"] / 1e6, file["sha256"]
