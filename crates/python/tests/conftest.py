"""Fixtures of all tests."""

import subprocess

import pytest
import userbtrfs


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    userbtrfs.mkfs(path, 256 << 20, label="python")
    yield path
    check = subprocess.run(["btrfs", "check", path], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
