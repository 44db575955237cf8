"""Set-up of every test: `from reference import numpy_bert` works wherever pytest is started, and there
are two CPU devices, so that two replicas can be tested on any machine."""

import contextlib
import os
import sys
from collections import Counter
from pathlib import Path

# torch loads Triton, and Triton crashes if it is loaded after TensorFlow (tensorflow#124205).
with contextlib.suppress(ImportError):
    import triton  # noqa: F401

import pytest
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

# Only possible before TensorFlow has run its first operation, hence here. Whatever does not ask for
# the second device computes on the first one, as always.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# On one core a test that calls a function of TensorFlow within another has no thread for it, and two
# replicas of a step that XLA compiles wait for each other forever.
if len(os.sched_getaffinity(0)) == 1:
    tf.config.threading.set_inter_op_parallelism_threads(4)

from models import golden  # noqa: E402

from bert_tf.options import make_options  # noqa: E402
from bert_tf.serving.export_saved_model import ExportOptions, load_served  # noqa: E402
from bert_tf.serving.saved_model import write_saved_model  # noqa: E402


def pytest_collection_modifyitems(items):
    """A weekly test is one of the night."""
    for item in items:
        if item.get_closest_marker("weekly"):
            item.add_marker("night")
    # The longest begin first, so that no process is idle during the last minutes.
    items.sort(key=lambda item: item.get_closest_marker("night") is None)


@pytest.fixture
def eagerly():
    """Without graphs, which take longer to trace than eight steps take to run."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """The folder of a SavedModel of the classifier."""
    folder = tmp_path_factory.mktemp("exported") / "single"
    options = make_options(ExportOptions, model_dir=str(golden("classifier")), export_dir="")
    write_saved_model(load_served(options), str(folder))
    return folder


# The guard: what each case costs, in seconds of the processor, processes that it waits for included.
# The wall clock counts what else runs on the machine: it says up to five times as much.

CASES, CALLS = Counter(), Counter()  # nodeid -> seconds with fixtures; of the test alone


def processor_seconds():
    return sum(os.times()[:4])


def pytest_runtest_logstart():
    processor_seconds.at_last_report = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    now = processor_seconds()
    report.processor_seconds = now - processor_seconds.at_last_report  # pytest-xdist sends it along
    processor_seconds.at_last_report = now
    return report


def pytest_runtest_logreport(report):
    seconds = getattr(report, "processor_seconds", 0.0)  # none where a worker crashed
    CASES[report.nodeid] += seconds
    if report.when == "call":
        CALLS[report.nodeid] = seconds


def pytest_terminal_summary(terminalreporter, config):
    """Print the sum and the slowest; `make test` leaves its seconds to tests/test_budget.py."""
    terminalreporter.section(f"{CASES.total():.0f} processor seconds in {len(CASES)} cases")
    for name, seconds in CASES.most_common(10):
        terminalreporter.write_line(f"{seconds:6.1f} s, {CALLS[name]:.1f} without fixtures: {name}")
    is_whole = config.args_source is config.ArgsSource.TESTPATHS
    if is_whole and config.option.markexpr == "not night" and hasattr(config, "cache"):
        config.cache.set("bert_tf/commit_tier", dict(CALLS))
