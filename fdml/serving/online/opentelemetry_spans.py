"""Spans for OpenTelemetry (extra `otel`): to a file, or to a collector by OTLP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from fdml.errors import SettingsError
from fdml.serving.online.otlp import OtlpExporter
from fdml.serving.online.spans import OpenSpan, Spans

OTLP = "otlp"


def spans_of(provider: TracerProvider) -> Spans:
    """Spans that this provider takes. Errors are not recorded in them: their words may hold what a caller sent."""
    tracer = provider.get_tracer("fdml", metadata.version("fdml"))

    def open_span(name: str) -> AbstractContextManager[OpenSpan]:
        return tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)

    return open_span


@contextmanager
def traced(where: str, on_loss: Callable[[str], None] = lambda _: None) -> Iterator[Spans]:
    """Spans to a file, one JSON object each; or to "otlp", which OpenTelemetry's own environment variables set up.

    They are sent by a thread of their own; what cannot be sent is lost, which `on_loss` hears, and no request waits.
    """
    if where == OTLP:
        with _provided(BatchSpanProcessor(OtlpExporter.of(os.environ, on_loss))) as spans:
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
