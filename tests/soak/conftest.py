import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--gemmd", required=True)
    parser.addoption("--gemmd-leaky", required=True, help="a gemmd with GEMMD_PLANTED_LEAK")
    parser.addoption("--doomed-client", required=True)
    parser.addoption("--seconds", type=float, default=20)


@pytest.fixture
def programs(request):
    def path(option: str) -> str:
        program = request.config.getoption(option)
        assert pathlib.Path(program).is_file(), f"build {program} first"
        return program

    return path


@pytest.fixture
def seconds(request) -> float:
    return request.config.getoption("--seconds")
