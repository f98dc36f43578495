"""The vault's file and its key: whole and right, or refused."""

import os
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from mainspring.capabilities.vault.vault_file import Vault
from mainspring.capabilities.vault.vault_key import decoded, from_file, from_keyring, new_key
from mainspring.config import read_settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.wiring.user_vault import known_secrets, user_vault

KEY = bytes(range(32))
VALUE = "correct horse battery staple"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    made = Vault(tmp_path / "vault.json", KEY, clock=clock.now)
    made.put("TOKEN", VALUE, ["API.test", "*.x.test"])
    made.put("OTHER", "another value", [])
    return made


def test_a_stored_secret_is_returned_and_not_readable_in_the_file(vault: Vault):
    secret = Vault(vault.path, KEY, clock=clock.now).get("TOKEN")
    assert (secret.value, secret.hosts) == (VALUE, ("*.x.test", "api.test"))
    assert VALUE not in repr(secret)
    assert [item.name for item in vault.secrets()] == ["OTHER", "TOKEN"]
    assert VALUE.encode() not in vault.path.read_bytes()
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o600


def test_a_secret_is_replaced_and_removed(vault: Vault):
    before = vault.get("TOKEN")
    after = vault.put("TOKEN", "new value", [])
    assert (after.created, vault.get("TOKEN").value) == (before.created, "new value")
    vault.remove("TOKEN")
    with pytest.raises(InvalidInput, match="no 'TOKEN'"):
        vault.get("TOKEN")
    with pytest.raises(InvalidInput, match="no 'TOKEN'"):
        vault.remove("TOKEN")


def test_a_wrong_key_opens_nothing_and_changes_nothing(vault: Vault):
    before = vault.path.read_bytes()
    stranger = Vault(vault.path, bytes(32), clock=clock.now)
    for attempt in (
        stranger.secrets,
        lambda: stranger.get("OTHER"),
        lambda: stranger.put("X", "some value", []),
        lambda: stranger.remove("OTHER"),
    ):
        with pytest.raises(InvalidInput, match="the key differs"):
            attempt()
    assert vault.path.read_bytes() == before


File: TypeAlias = dict[str, Any]


def add_host(file: File) -> None:
    file["entries"]["TOKEN"]["hosts"].append("evil.test")


def change_name(file: File) -> None:
    file["entries"]["MINE"] = file["entries"].pop("TOKEN")


def swap_secrets(file: File) -> None:
    entries = file["entries"]
    entries["TOKEN"], entries["OTHER"] = entries["OTHER"], entries["TOKEN"]


def remove_secret(file: File) -> None:
    del file["entries"]["OTHER"]


def change_time(file: File) -> None:
    file["entries"]["TOKEN"]["updated"] = "2020-01-01T00:00:00Z"


def change_value(file: File) -> None:
    file["entries"]["TOKEN"]["value"] = "AAAA" + file["entries"]["TOKEN"]["value"][4:]


def remove_seal(file: File) -> None:
    file["seal"] = ""


def change_version(file: File) -> None:
    file["version"] = 2


def add_field(file: File) -> None:
    file["more"] = 1


@pytest.mark.parametrize(
    "meddle",
    [
        add_host,
        change_name,
        swap_secrets,
        remove_secret,
        change_time,
        change_value,
        remove_seal,
        change_version,
        add_field,
    ],
)
def test_a_tampered_file_is_refused(vault: Vault, meddle: Callable[[File], None]):
    file: File = msgspec.json.decode(vault.path.read_bytes())
    meddle(file)
    vault.path.write_bytes(msgspec.json.encode(file))
    with pytest.raises(InvalidInput):
        vault.secrets()
    with pytest.raises(InvalidInput):
        vault.get("OTHER")


def test_a_truncated_file_is_refused(vault: Vault):
    vault.path.write_bytes(vault.path.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match="not a vault"):
        vault.secrets()


@pytest.mark.parametrize("name", ["", "a-b", "1A", "A B", "A=B", "x" * 65, "A\n"])
def test_an_invalid_variable_name_is_refused(vault: Vault, name: str):
    with pytest.raises(InvalidInput):
        vault.put(name, "some value", [])


@pytest.mark.parametrize(
    "host", ["", "*", "https://a.test", "a.test:1", "10.0.0.1", "a b", "*.*.a"]
)
def test_an_invalid_host_is_refused(vault: Vault, host: str):
    with pytest.raises(InvalidInput):
        vault.put("A", "some value", [host])


