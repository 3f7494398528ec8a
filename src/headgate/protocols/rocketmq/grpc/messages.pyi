# Made from definition.proto and service.proto of Apache RocketMQ by tools/rocketmq_messages.py; not edited by hand.
# Licensed to the Apache Software Foundation (ASF) under one or more contributor license agreements; the ASF licenses
# them under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from enum import IntEnum
from typing import Generic, NamedTuple, Self, TypeVar

SERVICE: str
METHODS: tuple[Method, ...]
_T = TypeVar("_T")

class Protobuf:
    @classmethod
    def FromString(cls, data: bytes) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def CopyFrom(self, other: Self) -> None: ...
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> str | None: ...
    def ByteSize(self) -> int: ...

class _Repeated(Generic[_T]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __getitem__(self, index: int) -> _T: ...
    def append(self, value: _T) -> None: ...
    def extend(self, values: Iterable[_T]) -> None: ...
    def add(self, **values: object) -> _T: ...

class Timestamp(Protobuf):
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...
    seconds: int
    nanos: int

class Duration(Protobuf):
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...
    seconds: int
    nanos: int

class Method(NamedTuple):
    name: str
    request: type[Protobuf]
    response: Callable[..., Protobuf]
    takes_stream: bool
    gives_stream: bool

class TransactionResolution(IntEnum):
    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2

class TransactionSource(IntEnum):
    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2

class Permission(IntEnum):
    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4

class FilterType(IntEnum):
    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2

class AddressScheme(IntEnum):
    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3

class MessageType(IntEnum):
    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6

class DigestType(IntEnum):
    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3

class ClientType(IntEnum):
    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6

class Encoding(IntEnum):
    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2

class Language(IntEnum):
    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8
    RUBY = 9
    OBJECTIVE_C = 10
    DART = 11
    KOTLIN = 12

class LiteSubscriptionAction(IntEnum):
    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3

class QueryOffsetPolicy(IntEnum):
    BEGINNING = 0
    END = 1
    TIMESTAMP = 2

class FilterExpression(Protobuf):
    def __init__(self, *, type: int | None = ..., expression: str | None = ...) -> None: ...
    type: int
    expression: str

class RetryPolicy(Protobuf):
    def __init__(self, *, max_attempts: int | None = ..., exponential_backoff: ExponentialBackoff | None = ..., customized_backoff: CustomizedBackoff | None = ...) -> None: ...
    max_attempts: int
    @property
    def exponential_backoff(self) -> ExponentialBackoff: ...
    @property
    def customized_backoff(self) -> CustomizedBackoff: ...

class ExponentialBackoff(Protobuf):
    def __init__(self, *, initial: Duration | None = ..., max: Duration | None = ..., multiplier: float | None = ...) -> None: ...
    @property
    def initial(self) -> Duration: ...
    @property
    def max(self) -> Duration: ...
    multiplier: float

class CustomizedBackoff(Protobuf):
    def __init__(self, *, next: Iterable[Duration] | None = ...) -> None: ...
    @property
    def next(self) -> _Repeated[Duration]: ...

class Resource(Protobuf):
    def __init__(self, *, resource_namespace: str | None = ..., name: str | None = ...) -> None: ...
    resource_namespace: str
    name: str

class SubscriptionEntry(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., expression: FilterExpression | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def expression(self) -> FilterExpression: ...

class Address(Protobuf):
    def __init__(self, *, host: str | None = ..., port: int | None = ...) -> None: ...
    host: str
    port: int

class Endpoints(Protobuf):
    def __init__(self, *, scheme: int | None = ..., addresses: Iterable[Address] | None = ...) -> None: ...
    scheme: int
    @property
    def addresses(self) -> _Repeated[Address]: ...

class Broker(Protobuf):
    def __init__(self, *, name: str | None = ..., id: int | None = ..., endpoints: Endpoints | None = ...) -> None: ...
    name: str
    id: int
    @property
    def endpoints(self) -> Endpoints: ...

class MessageQueue(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., id: int | None = ..., permission: int | None = ..., broker: Broker | None = ..., accept_message_types: Iterable[int] | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    id: int
    permission: int
    @property
    def broker(self) -> Broker: ...
    @property
    def accept_message_types(self) -> _Repeated[int]: ...

class Digest(Protobuf):
    def __init__(self, *, type: int | None = ..., checksum: str | None = ...) -> None: ...
    type: int
    checksum: str

class SystemProperties(Protobuf):
    def __init__(self, *, tag: str | None = ..., keys: Iterable[str] | None = ..., message_id: str | None = ..., body_digest: Digest | None = ..., body_encoding: int | None = ..., message_type: int | None = ..., born_timestamp: Timestamp | None = ..., born_host: str | None = ..., store_timestamp: Timestamp | None = ..., store_host: str | None = ..., delivery_timestamp: Timestamp | None = ..., receipt_handle: str | None = ..., queue_id: int | None = ..., queue_offset: int | None = ..., invisible_duration: Duration | None = ..., delivery_attempt: int | None = ..., message_group: str | None = ..., trace_context: str | None = ..., orphaned_transaction_recovery_duration: Duration | None = ..., dead_letter_queue: DeadLetterQueue | None = ..., lite_topic: str | None = ..., priority: int | None = ...) -> None: ...
    tag: str
    @property
    def keys(self) -> _Repeated[str]: ...
    message_id: str
    @property
    def body_digest(self) -> Digest: ...
    body_encoding: int
    message_type: int
    @property
    def born_timestamp(self) -> Timestamp: ...
    born_host: str
    @property
    def store_timestamp(self) -> Timestamp: ...
    store_host: str
    @property
    def delivery_timestamp(self) -> Timestamp: ...
    receipt_handle: str
    queue_id: int
    queue_offset: int
    @property
    def invisible_duration(self) -> Duration: ...
    delivery_attempt: int
    message_group: str
    trace_context: str
    @property
    def orphaned_transaction_recovery_duration(self) -> Duration: ...
    @property
    def dead_letter_queue(self) -> DeadLetterQueue: ...
    lite_topic: str
    priority: int

class DeadLetterQueue(Protobuf):
    def __init__(self, *, topic: str | None = ..., message_id: str | None = ...) -> None: ...
    topic: str
    message_id: str

class Message(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., user_properties: MutableMapping[str, str] | None = ..., system_properties: SystemProperties | None = ..., body: bytes | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def user_properties(self) -> MutableMapping[str, str]: ...
    @property
    def system_properties(self) -> SystemProperties: ...
    body: bytes

class Assignment(Protobuf):
    def __init__(self, *, message_queue: MessageQueue | None = ...) -> None: ...
    @property
    def message_queue(self) -> MessageQueue: ...

class Status(Protobuf):
    def __init__(self, *, code: int | None = ..., message: str | None = ...) -> None: ...
    code: int
    message: str

class UA(Protobuf):
    def __init__(self, *, language: int | None = ..., version: str | None = ..., platform: str | None = ..., hostname: str | None = ...) -> None: ...
    language: int
    version: str
    platform: str
    hostname: str

class Settings(Protobuf):
    def __init__(self, *, client_type: int | None = ..., access_point: Endpoints | None = ..., backoff_policy: RetryPolicy | None = ..., request_timeout: Duration | None = ..., publishing: Publishing | None = ..., subscription: Subscription | None = ..., user_agent: UA | None = ..., metric: Metric | None = ...) -> None: ...
    client_type: int
    @property
    def access_point(self) -> Endpoints: ...
    @property
    def backoff_policy(self) -> RetryPolicy: ...
    @property
    def request_timeout(self) -> Duration: ...
    @property
    def publishing(self) -> Publishing: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def user_agent(self) -> UA: ...
    @property
    def metric(self) -> Metric: ...

class Publishing(Protobuf):
    def __init__(self, *, topics: Iterable[Resource] | None = ..., max_body_size: int | None = ..., validate_message_type: bool | None = ...) -> None: ...
    @property
    def topics(self) -> _Repeated[Resource]: ...
    max_body_size: int
    validate_message_type: bool

class Subscription(Protobuf):
    def __init__(self, *, group: Resource | None = ..., subscriptions: Iterable[SubscriptionEntry] | None = ..., fifo: bool | None = ..., receive_batch_size: int | None = ..., long_polling_timeout: Duration | None = ..., lite_subscription_quota: int | None = ..., max_lite_topic_size: int | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def subscriptions(self) -> _Repeated[SubscriptionEntry]: ...
    fifo: bool
    receive_batch_size: int
    @property
    def long_polling_timeout(self) -> Duration: ...
    lite_subscription_quota: int
    max_lite_topic_size: int

class Metric(Protobuf):
    def __init__(self, *, on: bool | None = ..., endpoints: Endpoints | None = ...) -> None: ...
    on: bool
    @property
    def endpoints(self) -> Endpoints: ...

class OffsetOption(Protobuf):
    def __init__(self, *, policy: int | None = ..., offset: int | None = ..., tail_n: int | None = ..., timestamp: int | None = ...) -> None: ...
    policy: int
    offset: int
    tail_n: int
    timestamp: int

class QueryRouteRequest(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., endpoints: Endpoints | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...

class QueryRouteResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., message_queues: Iterable[MessageQueue] | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def message_queues(self) -> _Repeated[MessageQueue]: ...

class SendMessageRequest(Protobuf):
    def __init__(self, *, messages: Iterable[Message] | None = ...) -> None: ...
    @property
    def messages(self) -> _Repeated[Message]: ...

class SendResultEntry(Protobuf):
    def __init__(self, *, status: Status | None = ..., message_id: str | None = ..., transaction_id: str | None = ..., offset: int | None = ..., recall_handle: str | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    message_id: str
    transaction_id: str
    offset: int
    recall_handle: str

class SendMessageResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., entries: Iterable[SendResultEntry] | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> _Repeated[SendResultEntry]: ...

class QueryAssignmentRequest(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., group: Resource | None = ..., endpoints: Endpoints | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...

class QueryAssignmentResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., assignments: Iterable[Assignment] | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def assignments(self) -> _Repeated[Assignment]: ...

class ReceiveMessageRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., message_queue: MessageQueue | None = ..., filter_expression: FilterExpression | None = ..., batch_size: int | None = ..., invisible_duration: Duration | None = ..., auto_renew: bool | None = ..., long_polling_timeout: Duration | None = ..., attempt_id: str | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    @property
    def filter_expression(self) -> FilterExpression: ...
    batch_size: int
    @property
    def invisible_duration(self) -> Duration: ...
    auto_renew: bool
    @property
    def long_polling_timeout(self) -> Duration: ...
    attempt_id: str

class ReceiveMessageResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., message: Message | None = ..., delivery_timestamp: Timestamp | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    @property
    def delivery_timestamp(self) -> Timestamp: ...

class AckMessageEntry(Protobuf):
    def __init__(self, *, message_id: str | None = ..., receipt_handle: str | None = ..., lite_topic: str | None = ...) -> None: ...
    message_id: str
    receipt_handle: str
    lite_topic: str

class AckMessageRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., topic: Resource | None = ..., entries: Iterable[AckMessageEntry] | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def entries(self) -> _Repeated[AckMessageEntry]: ...

class AckMessageResultEntry(Protobuf):
    def __init__(self, *, message_id: str | None = ..., receipt_handle: str | None = ..., status: Status | None = ...) -> None: ...
    message_id: str
    receipt_handle: str
    @property
    def status(self) -> Status: ...

class AckMessageResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., entries: Iterable[AckMessageResultEntry] | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> _Repeated[AckMessageResultEntry]: ...

class ForwardMessageToDeadLetterQueueRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., topic: Resource | None = ..., receipt_handle: str | None = ..., message_id: str | None = ..., delivery_attempt: int | None = ..., max_delivery_attempts: int | None = ..., lite_topic: str | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    message_id: str
    delivery_attempt: int
    max_delivery_attempts: int
    lite_topic: str

class ForwardMessageToDeadLetterQueueResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

class HeartbeatRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., client_type: int | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    client_type: int

class HeartbeatResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

class EndTransactionRequest(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., message_id: str | None = ..., transaction_id: str | None = ..., resolution: int | None = ..., source: int | None = ..., trace_context: str | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    message_id: str
    transaction_id: str
    resolution: int
    source: int
    trace_context: str

class EndTransactionResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

class PrintThreadStackTraceCommand(Protobuf):
    def __init__(self, *, nonce: str | None = ...) -> None: ...
    nonce: str

class ReconnectEndpointsCommand(Protobuf):
    def __init__(self, *, nonce: str | None = ...) -> None: ...
    nonce: str

class ThreadStackTrace(Protobuf):
    def __init__(self, *, nonce: str | None = ..., thread_stack_trace: str | None = ...) -> None: ...
    nonce: str
    thread_stack_trace: str

class VerifyMessageCommand(Protobuf):
    def __init__(self, *, nonce: str | None = ..., message: Message | None = ...) -> None: ...
    nonce: str
    @property
    def message(self) -> Message: ...

class VerifyMessageResult(Protobuf):
    def __init__(self, *, nonce: str | None = ...) -> None: ...
    nonce: str

class RecoverOrphanedTransactionCommand(Protobuf):
    def __init__(self, *, message: Message | None = ..., transaction_id: str | None = ...) -> None: ...
    @property
    def message(self) -> Message: ...
    transaction_id: str

class NotifyUnsubscribeLiteCommand(Protobuf):
    def __init__(self, *, lite_topic: str | None = ...) -> None: ...
    lite_topic: str

class TelemetryCommand(Protobuf):
    def __init__(self, *, status: Status | None = ..., settings: Settings | None = ..., thread_stack_trace: ThreadStackTrace | None = ..., verify_message_result: VerifyMessageResult | None = ..., recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand | None = ..., print_thread_stack_trace_command: PrintThreadStackTraceCommand | None = ..., verify_message_command: VerifyMessageCommand | None = ..., reconnect_endpoints_command: ReconnectEndpointsCommand | None = ..., notify_unsubscribe_lite_command: NotifyUnsubscribeLiteCommand | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def thread_stack_trace(self) -> ThreadStackTrace: ...
    @property
    def verify_message_result(self) -> VerifyMessageResult: ...
    @property
    def recover_orphaned_transaction_command(self) -> RecoverOrphanedTransactionCommand: ...
    @property
    def print_thread_stack_trace_command(self) -> PrintThreadStackTraceCommand: ...
    @property
    def verify_message_command(self) -> VerifyMessageCommand: ...
    @property
    def reconnect_endpoints_command(self) -> ReconnectEndpointsCommand: ...
    @property
    def notify_unsubscribe_lite_command(self) -> NotifyUnsubscribeLiteCommand: ...

class NotifyClientTerminationRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...

class NotifyClientTerminationResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

class ChangeInvisibleDurationRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., topic: Resource | None = ..., receipt_handle: str | None = ..., invisible_duration: Duration | None = ..., message_id: str | None = ..., lite_topic: str | None = ..., suspend: bool | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    @property
    def invisible_duration(self) -> Duration: ...
    message_id: str
    lite_topic: str
    suspend: bool

class ChangeInvisibleDurationResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., receipt_handle: str | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    receipt_handle: str

class PullMessageRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., message_queue: MessageQueue | None = ..., offset: int | None = ..., batch_size: int | None = ..., filter_expression: FilterExpression | None = ..., long_polling_timeout: Duration | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int
    batch_size: int
    @property
    def filter_expression(self) -> FilterExpression: ...
    @property
    def long_polling_timeout(self) -> Duration: ...

class PullMessageResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., message: Message | None = ..., next_offset: int | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    next_offset: int

class UpdateOffsetRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., message_queue: MessageQueue | None = ..., offset: int | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int

class UpdateOffsetResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

class GetOffsetRequest(Protobuf):
    def __init__(self, *, group: Resource | None = ..., message_queue: MessageQueue | None = ...) -> None: ...
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...

class GetOffsetResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., offset: int | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    offset: int

class QueryOffsetRequest(Protobuf):
    def __init__(self, *, message_queue: MessageQueue | None = ..., query_offset_policy: int | None = ..., timestamp: Timestamp | None = ...) -> None: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    query_offset_policy: int
    @property
    def timestamp(self) -> Timestamp: ...

class QueryOffsetResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., offset: int | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    offset: int

class RecallMessageRequest(Protobuf):
    def __init__(self, *, topic: Resource | None = ..., recall_handle: str | None = ...) -> None: ...
    @property
    def topic(self) -> Resource: ...
    recall_handle: str

class RecallMessageResponse(Protobuf):
    def __init__(self, *, status: Status | None = ..., message_id: str | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...
    message_id: str

class SyncLiteSubscriptionRequest(Protobuf):
    def __init__(self, *, action: int | None = ..., topic: Resource | None = ..., group: Resource | None = ..., lite_topic_set: Iterable[str] | None = ..., version: int | None = ..., offset_option: OffsetOption | None = ...) -> None: ...
    action: int
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def lite_topic_set(self) -> _Repeated[str]: ...
    version: int
    @property
    def offset_option(self) -> OffsetOption: ...

class SyncLiteSubscriptionResponse(Protobuf):
    def __init__(self, *, status: Status | None = ...) -> None: ...
    @property
    def status(self) -> Status: ...

