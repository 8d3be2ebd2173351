"""``aurorad restore``: make a data_dir of a backup or a savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(restore)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup or a savepoint.")],
    data_dir: Annotated[Path, typer.Argument(help="A folder that does not exist yet, or is empty.")],
) -> None:
    """Make a data_dir of a backup or a savepoint. Every file is compared with its checksum.

    Start the daemon with this data_dir and the network file of the backup:
    it goes on behind the last batch that the backup holds. Senders of the
    client protocol learn that and send the later ones again, if they still
    have them.

    \b
      aurorad restore /backup/monday /var/lib/aurorad/data

    Exit codes: 0 restored, 1 it cannot be restored, and nothing is left.
    """
    from engine.daemon.durable.savepoint import restore as copy_back

    manifest = copy_back(source, data_dir)
    typer.echo(f"{data_dir}: {len(manifest['files'])} files of {manifest.get('made', 'an unknown time')}, checked")
