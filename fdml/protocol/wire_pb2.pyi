from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("protocol", "run_hash", "alignment_hash", "rows", "held_out", "incarnation", "done", "line")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RUN_HASH_FIELD_NUMBER: _ClassVar[int]
    ALIGNMENT_HASH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    run_hash: bytes
    alignment_hash: bytes
    rows: int
    held_out: int
    incarnation: int
    done: int
    line: int
    def __init__(self, protocol: _Optional[int] = ..., run_hash: _Optional[bytes] = ..., alignment_hash: _Optional[bytes] = ..., rows: _Optional[int] = ..., held_out: _Optional[int] = ..., incarnation: _Optional[int] = ..., done: _Optional[int] = ..., line: _Optional[int] = ...) -> None: ...

class Labels(_message.Message):
    __slots__ = ("classes", "sealed", "piece")
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    classes: int
    sealed: bytes
    piece: Piece
    def __init__(self, classes: _Optional[int] = ..., sealed: _Optional[bytes] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("step", "codes", "mask_id", "variance", "width", "bits", "count", "scale", "seen")
    STEP_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    MASK_ID_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    step: int
    codes: bytes
    mask_id: int
    variance: float
    width: int
    bits: int
    count: int
    scale: int
    seen: bytes
    def __init__(self, step: _Optional[int] = ..., codes: _Optional[bytes] = ..., mask_id: _Optional[int] = ..., variance: _Optional[float] = ..., width: _Optional[int] = ..., bits: _Optional[int] = ..., count: _Optional[int] = ..., scale: _Optional[int] = ..., seen: _Optional[bytes] = ...) -> None: ...

class Gradient(_message.Message):
    __slots__ = ("step", "codes", "mask_id")
    STEP_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    MASK_ID_FIELD_NUMBER: _ClassVar[int]
    step: int
    codes: bytes
    mask_id: int
    def __init__(self, step: _Optional[int] = ..., codes: _Optional[bytes] = ..., mask_id: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("step", "no_gain")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NO_GAIN_FIELD_NUMBER: _ClassVar[int]
    step: int
    no_gain: bool
    def __init__(self, step: _Optional[int] = ..., no_gain: bool = ...) -> None: ...

class Checkpointed(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class HeldOutPredictions(_message.Message):
    __slots__ = ("epoch", "codes", "mask_id", "variance", "width", "piece")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    MASK_ID_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    codes: bytes
    mask_id: int
    variance: float
    width: int
    piece: Piece
    def __init__(self, epoch: _Optional[int] = ..., codes: _Optional[bytes] = ..., mask_id: _Optional[int] = ..., variance: _Optional[float] = ..., width: _Optional[int] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class SealedMetrics(_message.Message):
    __slots__ = ("epoch", "sealed")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sealed: bytes
    def __init__(self, epoch: _Optional[int] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class BestEpoch(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: bytes
    def __init__(self, sealed: _Optional[bytes] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("model_mac",)
    MODEL_MAC_FIELD_NUMBER: _ClassVar[int]
    model_mac: bytes
    def __init__(self, model_mac: _Optional[bytes] = ...) -> None: ...

class FromParty(_message.Message):
    __slots__ = ("hello", "labels", "push", "checkpointed", "held_out", "metrics", "finished", "gradient", "stop", "best_epoch")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTED_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    BEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    labels: Labels
    push: Push
    checkpointed: Checkpointed
    held_out: HeldOutPredictions
    metrics: SealedMetrics
    finished: Finished
    gradient: Gradient
    stop: Stop
    best_epoch: BestEpoch
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., checkpointed: _Optional[_Union[Checkpointed, _Mapping]] = ..., held_out: _Optional[_Union[HeldOutPredictions, _Mapping]] = ..., metrics: _Optional[_Union[SealedMetrics, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., gradient: _Optional[_Union[Gradient, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., best_epoch: _Optional[_Union[BestEpoch, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("pushed", "evaluated", "labels", "labels_digest")
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    pushed: int
    evaluated: _containers.RepeatedScalarFieldContainer[int]
    labels: int
    labels_digest: bytes
    def __init__(self, pushed: _Optional[int] = ..., evaluated: _Optional[_Iterable[int]] = ..., labels: _Optional[int] = ..., labels_digest: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class Total(_message.Message):
    __slots__ = ("step", "codes", "pushed_at", "mask_ids", "variance", "width", "bits", "count", "parts")
    STEP_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    PUSHED_AT_FIELD_NUMBER: _ClassVar[int]
    MASK_IDS_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    codes: bytes
    pushed_at: _containers.RepeatedScalarFieldContainer[int]
    mask_ids: _containers.RepeatedScalarFieldContainer[int]
    variance: float
    width: int
    bits: int
    count: int
    parts: bytes
    def __init__(self, step: _Optional[int] = ..., codes: _Optional[bytes] = ..., pushed_at: _Optional[_Iterable[int]] = ..., mask_ids: _Optional[_Iterable[int]] = ..., variance: _Optional[float] = ..., width: _Optional[int] = ..., bits: _Optional[int] = ..., count: _Optional[int] = ..., parts: _Optional[bytes] = ...) -> None: ...

class HeldOutTotal(_message.Message):
    __slots__ = ("epoch", "codes", "mask_ids", "variance", "width", "piece")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    MASK_IDS_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    codes: bytes
    mask_ids: _containers.RepeatedScalarFieldContainer[int]
    variance: float
    width: int
    piece: Piece
    def __init__(self, epoch: _Optional[int] = ..., codes: _Optional[bytes] = ..., mask_ids: _Optional[_Iterable[int]] = ..., variance: _Optional[float] = ..., width: _Optional[int] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Stopped(_message.Message):
    __slots__ = ("party", "step", "no_gain")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NO_GAIN_FIELD_NUMBER: _ClassVar[int]
    party: str
    step: int
    no_gain: bool
    def __init__(self, party: _Optional[str] = ..., step: _Optional[int] = ..., no_gain: bool = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("parties", "silent_seconds", "refusals")
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    parties: _containers.RepeatedScalarFieldContainer[str]
    silent_seconds: _containers.RepeatedScalarFieldContainer[float]
    refusals: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, parties: _Optional[_Iterable[str]] = ..., silent_seconds: _Optional[_Iterable[float]] = ..., refusals: _Optional[_Iterable[str]] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("welcome", "labels", "ack", "total", "held_out_total", "waiting", "gradient", "stopped", "best_epoch")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_TOTAL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    BEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    labels: Labels
    ack: Ack
    total: Total
    held_out_total: HeldOutTotal
    waiting: Waiting
    gradient: Gradient
    stopped: Stopped
    best_epoch: BestEpoch
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., labels: _Optional[_Union[Labels, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., total: _Optional[_Union[Total, _Mapping]] = ..., held_out_total: _Optional[_Union[HeldOutTotal, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., gradient: _Optional[_Union[Gradient, _Mapping]] = ..., stopped: _Optional[_Union[Stopped, _Mapping]] = ..., best_epoch: _Optional[_Union[BestEpoch, _Mapping]] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("number", "sender", "message")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    number: int
    sender: str
    message: bytes
    def __init__(self, number: _Optional[int] = ..., sender: _Optional[str] = ..., message: _Optional[bytes] = ...) -> None: ...

class StatusQuery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PartyStatus(_message.Message):
    __slots__ = ("name", "connected", "pushed", "served", "waits_for", "waiting_seconds", "waited_seconds", "bytes_in", "bytes_out", "incarnation", "finished", "aligning", "aligned", "largest_prediction", "stands_out", "gone_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    SERVED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    ALIGNING_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FIELD_NUMBER: _ClassVar[int]
    LARGEST_PREDICTION_FIELD_NUMBER: _ClassVar[int]
    STANDS_OUT_FIELD_NUMBER: _ClassVar[int]
    GONE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    connected: bool
    pushed: int
    served: int
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    waiting_seconds: float
    waited_seconds: float
    bytes_in: int
    bytes_out: int
    incarnation: int
    finished: bool
    aligning: bool
    aligned: bool
    largest_prediction: float
    stands_out: bool
    gone_seconds: float
    def __init__(self, name: _Optional[str] = ..., connected: bool = ..., pushed: _Optional[int] = ..., served: _Optional[int] = ..., waits_for: _Optional[_Iterable[str]] = ..., waiting_seconds: _Optional[float] = ..., waited_seconds: _Optional[float] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., incarnation: _Optional[int] = ..., finished: bool = ..., aligning: bool = ..., aligned: bool = ..., largest_prediction: _Optional[float] = ..., stands_out: bool = ..., gone_seconds: _Optional[float] = ...) -> None: ...

class RunStatus(_message.Message):
    __slots__ = ("run", "steps", "parties", "history", "refused")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    run: str
    steps: int
    parties: _containers.RepeatedCompositeFieldContainer[PartyStatus]
    history: _containers.RepeatedCompositeFieldContainer[SealedMetrics]
    refused: _containers.ScalarMap[str, int]
    def __init__(self, run: _Optional[str] = ..., steps: _Optional[int] = ..., parties: _Optional[_Iterable[_Union[PartyStatus, _Mapping]]] = ..., history: _Optional[_Iterable[_Union[SealedMetrics, _Mapping]]] = ..., refused: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PostRequest(_message.Message):
    __slots__ = ("to", "about", "message", "run_hash", "protocol")
    TO_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RUN_HASH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    to: str
    about: str
    message: bytes
    run_hash: bytes
    protocol: int
    def __init__(self, to: _Optional[str] = ..., about: _Optional[str] = ..., message: _Optional[bytes] = ..., run_hash: _Optional[bytes] = ..., protocol: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("kind", "sender", "about", "run_hash", "protocol", "piece")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    RUN_HASH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    sender: str
    about: str
    run_hash: bytes
    protocol: int
    piece: int
    def __init__(self, kind: _Optional[str] = ..., sender: _Optional[str] = ..., about: _Optional[str] = ..., run_hash: _Optional[bytes] = ..., protocol: _Optional[int] = ..., piece: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("message", "waits_for", "silent_seconds", "refusals")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    waits_for: _containers.RepeatedScalarFieldContainer[str]
    silent_seconds: _containers.RepeatedScalarFieldContainer[float]
    refusals: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, message: _Optional[bytes] = ..., waits_for: _Optional[_Iterable[str]] = ..., silent_seconds: _Optional[_Iterable[float]] = ..., refusals: _Optional[_Iterable[str]] = ...) -> None: ...

class KeyOffer(_message.Message):
    __slots__ = ("public", "certificate", "signature", "brings_key")
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    BRINGS_KEY_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    certificate: bytes
    signature: bytes
    brings_key: bool
    def __init__(self, public: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., brings_key: bool = ...) -> None: ...

class KeyGrant(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: bytes
    def __init__(self, sealed: _Optional[bytes] = ...) -> None: ...

class KeyCheck(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class ByPosition(_message.Message):
    __slots__ = ("train", "test")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    train: int
    test: int
    def __init__(self, train: _Optional[int] = ..., test: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("number", "size", "train", "test")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    size: int
    train: int
    test: int
    def __init__(self, number: _Optional[int] = ..., size: _Optional[int] = ..., train: _Optional[int] = ..., test: _Optional[int] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("train", "test", "by_position", "piece")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    train: bytes
    test: bytes
    by_position: ByPosition
    piece: Piece
    def __init__(self, train: _Optional[bytes] = ..., test: _Optional[bytes] = ..., by_position: _Optional[_Union[ByPosition, _Mapping]] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class BlindedIds(_message.Message):
    __slots__ = ("train", "test", "piece")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    train: bytes
    test: bytes
    piece: Piece
    def __init__(self, train: _Optional[bytes] = ..., test: _Optional[bytes] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class StoredPieces(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class SharedRowIndex(_message.Message):
    __slots__ = ("train", "held_out", "digest", "counts", "left", "left_test", "piece")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    LEFT_TEST_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    train: bytes
    held_out: bytes
    digest: bytes
    counts: _containers.RepeatedScalarFieldContainer[int]
    left: bytes
    left_test: bytes
    piece: Piece
    def __init__(self, train: _Optional[bytes] = ..., held_out: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., counts: _Optional[_Iterable[int]] = ..., left: _Optional[bytes] = ..., left_test: _Optional[bytes] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class RowSummary(_message.Message):
    __slots__ = ("rows", "test_rows", "shared", "shared_test", "matched", "number", "new_rows", "new_shared", "left", "brought")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TEST_ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    SHARED_TEST_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NEW_ROWS_FIELD_NUMBER: _ClassVar[int]
    NEW_SHARED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    BROUGHT_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedScalarFieldContainer[int]
    test_rows: _containers.RepeatedScalarFieldContainer[int]
    shared: int
    shared_test: int
    matched: _containers.RepeatedScalarFieldContainer[int]
    number: int
    new_rows: _containers.RepeatedScalarFieldContainer[int]
    new_shared: int
    left: int
    brought: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, rows: _Optional[_Iterable[int]] = ..., test_rows: _Optional[_Iterable[int]] = ..., shared: _Optional[int] = ..., shared_test: _Optional[int] = ..., matched: _Optional[_Iterable[int]] = ..., number: _Optional[int] = ..., new_rows: _Optional[_Iterable[int]] = ..., new_shared: _Optional[int] = ..., left: _Optional[int] = ..., brought: _Optional[_Iterable[int]] = ...) -> None: ...

class RowPointers(_message.Message):
    __slots__ = ("train", "held_out", "digest", "sealed", "piece")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    train: int
    held_out: int
    digest: bytes
    sealed: bytes
    piece: Piece
    def __init__(self, train: _Optional[int] = ..., held_out: _Optional[int] = ..., digest: _Optional[bytes] = ..., sealed: _Optional[bytes] = ..., piece: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Consent(_message.Message):
    __slots__ = ("given", "reason", "line")
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    given: bool
    reason: str
    line: int
    def __init__(self, given: bool = ..., reason: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class RowsOffer(_message.Message):
    __slots__ = ("tag", "chain", "number", "whole", "start")
    TAG_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    tag: bytes
    chain: _containers.RepeatedScalarFieldContainer[bytes]
    number: int
    whole: bool
    start: bytes
    def __init__(self, tag: _Optional[bytes] = ..., chain: _Optional[_Iterable[bytes]] = ..., number: _Optional[int] = ..., whole: bool = ..., start: _Optional[bytes] = ...) -> None: ...

class RowsPlan(_message.Message):
    __slots__ = ("generation", "base", "number", "starts")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    generation: bytes
    base: bytes
    number: int
    starts: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, generation: _Optional[bytes] = ..., base: _Optional[bytes] = ..., number: _Optional[int] = ..., starts: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RemovedRows(_message.Message):
    __slots__ = ("train", "test")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    train: bytes
    test: bytes
    def __init__(self, train: _Optional[bytes] = ..., test: _Optional[bytes] = ...) -> None: ...

class AlignmentMessage(_message.Message):
    __slots__ = ("key_offer", "key_grant", "key_check", "tokens", "blinded_ids", "shared_rows", "row_summary", "consent", "row_pointers", "rows_offer", "rows_plan", "removed_rows", "stored_pieces")
    KEY_OFFER_FIELD_NUMBER: _ClassVar[int]
    KEY_GRANT_FIELD_NUMBER: _ClassVar[int]
    KEY_CHECK_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLINDED_IDS_FIELD_NUMBER: _ClassVar[int]
    SHARED_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_SUMMARY_FIELD_NUMBER: _ClassVar[int]
    CONSENT_FIELD_NUMBER: _ClassVar[int]
    ROW_POINTERS_FIELD_NUMBER: _ClassVar[int]
    ROWS_OFFER_FIELD_NUMBER: _ClassVar[int]
    ROWS_PLAN_FIELD_NUMBER: _ClassVar[int]
    REMOVED_ROWS_FIELD_NUMBER: _ClassVar[int]
    STORED_PIECES_FIELD_NUMBER: _ClassVar[int]
    key_offer: KeyOffer
    key_grant: KeyGrant
    key_check: KeyCheck
    tokens: Tokens
    blinded_ids: BlindedIds
    shared_rows: SharedRowIndex
    row_summary: RowSummary
    consent: Consent
    row_pointers: RowPointers
    rows_offer: RowsOffer
    rows_plan: RowsPlan
    removed_rows: RemovedRows
    stored_pieces: StoredPieces
    def __init__(self, key_offer: _Optional[_Union[KeyOffer, _Mapping]] = ..., key_grant: _Optional[_Union[KeyGrant, _Mapping]] = ..., key_check: _Optional[_Union[KeyCheck, _Mapping]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., blinded_ids: _Optional[_Union[BlindedIds, _Mapping]] = ..., shared_rows: _Optional[_Union[SharedRowIndex, _Mapping]] = ..., row_summary: _Optional[_Union[RowSummary, _Mapping]] = ..., consent: _Optional[_Union[Consent, _Mapping]] = ..., row_pointers: _Optional[_Union[RowPointers, _Mapping]] = ..., rows_offer: _Optional[_Union[RowsOffer, _Mapping]] = ..., rows_plan: _Optional[_Union[RowsPlan, _Mapping]] = ..., removed_rows: _Optional[_Union[RemovedRows, _Mapping]] = ..., stored_pieces: _Optional[_Union[StoredPieces, _Mapping]] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("protocol", "settings", "certificate", "signature")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    settings: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, protocol: _Optional[int] = ..., settings: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RunDecision(_message.Message):
    __slots__ = ("protocol", "run", "run_hash", "choice", "rule", "reason")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    RUN_HASH_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    run: str
    run_hash: bytes
    choice: str
    rule: str
    reason: str
    def __init__(self, protocol: _Optional[int] = ..., run: _Optional[str] = ..., run_hash: _Optional[bytes] = ..., choice: _Optional[str] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RunQuery(_message.Message):
    __slots__ = ("protocol", "version", "wait_seconds", "run", "open_only")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    OPEN_ONLY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: int
    wait_seconds: float
    run: str
    open_only: bool
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., run: _Optional[str] = ..., open_only: bool = ...) -> None: ...

class PartyDecision(_message.Message):
    __slots__ = ("party", "choice", "rule", "reason", "time")
    PARTY_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    party: str
    choice: str
    rule: str
    reason: str
    time: float
    def __init__(self, party: _Optional[str] = ..., choice: _Optional[str] = ..., rule: _Optional[str] = ..., reason: _Optional[str] = ..., time: _Optional[float] = ...) -> None: ...

class RunFacts(_message.Message):
    __slots__ = ("name", "proposal", "starter", "proposed_at", "state", "decisions", "ended_by", "ended_reason", "ended_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_FIELD_NUMBER: _ClassVar[int]
    STARTER_FIELD_NUMBER: _ClassVar[int]
    PROPOSED_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_BY_FIELD_NUMBER: _ClassVar[int]
    ENDED_REASON_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    proposal: Proposal
    starter: str
    proposed_at: float
    state: str
    decisions: _containers.RepeatedCompositeFieldContainer[PartyDecision]
    ended_by: str
    ended_reason: str
    ended_at: float
    def __init__(self, name: _Optional[str] = ..., proposal: _Optional[_Union[Proposal, _Mapping]] = ..., starter: _Optional[str] = ..., proposed_at: _Optional[float] = ..., state: _Optional[str] = ..., decisions: _Optional[_Iterable[_Union[PartyDecision, _Mapping]]] = ..., ended_by: _Optional[str] = ..., ended_reason: _Optional[str] = ..., ended_at: _Optional[float] = ...) -> None: ...

class RunList(_message.Message):
    __slots__ = ("version", "runs", "here")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    version: int
    runs: _containers.RepeatedCompositeFieldContainer[RunFacts]
    here: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[RunFacts, _Mapping]]] = ..., here: _Optional[_Iterable[str]] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("protocol", "number", "run", "party", "sealed")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    number: bytes
    run: str
    party: str
    sealed: bytes
    def __init__(self, protocol: _Optional[int] = ..., number: _Optional[bytes] = ..., run: _Optional[str] = ..., party: _Optional[str] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("protocol", "number", "run", "party", "sealed", "absent")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    number: bytes
    run: str
    party: str
    sealed: bytes
    absent: str
    def __init__(self, protocol: _Optional[int] = ..., number: _Optional[bytes] = ..., run: _Optional[str] = ..., party: _Optional[str] = ..., sealed: _Optional[bytes] = ..., absent: _Optional[str] = ...) -> None: ...

class Relayed(_message.Message):
    __slots__ = ("question", "reply")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    question: Question
    reply: Reply
    def __init__(self, question: _Optional[_Union[Question, _Mapping]] = ..., reply: _Optional[_Union[Reply, _Mapping]] = ...) -> None: ...

class Asked(_message.Message):
    __slots__ = ("version", "tokens", "parties", "digests")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PARTIES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    version: str
    tokens: bytes
    parties: _containers.RepeatedScalarFieldContainer[str]
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, version: _Optional[str] = ..., tokens: _Optional[bytes] = ..., parties: _Optional[_Iterable[str]] = ..., digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("version", "known", "codes", "width", "bits", "refusal", "reading")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    READING_FIELD_NUMBER: _ClassVar[int]
    version: str
    known: bytes
    codes: bytes
    width: int
    bits: int
    refusal: str
    reading: bytes
    def __init__(self, version: _Optional[str] = ..., known: _Optional[bytes] = ..., codes: _Optional[bytes] = ..., width: _Optional[int] = ..., bits: _Optional[int] = ..., refusal: _Optional[str] = ..., reading: _Optional[bytes] = ...) -> None: ...
