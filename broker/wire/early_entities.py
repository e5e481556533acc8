"""Requests in versions that kio has left out, in its form: kafka-go and Java's clients 1.0 send them.

CreateTopics 0 and 1, DeleteTopics 0, DescribeConfigs 0; and an answer about transactions that kio cannot
say: a start of -1, where none is open. What such a request cannot say stands as a constant
of its class, so that handlers need not ask which version it is. Parts that are as in the next version are
kio's.
Postponed annotations must stay off: kio reads the types of the fields.
Source: clients/src/main/resources/common/message/*.json (Kafka 3.9.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final

from kio.schema.create_topics.v2.request import CreatableTopic
from kio.schema.delete_topics.v1.response import DeletableTopicResult
from kio.schema.describe_configs.v1.request import DescribeConfigsResource
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TransactionState
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.schema.types import TopicName
from kio.static.constants import EntityType
from kio.static.primitive import TZAware, i8, i16, i32Timedelta
from kio.static.protocol import Entity

from controller.wire.apis import ApiKey

_TIMEOUT: Final = {"kafka_type": "timedelta_i32"}
_STRING: Final = {"kafka_type": "string"}
_BOOL: Final = {"kafka_type": "bool"}
_INT8: Final = {"kafka_type": "int8"}
_ERROR_CODE: Final = {"kafka_type": "error_code"}


class _Early:
    """What all entities here share."""

    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.nested
    __flexible__: ClassVar[bool] = False
    __version__: ClassVar[i16] = i16(0)


class _Request(_Early):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response(_Early):
    __slots__ = ()
    __type__: ClassVar[EntityType] = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


class _CreateTopics(_Early):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(ApiKey.CREATE_TOPICS)


class _DeleteTopics(_Early):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(ApiKey.DELETE_TOPICS)


class _DescribeConfigs(_Early):
    __slots__ = ()
    __api_key__: ClassVar[i16] = i16(ApiKey.DESCRIBE_CONFIGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestV0(_Request, _CreateTopics):
    """Create topics; nothing is only checked."""

    validate_only: ClassVar[bool] = False
    topics: tuple[CreatableTopic, ...]
    timeout: i32Timedelta = field(metadata=_TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopicV0(_CreateTopics):
    """What became of a topic, without words."""

    name: TopicName = field(metadata=_STRING)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV0(_Response, _CreateTopics):
    """The answer to a CreateTopicsRequestV0."""

    topics: tuple[CreatedTopicV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestV1(_Request, _CreateTopics):
    """Create topics, or only check them."""

    __version__: ClassVar[i16] = i16(1)
    topics: tuple[CreatableTopic, ...]
    timeout: i32Timedelta = field(metadata=_TIMEOUT)
    validate_only: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopicV1(_CreateTopics):
    """What became of a topic."""

    __version__: ClassVar[i16] = i16(1)
    name: TopicName = field(metadata=_STRING)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    error_message: str | None = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseV1(_Response, _CreateTopics):
    """The answer to a CreateTopicsRequestV1; it has no throttle time yet."""

    __version__: ClassVar[i16] = i16(1)
    topics: tuple[CreatedTopicV1, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequestV0(_Request, _DeleteTopics):
    """Delete topics by name."""

    topic_names: tuple[TopicName, ...] = field(metadata=_STRING)
    timeout: i32Timedelta = field(metadata=_TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponseV0(_Response, _DeleteTopics):
    """The answer to a DeleteTopicsRequestV0; it has no throttle time yet."""

    responses: tuple[DeletableTopicResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequestV0(_Request, _DescribeConfigs):
    """Ask for settings, without where else each is set."""

    include_synonyms: ClassVar[bool] = False
    resources: tuple[DescribeConfigsResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigV0(_DescribeConfigs):
    """One setting, without where its value comes from."""

    name: str = field(metadata=_STRING)
    value: str | None = field(metadata=_STRING)
    read_only: bool = field(metadata=_BOOL)
    #: Kafka 3.9 says False of every setting, too.
    is_default: bool = field(metadata=_BOOL, default=False)
    is_sensitive: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfigsV0(_DescribeConfigs):
    """The settings of one resource."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    error_message: str | None = field(metadata=_STRING)
    resource_type: i8 = field(metadata=_INT8)
    resource_name: str = field(metadata=_STRING)
    configs: tuple[ConfigV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseV0(_Response, _DescribeConfigs):
    """The answer to a DescribeConfigsRequestV0."""

    throttle_time: i32Timedelta = field(metadata=_TIMEOUT)
    results: tuple[DescribedConfigsV0, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction(TransactionState):
    """A transactional id."""

    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})  # type: ignore[assignment]  # may be -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransactions(DescribeTransactionsResponse):
    """The answer to DescribeTransactions."""

    transaction_states: tuple[DescribedTransaction, ...]


def _by_version(*entities: type[Any]) -> Mapping[tuple[int, int], type[Entity]]:
    """Return {(request, version): entity}."""
    return MappingProxyType({(each.__api_key__, each.__version__): each for each in entities})


EARLY_REQUESTS: Final = _by_version(
    CreateTopicsRequestV0, CreateTopicsRequestV1, DeleteTopicsRequestV0, DescribeConfigsRequestV0
)
EARLY_RESPONSES: Final = _by_version(
    CreateTopicsResponseV0,
    CreateTopicsResponseV1,
    DeleteTopicsResponseV0,
    DescribeConfigsResponseV0,
    DescribedTransactions,
)
