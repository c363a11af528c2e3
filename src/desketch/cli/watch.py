"""``desketch watch``: the report of a run in the browser while the run goes on."""

from __future__ import annotations

from pathlib import Path

import typer

from desketch.errors import InputError

app = typer.Typer(add_completion=False)


@app.command()
def watch(
    folder: Path = typer.Argument(help="Run folder; it may still be empty."),
    port: int = typer.Option(0, min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one."),
    browser: bool = typer.Option(True, help="Open the page."),
) -> None:
    """Serve the report of a run on this machine; it updates itself as rounds end.  Ctrl-C stops watching."""
    import webbrowser

    from desketch.report.live import LiveReport

    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give the --out of a run, which may have just started")
    try:
        server = LiveReport(folder, port)
    except OSError as error:
        raise InputError(f"cannot listen on port {port}: {error.strerror}; choose another --port") from None
    typer.echo(f"watching {folder} at {server.url} (Ctrl-C stops)")
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("stopped; the run itself is not touched")
    finally:
        server.server_close()
