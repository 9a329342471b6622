"""fdml endpoint."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import DeadlineOption, LogOption, PlainOption, ServerOption
from fdml.cli.output import check_writable, resumable, stderr
from fdml.cli.run_output import Said, run_output
from fdml.extras import need
from fdml.monitor.terminal import print_line
from fdml.serving.online.spans import Spans, no_spans


def endpoint(
    party: Annotated[Path, typer.Argument(help="This party's party.toml.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where callers connect; 0 takes a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option(help="A file, readable by its owner alone, with the token that callers must send.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="The endpoint's certificate chain for TLS, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate, PEM.")] = None,
    clients: Annotated[
        Path | None, typer.Option(help="The authorities whose certificates callers must show (mutual TLS), PEM.")
    ] = None,
    deadline: DeadlineOption = None,
    plain: PlainOption = False,
    server: ServerOption = None,
    log: LogOption = None,
    traces: Annotated[
        str | None,
        typer.Option(
            help="Trace requests by OpenTelemetry (extra `otel`): a file for JSON lines, or otlp for a collector.",
            metavar="FILE|otlp",
        ),
    ] = None,
) -> None:
    """Answer requests for joint scores over HTTP, by Open Inference Protocol v2; the parties stand by with `fdml up`.

    A model is named by its run, or by the federation for the promoted one: POST /v2/models/NAME/infer. /docs has all
    paths. Requests of many callers become one question. Beyond this machine it needs TLS, and a token or client
    certificates. /metrics has requests and their times for Prometheus. It needs the extra `serving`.
    """
    check_writable(log)
    need("starlette", "`fdml endpoint`")
    need("uvicorn", "`fdml endpoint`")
    if traces is not None:
        need("opentelemetry.sdk", "`fdml endpoint --traces`")
    from fdml.federation.endpoint import serve_endpoint  # noqa: PLC0415 (an extra)
    from fdml.serving.online.access import Access  # noqa: PLC0415

    access = Access(host, token_file, certificate, key, clients)
    with (
        resumable(f"fdml endpoint {party}"),
        run_output(Said(), live=False, log=log) as listener,
        nullcontext(no_spans) if traces is None else _traced(traces) as spans,
    ):
        serve_endpoint(
            party, access, port=port, plain=plain, server=server, seconds=deadline, spans=spans, on_event=listener
        )


def _traced(where: str) -> AbstractContextManager[Spans]:
    from fdml.serving.online.opentelemetry_spans import traced  # noqa: PLC0415 (an extra)

    return traced(where, lambda text: print_line(stderr, text))
