"""`veilsum registry`: what a registrar does, in order, and what it is kept from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from command_line import invoke

from protocol.adapters.private_files import write_identity
from protocol.authority.registry import Registry, read_file, read_signed
from secagg import Identity

KEYS = [Identity.generate().public.hex() for _ in range(2)]
SPENT = "--spent 4 --epsilon 8 --delta 1e-5 --rounds 20".split()


def test_a_registrar_s_year(tmp_path: Path) -> None:
    file, key = tmp_path / "registry.json", tmp_path / "registrar.key"

    def run(*arguments: object, works: bool = True, signs: bool = True) -> Any:
        given = ["--registry", file, *(["--key", key] if signs else [])]
        before = file.read_bytes() if file.exists() else b""
        done = invoke("registry", *arguments, *given)
        assert (done.exit_code == 0) == works, done.output
        if not works:
            assert file.read_bytes() == before
            assert str(key.read_text()).strip() not in done.output
        return done

    def now() -> Registry:
        return read_signed(read_file(file), {registrar})

    registrar = bytes.fromhex(run("init").stdout.split()[-1])
    assert key.stat().st_mode & 0o777 == 0o600 and file.stat().st_mode & 0o777 == 0o644
    assert now().number == 1 and now().expires - now().issued == 30 * 24 * 3600
    run("init", works=False)
    run("enrol", "--site", "berlin", "--key-of", KEYS[0], "--role", "member", "--role", "client")
    (entry,) = now().entries
    assert (entry.site, entry.roles, entry.spent) == ("berlin", ("client", "member"), 0)
    for wrong in (
        ["--site", "berlin", "--key-of", KEYS[1]],
        ["--site", "paris", "--key-of", KEYS[0]],
        ["--site", "Paris", "--key-of", KEYS[1]],
        ["--site", "paris", "--key-of", "ab"],
        ["--site", "paris", "--key-of", KEYS[1], "--role", "server"],
        ["--site", "paris", "--key-of", KEYS[1], "--spent", "4"],
    ):
        run("enrol", *wrong, works=False)
    run("enrol", "--site", "berlin", "--key-of", KEYS[0], *SPENT)
    run("revoke", "--site", "berlin")
    run("revoke", "--site", "berlin", works=False)
    run("enrol", "--site", "berlin", "--key-of", KEYS[1], works=False)
    run("enrol", "--site", "berlin", "--key-of", KEYS[1], *SPENT)
    run("sign", "--days", 7)
    assert now().number == 6 and now().spent() == {"berlin": (4, (8.0, 1e-5, 20, None))}
    assert now().expires - now().issued == 7 * 24 * 3600
    shown = run("verify", "--registrar", registrar.hex(), signs=False).stdout
    assert f"berlin {KEYS[1]} client, 4 rounds" in shown and f"{KEYS[0]} revoked" in shown
    run("verify", "--registrar", KEYS[0], works=False, signs=False)
    # The site's recovery key ends its key, and is nobody's own.
    write_identity(tmp_path / "recovery", recovery := Identity.generate())
    run("enrol", "--site", "berlin", "--key-of", KEYS[1], "--recovery", recovery.public.hex())
    said = invoke("identity", "revoke", "--recovery", tmp_path / "recovery", "--registry", file)
    (tmp_path / "said").write_text(said.stdout)
    run("rotate", "--statement", tmp_path / "said")
    assert all(entry.revoked for entry in now().entries) and now().number == 8
    run("rotate", "--statement", tmp_path / "said", works=False)
    # Another registrar's key changes nothing, and signs nothing.
    key.write_text(Identity.generate().private_bytes().hex())
    run("sign", works=False)
    run("sign", "--before", registrar.hex())
    registrar = Identity.from_private_bytes(bytes.fromhex(key.read_text())).public
    assert now().number == 9
    run("sign", "--number", 9, works=False)
    run("sign", "--number", 12)
    assert now().number == 12
    key.chmod(0o640)
    run("sign", works=False)
