"""``layline serve``: serve a trained model as a page and a JSON interface."""

from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Decode, Device, Plugins, read_decode, read_share

EXAMPLES = """
Examples:

  layline serve runs/photos-arc

  layline serve runs/photos-arc --port 8080 --coverage 0.95 --review 10%

  curl -F file=@photo.jpg http://127.0.0.1:8000/predict
"""


def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a .safetensors model.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 accepts other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another name of this server, such as that of a proxy; repeatable."),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Coverage of the ranges, such as 0.9.")
    ] = None,
    decode: Decode = None,
    review: Annotated[
        str | None, typer.Option(help="Share of samples that a person should check, such as 20%.")
    ] = None,
    max_mb: Annotated[
        float, typer.Option(min=0.001, help="Maximum size of a request in megabytes.")
    ] = 32,
    max_pixels: Annotated[
        int, typer.Option(min=1, max=89_478_485, help="Maximum number of pixels of an image.")
    ] = 50_000_000,
    max_files: Annotated[
        int, typer.Option(min=1, help="Maximum number of images in a request.")
    ] = 100,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows of a table.")
    ] = 10_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of a request in seconds.")] = 60,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Serve a model: a page to drop images on, and JSON for programs.

    There is no login, so the server listens on this machine only, unless --host is given.
    Ctrl-C or SIGTERM stops it after the requests under way are answered.
    """
    from layline.model.model_file import load
    from layline.serve import Limits, create_app
    from layline.serve.server import bind, find_hosts, format_url, is_local, run_server
    from layline.utils.plugins import load_plugins

    load_plugins(plugins or ())
    with bind(host, port) as address:
        app = create_app(
            run,
            coverage=coverage,
            decode=decode and read_decode(decode, lambda: load(run).classes),
            review=None if review is None else read_share(review),
            device=device,
            limits=Limits(
                max_mb=max_mb,
                max_pixels=max_pixels,
                max_files=max_files,
                max_rows=max_rows,
                timeout=timeout,
            ),
            allowed_hosts=[*find_hosts(host), *(allow_host or ())],
        )
        if not is_local(address):
            typer.echo(f"There is no login: everyone who can reach {host} can use it.", err=True)
        names = app.state.classes
        typer.echo(
            f"Serving {run} at {format_url(address)}: {names[0]} to {names[-1]}, {len(names)} "
            "classes. Press Ctrl-C to stop."
        )
        run_server(app, address, timeout)
        typer.echo("Stopped.")
