"""Jobs of workers that read Parquet files: to learn from a piece what an encoder is made of, and to encode a piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from fdml.cluster.frames import Frame
from fdml.cluster.part_files import PartArrays, append_ids, append_rows, write_part
from fdml.cluster.part_tables import PieceTable, bytes_array, check_unchanged
from fdml.cluster.workers import NotHere
from fdml.data.column_roles import ColumnRoles
from fdml.data.encoding import Encoder, Statistics, repeated_rows
from fdml.data.error_context import errors_about
from fdml.data.frame_source import FrameSource
from fdml.data.parquet_files import ParquetPiece
from fdml.data.rows import row_count
from fdml.models.bundle import Bundle
from fdml.models.bundle_model import bundle_model
from fdml.models.row_pointers import predict_rows
from fdml.settings.data import DataSettings, IdSettings


@dataclass(frozen=True)
class LearningSetup:
    """Which columns are learned from, and by which settings."""

    table: PieceTable
    features: tuple[str, ...]
    settings: DataSettings

    def frame(self) -> Frame:
        """For another process."""
        settings = self.settings.model_dump(mode="json", exclude_unset=True)
        facts = {"location": self.table.location, "features": self.features, "data": settings}
        return Frame({"job": "learning", **facts}, self.table.arrays())


class LearningJob:
    """Learns from one piece at a time."""

    def __init__(self, setup: LearningSetup) -> None:
        self._setup = setup

    def run(self, task: Frame) -> Frame:
        """What the piece tells of each column. With `counts` each row is there so often."""
        setup, piece = self._setup, self._setup.table.piece(task.facts["piece"])
        statistics = Statistics(setup.features, setup.settings)
        batches = piece.batches(setup.features)
        counts = task.arrays.get("counts")
        statistics.learn(batches if counts is None else repeated_rows(batches, counts), task.facts["first"])
        check_unchanged(piece, task.facts["piece"])
        return Frame({"learned": statistics.state()})


def learning_job(setup: Frame) -> LearningJob:
    """The job that `LearningSetup.frame` has described."""
    facts = setup.facts
    table = PieceTable.of_frame(setup)
    return LearningJob(LearningSetup(table, tuple(facts["features"]), DataSettings(**facts["data"])))


@dataclass(frozen=True)
class EncodingSetup:
    """What becomes of a table's rows: features; or where there is a `bundle`, the predictions of its model."""

    table: PieceTable
    place: str
    """Names the table in errors."""
    roles: ColumnRoles
    encoder: Encoder
    ids: IdSettings
    bundle: Bundle | None = None

    def frame(self) -> Frame:
        """For another process."""
        files = {} if self.bundle is None else self.bundle.files()
        return Frame(
            {
                "job": "encoding",
                "location": self.table.location,
                "place": self.place,
                "roles": asdict(self.roles),
                "ids": self.ids.model_dump(mode="json"),
            },
            {
                **self.table.arrays(),
                "encoder": bytes_array(self.encoder.to_json().encode()),
                **{f"bundle/{name}": bytes_array(content) for name, content in files.items()},
            },
        )


class EncodingJob:
    """Makes the part of one piece at a time."""

    def __init__(self, setup: EncodingSetup) -> None:
        self._setup = setup
        bundle = setup.bundle
        self._model = None if bundle is None else bundle_model(bundle, bundle.card.width or 1)

    def run(self, task: Frame) -> Frame:
        """Write the part into the folder that the task names, unless it is there."""
        piece, folder = self._setup.table.piece(task.facts["piece"]), Path(task.facts["folder"])

        def fill(arrays: PartArrays) -> None:
            self._write(piece, arrays)
            check_unchanged(piece, task.facts["piece"])

        try:
            write_part(folder, fill)
        except OSError as error:
            raise NotHere(
                f"part {folder.name!r} cannot be written to {str(folder.parent)!r} ({error.strerror}); every worker "
                f"must see this folder and have room there: see workers.folder"
            ) from None
        return Frame({"rows": piece.count})

    def _write(self, piece: ParquetPiece, arrays: PartArrays) -> None:
        setup, end = self._setup, 0
        source = FrameSource(
            setup.place,
            piece,
            piece.count,
            roles=setup.roles,
            encoder=setup.encoder,
            id_settings=setup.ids,
            first=piece.first,
        )
        for chunk in source.chunks():
            if self._model is None:
                end = append_rows(arrays, chunk, end)
            else:
                arrays.append("predictions", predict_rows(self._model, chunk, 0, row_count(chunk)))
        end = 0
        with errors_about(setup.place):
            for texts in source.id_texts() if setup.roles.ids else ():
                end = append_ids(arrays, texts, end)


def encoding_job(setup: Frame) -> EncodingJob:
    """The job that `EncodingSetup.frame` has described."""
    facts, files = setup.facts, setup.under("bundle")
    return EncodingJob(
        EncodingSetup(
            PieceTable.of_frame(setup),
            facts["place"],
            _roles(facts["roles"]),
            Encoder.from_json(setup.arrays["encoder"].tobytes()),
            IdSettings(**facts["ids"]),
            Bundle.of_files({name: content.tobytes() for name, content in files.items()}) if files else None,
        )
    )


def _roles(facts: Mapping[str, object]) -> ColumnRoles:
    """JSON has lists where roles have tuples."""
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
    return ColumnRoles(**found)  # type: ignore[arg-type]