@pytest.mark.parametrize("value", ["", " \n", "short", "x" * 70_000])
def test_an_empty_short_or_oversized_value_is_refused(vault: Vault, value: str):
    with pytest.raises(InvalidInput):
        vault.put("A", value, [])


def test_concurrent_writers_lose_nothing(tmp_path: Path):
    def put(number: int) -> None:
        Vault(tmp_path / "vault.json", KEY, clock=clock.now).put(f"S{number}", "some value", [])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(24)))
    assert len(Vault(tmp_path / "vault.json", KEY, clock=clock.now).secrets()) == 24


def create_key(path: Path) -> bytes:
    return from_file(path, create=True)


def test_a_key_file_is_created_once_and_private(tmp_path: Path):
    path = tmp_path / "deep" / "vault.key"
    with pytest.raises(InvalidInput):
        from_file(path, create=False)
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(create_key, [path] * 16))
    assert len(keys) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["vault.key"]


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_a_key_file_readable_by_others_is_refused(tmp_path: Path):
    path = tmp_path / "vault.key"
    from_file(path, create=True)
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match="others can read"):
        from_file(path, create=True)
    path.chmod(0o600)
    link = tmp_path / "link.key"
    os.symlink(path, link)
    with pytest.raises(InvalidInput):
        from_file(link, create=False)


@pytest.mark.parametrize("written", ["", "short", "x" * 44, "!" * 43 + "=", "ä" * 44])
def test_an_invalid_key_is_refused_without_being_shown(written: str):
    with pytest.raises(InvalidInput) as refused:
        decoded(written, source="MAINSPRING_VAULT_KEY")
    assert not written or written not in str(refused.value)


class FakeKeyring:
    """A keyring."""

    def __init__(self, fails: bool = False) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.fails = fails

    def get_password(self, service: str, username: str) -> str | None:
        if self.fails:
            raise RuntimeError("locked, and the secret is 42")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password


def test_a_key_can_be_stored_in_the_keyring():
    pocket = FakeKeyring()
    with pytest.raises(InvalidInput, match="has no key"):
        from_keyring(create=False, keyring=pocket)
    key = from_keyring(create=True, keyring=pocket)
    assert from_keyring(create=False, keyring=pocket) == key
    with pytest.raises(InvalidInput, match=r"does not open: RuntimeError$"):
        from_keyring(create=True, keyring=FakeKeyring(fails=True))


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"MAINSPRING_VAULT": str(tmp_path / "vault.json"), **more}


def test_vault_secrets_are_known_to_the_log_and_the_proxy(tmp_path: Path):
    settings = read_settings(environ=environment(tmp_path, OPENAI_API_KEY="sk-model"))
    assert known_secrets(settings) == {"OPENAI_API_KEY": "sk-model"}
    assert user_vault(settings).credentials() == ()
    user_vault(settings).open().put("TOKEN", VALUE, ["api.test"])
    user_vault(settings).open().put("OTHER", "another value", [])
    assert known_secrets(settings)["OTHER"] == "another value"
    [credential] = user_vault(settings).credentials()
    assert (credential.name, credential.hosts) == ("TOKEN", ("api.test",))
    assert credential.value == VALUE
    assert VALUE not in repr(settings) + repr(credential)


def delete_key(key: Path) -> None:
    key.unlink()


def replace_key(key: Path) -> None:
    key.write_text(new_key())


@pytest.mark.parametrize("happen", [delete_key, replace_key])
def test_without_its_key_a_vault_prevents_all_writing(
    tmp_path: Path, happen: Callable[[Path], None]
):
    settings = read_settings(environ=environment(tmp_path))
    user_vault(settings).open().put("TOKEN", VALUE, [])
    happen(tmp_path / "vault.key")
    with pytest.raises(InvalidInput):
        known_secrets(settings)
    with pytest.raises(InvalidInput):  # and no other key is made over it
        user_vault(settings).open().put("TOKEN", VALUE, [])


def test_the_key_in_the_environment_comes_first(tmp_path: Path):
    key = new_key()
    settings = read_settings(environ=environment(tmp_path, MAINSPRING_VAULT_KEY=key))
    user_vault(settings).open().put("TOKEN", VALUE, [])
    assert not (tmp_path / "vault.key").exists()
    assert known_secrets(settings) == {"TOKEN": VALUE, "MAINSPRING_VAULT_KEY": key}
    assert key not in repr(settings)
