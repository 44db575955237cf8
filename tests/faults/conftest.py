"""`pytest tests/faults` injects every fault once; `--faults=20` each of them twenty times, at other
random moments and places."""


def pytest_addoption(parser):
    parser.addoption("--faults", type=int, default=1, help="how often each fault is injected")


def pytest_generate_tests(metafunc):
    if "fault_seed" in metafunc.fixturenames:
        # Under `make test` this file is not read early enough to add the option.
        count = metafunc.config.getoption("--faults", default=1)
        metafunc.parametrize("fault_seed", range(count))
