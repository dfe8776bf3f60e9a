"""Whether a client's folder may answer: its operator has frozen it, or it came from a backup.

    frozen                why nothing is answered; while it is there, nothing is
    state/restored.json   of a folder from a backup: which identity, and what was lost

A restored folder signs as before, and has forgotten what it signed since the backup. The rule:

- Charges are forgotten: a goal could be spent twice. So it answers nothing until its operator names
  a number of rounds, no fewer than were joined since the backup on whatever disk. They count as
  spent for as long as the folder lives, and of no other goal.
- A round that was under way may have been charged after the backup. A folder is in one round at a
  time, so one round more is counted where a mark has no charge.
- Marks are forgotten: a round may be joined again. That is another upload, under fresh keys and
  noise, and charged, as no key of a stored round, sealing key or upload is in a backup.
- A member of a committee signs one set of uploads for each round, and marks say which. Two sets
  differ in one client, whose privacy no count of ours pays for. So a restored identity serves on no
  committee, ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal, goal_entry
from secagg.storage import replace_durably, sync_folder

FROZEN: Final = "frozen"
RESTORED: Final = "state/restored.json"
_UNFREEZE: Final = (
    "`veilsum site unfreeze`; of a restored one with --accept-loss and no fewer rounds than it "
    "joined since the backup, or a new identity in a new folder, enrolled with what was spent"
)


class Restored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder from a backup remembers of that."""

    identity: str  # public key at that time, 64 hex digits
    made: int  # unix seconds of the backup
    goal: dict[str, float | int]  # of its policy, as ledgers have it
    lost: int  # rounds of the goal that count as spent, those of earlier restores among them
    accepted: bool = False  # whether somebody has said how many were lost

    def write(self, folder: Path) -> None:
        """Keep it in a client's folder, durably."""
        replace_durably(folder / RESTORED, msgspec.json.encode(self))


def restored(folder: Path) -> Restored | None:
    """What a folder remembers of a backup that it came from; None if it came from none."""
    path = folder / RESTORED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Restored)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigurationError(str(path), str(error), "as `veilsum site restore` wrote") from None


def freeze(folder: Path, reason: str) -> None:
    """Have a folder answer nothing from now on; `ConfigurationError` if it is none of a client."""
    if not any((folder / name).exists() for name in ("policy.toml", "identity.key")):
        raise ConfigurationError("home", f"{folder} is no client's folder", "one with policy.toml")
    replace_durably(folder / FROZEN, f"{' '.join(reason.split())}\n".encode())
    (folder / FROZEN).chmod(0o644)  # whoever froze it, the site's user reads why


def unfreeze(folder: Path, lost: int | None) -> None:
    """Have a folder answer again.

    Args:
        lost: rounds since the backup that it came from, if it waits for that number; or how many
            more they were than was said.

    Raises:
        ConfigurationError: the number is missing, negative, or the folder is of no backup.
    """
    record = restored(folder)
    if record is None and lost is not None:
        raise ConfigurationError("accept_loss", f"value {lost}", "left out: it is of no backup")
    if record is not None and not (record.accepted and lost is None):
        if lost is None or lost < 0:
            raise ConfigurationError("accept_loss", f"value {lost}", _UNFREEZE)
        changes = {"lost": record.lost + lost, "accepted": True}
        msgspec.structs.replace(record, **changes).write(folder)
    (folder / FROZEN).unlink(missing_ok=True)
    sync_folder(folder)


def why_frozen(folder: Path) -> str | None:
    """Why nothing is answered; None if something is."""
    try:
        return (folder / FROZEN).read_text(errors="replace").strip() or "nobody said why"
    except FileNotFoundError:
        if (folder / FROZEN).is_symlink():
            return "a link to nothing"
        record = restored(folder)
    except OSError as error:  # what has that name counts, whoever may read it
        return str(error)
    waits = record is not None and not record.accepted
    return "restored from a backup, and nobody said how many rounds were lost" if waits else None


def require_unfrozen(folder: Path) -> None:
    """See that a folder may answer; `ConfigurationError` if it is frozen."""
    if (reason := why_frozen(folder)) is not None:
        raise ConfigurationError(FROZEN, reason, _UNFREEZE)


def require_member(folder: Path, identity: bytes) -> None:
    """See that an identity may serve on committees; `ConfigurationError` if it was restored."""
    record = restored(folder)
    if record is not None and record.identity == identity.hex():
        problem = "restored from a backup: what it has signed for since is not known"
        raise ConfigurationError("committee", problem, "members with a new identity")


def lost_rounds(folder: Path, goal: PrivacyGoal | None) -> int:
    """Rounds of a goal that were lost with other disks, and count as spent.

    Raises:
        ConfigurationError: nobody said how many, or they are of another goal.
    """
    record = restored(folder)
    if record is None:
        return 0
    if not record.accepted:
        require_unfrozen(folder)
    if goal is None or record.goal != goal_entry(goal):
        problem = f"another one in policy.toml, and {record.lost} rounds were lost of this"
        raise ConfigurationError("goal", problem, f"that of the backup, {record.goal}")
    return record.lost
