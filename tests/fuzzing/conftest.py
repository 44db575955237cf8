"""At the end of `pytest tests/fuzzing`: how many cases of which kind were tried in this process."""

from fuzz_cases import COUNTS


def pytest_terminal_summary(terminalreporter):
    if COUNTS:
        terminalreporter.section("cases")
        for kind, count in sorted(COUNTS.items()):
            terminalreporter.write_line(f"{count:9,}  {kind}")
        terminalreporter.write_line(f"{sum(COUNTS.values()):9,}  in all")
