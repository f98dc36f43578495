"""The installation that the processes of a test share."""

from base64 import urlsafe_b64encode
from pathlib import Path

from mainspring.capabilities.vault.user_vault import UserVault

VAULT_KEY = urlsafe_b64encode(b"the installation of these tests.").decode()
KEY = UserVault(path=Path("vault.json"), written_key=VAULT_KEY).store_key()
"""The key of its stores."""


def install(home: Path) -> None:
    """Make programs with this home folder belong to the installation."""
    file = home / ".mainspring/vault.key"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(VAULT_KEY)
    file.chmod(0o600)
