"""The rules that keep a stale actor from acting; each is a function of its own.

A simulation replaces one of them at a time and must then find what it prevents.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-380.
"""

from __future__ import annotations

from controller.core.effects import Check
from controller.core.inputs import Done
from controller.core.model import KnownState, KnownTopic, LiveBroker
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, PartitionVersion
from quorum.metadata.records import TopicRecord


def controller_epoch(epoch_version: int) -> Check:
    """Return the first operation of every write: nobody has been elected since."""
    return Check(paths.CONTROLLER_EPOCH, epoch_version)


def is_of_successor(written_by: ControllerEpoch, own: ControllerEpoch) -> bool:
    """Say whether a state that was read was written by a later controller.

    Its topic is as that controller assigned it, which the reader may not know: replicas and state that do not
    belong together would be sent. Whoever reads one asks the quorum whether its own term is over.
    """
    return written_by > own


def partition_version(decided_on: PartitionVersion) -> int:
    """Return the version at which a state may be written: the one that it was decided on."""
    return decided_on


def bounced_unseen(known: KnownState, generation: BrokerGeneration | None) -> bool:
    """Say whether a leader registered after its state was written: that life of it was never elected.

    Args:
        known: the state; one that this controller wrote has no transaction, as it knew all brokers.
        generation: of the leader; None: not asked for.
    """
    return generation is not None and known.mzxid is not None and generation > known.mzxid


def is_other_topic(before: KnownTopic, record: TopicRecord) -> bool:
    """Say whether a topic was deleted and created again between two looks."""
    return before.record.topic_id != record.topic_id


def is_former_life(broker: LiveBroker, generation: BrokerGeneration) -> bool:
    """Say whether a request of a broker is from a life of it that is over."""
    return broker.generation > generation


def is_other_disk(judged: str, incarnation: str) -> bool:
    """Say whether ISR memberships were judged by another incarnation than the one that is registered."""
    return judged != incarnation


def is_acknowledged(outcome: object) -> bool:
    """No request before its multi is acknowledged: only then do states enter the model, and so a request.

    Args:
        outcome: of the multi; None while it is under way.
    """
    return isinstance(outcome, Done)


def is_of_this_life(asked: BrokerGeneration, present: BrokerGeneration) -> bool:
    """An answer counts only for the generation that was asked."""
    return asked == present


def ends_life(error_code: int) -> bool:
    """The generation that a request named is over: nothing more is sent to it."""
    return error_code == ErrorCode.STALE_BROKER_EPOCH


def ends_term(error_code: int) -> bool:
    """A broker knows a later controller: this one is deposed."""
    return error_code == ErrorCode.STALE_CONTROLLER_EPOCH
