"""The requests that the newest broker has, and kafka-python has not: what a new version of Kafka adds has to be read.

A request that txnwatch sends is never ahead: it sends the highest version that both sides have.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest

from support.servers import on_docker
from txnwatch.streaming.client.cluster import Cluster

pytestmark = pytest.mark.skipif(on_docker(), reason="the version of the image may be another one")

# The broker has a newer version, which nothing of txnwatch needs. Its answers to older versions are the same.
NEWER = {
    "ApiVersions": 5,  # names the cluster and the node, against connections to a wrong one; version 4 is sent
    "TxnOffsetCommit": 6,  # topics by id; only clients send it
    "DeleteGroups": 3,  # another error; only administrators send it
}
# Requests between brokers, of controllers, of members of groups and of administrators.
OTHERS = {
    "CreateDelegationToken": 38,
    "RenewDelegationToken": 39,
    "ExpireDelegationToken": 40,
    "DescribeDelegationToken": 41,
    "UnregisterBroker": 64,
    "ConsumerGroupHeartbeat": 68,
    "ConsumerGroupDescribe": 69,
    "ShareGroupHeartbeat": 76,
    "ShareGroupDescribe": 77,
    "ShareFetch": 78,
    "ShareAcknowledge": 79,
    "AddRaftVoter": 80,
    "RemoveRaftVoter": 81,
    "InitializeShareGroupState": 83,
    "ReadShareGroupState": 84,
    "WriteShareGroupState": 85,
    "DeleteShareGroupState": 86,
    "ReadShareGroupStateSummary": 87,
    "StreamsGroupHeartbeat": 88,
    "StreamsGroupDescribe": 89,
    "DescribeShareGroupOffsets": 90,
    "AlterShareGroupOffsets": 91,
    "DeleteShareGroupOffsets": 92,
    "StreamsGroupTopologyDescriptionUpdate": 93,
    "UnregisterController": 94,  # since 4.4
}


def library() -> Iterator[type[ApiMessage]]:
    """The requests of kafka-python."""
    for module in pkgutil.iter_modules(kafka.protocol.__path__, "kafka.protocol."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and issubclass(found, ApiMessage) and found.__name__.endswith("Request"):
                yield found


def test_every_request_of_the_newest_broker_is_known(cluster: Cluster) -> None:
    ours = {found.API_KEY: found for found in library()}
    request = ApiVersionsRequest(version=3, client_software_name="test", client_software_version="0")
    theirs = {api.api_key: api.max_version for api in cluster.call(cluster.any_connection(), request).api_keys}
    newer = {
        ours[key].__name__.removesuffix("Request"): high
        for key, high in theirs.items()
        if key in ours and high > ours[key].max_version
    }
    assert newer == NEWER
    assert set(theirs) - set(ours) == set(OTHERS.values())
