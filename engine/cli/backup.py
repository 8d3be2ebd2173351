"""``aurorad backup``: copy a data_dir, whether its daemon runs or not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from catalog.errors import AuroraError
from engine.cli.remote import DEFAULT_URL, CacertOption, Remote, RemoteError, TokenFileOption, UrlOption, fail
from engine.cli.savepoint import ask_for_savepoint


def register(app: typer.Typer) -> None:
    app.command()(backup)


def backup(
    data_dir: Annotated[Path, typer.Argument(help="The data_dir of a daemon on this machine.")],
    to: Annotated[Path, typer.Argument(help="A folder that does not exist yet, or is empty.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    cacert: CacertOption = None,
) -> None:
    """Copy a data_dir to another folder, with checksums, while its daemon runs or not.

    A running daemon makes a savepoint, which is copied, checked and
    removed. The backup holds everything up to that moment; `aurorad
    restore` makes a data_dir of it.

    \b
      aurorad backup /var/lib/aurorad/data /backup/monday

    Exit codes: 0 copied, 1 it cannot be copied, or no daemon answers, 2 the
    daemon refuses.
    """
    from engine.daemon.durable.savepoint import backup_stopped, copy_savepoint
    from storage.files import FolderLock, StorageError

    if not data_dir.is_dir():
        raise AuroraError(f"{data_dir} is no folder")
    try:
        lock: FolderLock | None = FolderLock(str(data_dir))
    except StorageError:
        lock = None  # its daemon runs
    if lock is None:
        remote = Remote(url, token_file, cacert)
        try:
            saved = Path(ask_for_savepoint(remote))
        except RemoteError as error:
            fail(error)
        if saved.resolve().parent.parent != data_dir.resolve():
            raise AuroraError(f"the daemon at {remote.url} has another data_dir: {saved.parent.parent}")
        manifest = copy_savepoint(saved, to)
        shutil.rmtree(saved, ignore_errors=True)
    else:
        try:
            manifest = backup_stopped(data_dir, to)
        finally:
            lock.release()
    size = sum(facts["bytes"] for facts in manifest["files"].values())
    typer.echo(f"{to}: {len(manifest['files'])} files, {size:,} bytes, checked")
