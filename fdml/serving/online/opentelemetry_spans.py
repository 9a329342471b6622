"""Spans for OpenTelemetry (extra `otel`): to a file, or to a collector by OTLP where its exporter is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module, metadata
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from fdml.errors import MissingExtra, SettingsError
from fdml.serving.online.spans import OpenSpan, Spans

OTLP = "otlp"
_OTLP_MODULES = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
)


def spans_of(provider: TracerProvider) -> Spans:
    """Spans that this provider takes. Errors are not recorded in them: their words may hold what a caller sent."""
    tracer = provider.get_tracer("fdml", metadata.version("fdml"))

    def open_span(name: str) -> AbstractContextManager[OpenSpan]:
        return tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)

    return open_span


@contextmanager
def traced(where: str) -> Iterator[Spans]:
    """Spans to a file, one JSON object each; or to "otlp", which OpenTelemetry's own environment variables set up.

    They are sent by a thread of their own; what cannot be sent is lost, and no request waits for it.
    """
    if where == OTLP:
        with _provided(BatchSpanProcessor(_otlp_exporter())) as spans:
            yield spans
        return
    try:
        file = Path(where).open("a", encoding="utf-8")  # noqa: SIM115 (it is closed below)
    except OSError as error:
        raise SettingsError(f"cannot write the traces {where!r} ({error.strerror}); name another file") from None
    exporter = ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
    with file, _provided(BatchSpanProcessor(exporter)) as spans:
        yield spans


@contextmanager
def _provided(processor: SpanProcessor) -> Iterator[Spans]:
    provider = TracerProvider(resource=Resource.create({"service.name": "fdml-endpoint"}), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    try:
        yield spans_of(provider)
    finally:
        provider.shutdown()


def _otlp_exporter() -> SpanExporter:
    for name in _OTLP_MODULES:
        try:
            found: SpanExporter = import_module(name).OTLPSpanExporter()
        except ModuleNotFoundError:
            continue
        return found
    raise MissingExtra(
        "--traces otlp needs an exporter of OpenTelemetry; install it with `pip install opentelemetry-exporter-otlp`, "
        "or name a file"
    )
