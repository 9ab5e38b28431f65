"""The error names a log directory that this user may not change, and the fix."""

import errno
import os
from pathlib import Path

import pytest

from pyrklog.plane.start_errors import listen_error, refused_log_dir


@pytest.mark.parametrize("refused", [".", "logs", "logs/.lock", "logs/meta.properties"])
def test_refused_file_of_a_log_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    logs = tmp_path / "logs"
    if refused != ".":
        logs.mkdir()
        for name in (".lock", "meta.properties"):
            (logs / name).touch()
    assert refused_log_dir([str(logs)]) is None
    may = os.access

    def access(path: Path, mode: int, **how: bool) -> bool:
        return path != tmp_path / refused and may(path, mode, **how)

    monkeypatch.setattr(os, "access", access)
    found = refused_log_dir([str(logs)])
    assert found is not None
    assert str(found).startswith(f"Cannot open {tmp_path / refused}: Permission denied")
    assert "--data" in str(found.fix)
    assert found.exit_code == 78


@pytest.mark.parametrize(("port", "proposed"), [(80, "h:8080"), (443, "h:8443")])
def test_a_port_that_needs_root_has_a_fix(port: int, proposed: str) -> None:
    refused = listen_error("PLAINTEXT", "h", port, PermissionError(errno.EACCES, "no"))
    assert refused.what == f"No permission to listen on h:{port}."
    assert f"--listen {proposed};" in (refused.fix or "")
    assert refused.exit_code == 78
