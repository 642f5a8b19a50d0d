"""``layline serve``: a trained model as a page, and as an interface for programs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from layline.cli.options import Decode, Plugins, read_decode, read_share

EXAMPLES = """
Examples:

  layline serve runs/photos-arc

  layline serve runs/photos-arc --port 8080 --coverage 0.95 --review 10%

  curl -F file=@photo.jpg http://127.0.0.1:8000/predict
"""


def serve(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or a .safetensors model.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 for other machines too.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")
    ] = 8000,
    coverage: Annotated[
        float | None,
        typer.Option(help="Ranges shall hold the truth for this share of samples, such as 0.9."),
    ] = None,
    decode: Decode = None,
    review: Annotated[
        str | None,
        typer.Option(help="Share of samples that a person should look at, such as 20%."),
    ] = None,
    max_mb: Annotated[
        float | None, typer.Option(help="Millions of bytes that a request may have.")
    ] = None,
    max_pixels: Annotated[int | None, typer.Option(help="Pixels that an image may have.")] = None,
    max_files: Annotated[int | None, typer.Option(help="Images that a request may have.")] = None,
    max_rows: Annotated[
        int | None, typer.Option(help="Rows of a table that a request may have.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds that a client may take to send a request.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto takes a GPU if there is one; or cpu, cuda:1, mps.")
    ] = "auto",
    plugins: Plugins = None,
) -> None:
    """Serve a model: a page to drop images on, and JSON for programs.

    Nobody has to log in, so it listens on this machine only unless --host says otherwise. Ctrl-C
    or SIGTERM stops it, after what was asked has been answered.
    """
    from layline.model.model_file import load
    from layline.serve import Limits, create_app
    from layline.serve import serve as serve_app
    from layline.serve.server import bind, is_local, url_of
    from layline.utils.plugins import load_plugins

    asked = {
        "max_mb": max_mb,
        "max_pixels": max_pixels,
        "max_files": max_files,
        "max_rows": max_rows,
        "timeout": timeout,
    }
    limits = Limits(**{name: value for name, value in asked.items() if value is not None})  # type: ignore[arg-type]
    share = None if review is None else read_share(review)
    load_plugins(plugins or ())
    wanted = None if decode is None else read_decode(decode, lambda: load(run).classes)
    address = bind(host, port)
    try:
        app = create_app(
            run, coverage=coverage, decode=wanted, review=share, device=device, limits=limits
        )
        if not is_local(address):
            sys.stderr.write(
                f"layline: whoever can reach {host} can use this server, nobody has to log in\n"
            )
        about = app.state.service.served.describe()

        def started() -> None:
            names = about["classes"]
            typer.echo(
                f"{about['name']} ({about['method']}) grades {about['inputs']['kind']} from "
                f"{names[0]} to {names[-1]}, {len(names)} classes\n"
                f"at {url_of(address)} – Ctrl-C stops"
            )
            sys.stdout.flush()

        serve_app(app, address, limits.timeout, started)
    finally:
        address.close()
    typer.echo("stopped")
