"""The command that an error names is one that installs this very veilsum."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from veilsum import extras
from veilsum.extras import install_command, reinstall_command

WHEEL = "file:///tmp/veilsum-0.2.0-py3-none-any.whl"
REPOSITORY = "https://example.org/veilsum.git"
ARCHIVE = {"url": WHEEL, "archive_info": {}}
CLONE = {"url": REPOSITORY, "vcs_info": {"vcs": "git", "commit_id": "ab12"}}


def test_a_checkout_is_installed_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = Path(extras.__file__).parents[1]
    monkeypatch.chdir(home)
    assert install_command("cli") == 'pip install -e ".[cli]"'
    monkeypatch.chdir(tmp_path)
    assert install_command("cli") == f'pip install -e "{home}[cli]"'
    assert reinstall_command() == f'pip install --force-reinstall --no-deps -e "{home}"'


@pytest.mark.parametrize(
    ("noted", "elsewhere", "wanted"),
    [
        (ARCHIVE, False, f'pip install "veilsum[cli] @ {WHEEL}"'),
        (None, False, 'pip install "veilsum[cli]"'),
        (CLONE, False, f'pip install "veilsum[cli] @ git+{REPOSITORY}@ab12"'),
        (ARCHIVE, True, 'pip install "veilsum[cli]"'),  # of another copy
    ],
)
def test_what_is_no_checkout_is_installed_from_where_it_was(
    noted: dict[str, object] | None,
    elsewhere: bool,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    record = tmp_path / "veilsum-0.2.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: veilsum\nVersion: 0.2.0\n")
    if noted:
        (record / "direct_url.json").write_text(json.dumps(noted))
    found = PathDistribution(record)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: found)
    monkeypatch.setattr(extras, "_HOME", tmp_path / "other" if elsewhere else tmp_path)
    assert install_command("cli") == wanted
