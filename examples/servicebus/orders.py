"""Orders of a shop over Service Bus: the same program for the cloud, an emulator and Headgate.

    SERVICEBUS_CONNECTION_STRING='Endpoint=sb://…' python examples/servicebus/orders.py

It needs the topic `orders` with the subscriptions `red` (rule: `color = 'red'`, action: `SET quantity = quantity / 2`),
`big` (rule: `quantity >= 100`) and `all`, and the queue `parcels`: in the cloud made by its portal or templates, here
by `entities.toml` beside this file. Only the connection string differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)

ORDERS = (("red", 10), ("blue", 4), ("red", 0), ("green", 250))
WAIT_S = 5.0
AGAIN_S = 0.5


def send_orders(client: ServiceBusClient) -> None:
    """One message for each order; color and quantity are application properties, which rules look at."""
    with client.get_topic_sender("orders") as sender:
        sender.send_messages(
            [
                ServiceBusMessage(
                    f"{quantity} {color} ones", application_properties={"color": color, "quantity": quantity}
                )
                for color, quantity in ORDERS
            ]
        )


def quantity_of(message: ServiceBusReceivedMessage) -> int:
    """The quantity of an order; keys of received properties are bytes."""
    return int(message.application_properties[b"quantity"])


def waiting(receiver: ServiceBusReceiver) -> Iterator[ServiceBusReceivedMessage]:
    """What waits, one by one: the first wait is for what is on its way, the last one finds that nothing is left."""
    patience_s = WAIT_S
    while batch := receiver.receive_messages(max_message_count=10, max_wait_time=patience_s):
        yield from batch
        patience_s = AGAIN_S


def pack(client: ServiceBusClient) -> None:
    """Take the red orders, halved by the rule's action: a parcel for each, and a dead letter where there is nothing."""
    with (
        client.get_subscription_receiver("orders", "red") as receiver,
        client.get_queue_sender("parcels") as parcels,
    ):
        for order in waiting(receiver):
            quantity = quantity_of(order)
            if quantity == 0:
                receiver.dead_letter_message(order, reason="empty", error_description="an order of nothing")
                print(f"  {str(order)!r}: a dead letter")
            else:
                parcels.send_messages(ServiceBusMessage(f"{quantity} for {str(order)!r}", subject="parcel"))
                receiver.complete_message(order)
                print(f"  {str(order)!r}: a parcel with {quantity}")


def bodies(client: ServiceBusClient, *, queue: str = "", subscription: str = "", dead: bool = False) -> list[str]:
    """Receive and complete what waits."""
    below = ServiceBusSubQueue.DEAD_LETTER if dead else None
    receiver = (
        client.get_queue_receiver(queue, sub_queue=below)
        if queue
        else client.get_subscription_receiver("orders", subscription, sub_queue=below)
    )
    found = []
    with receiver:
        for message in waiting(receiver):
            receiver.complete_message(message)
            found.append(str(message))
    return found


def main() -> int:
    """Send, pack, and show what is where."""
    connection = os.environ.get("SERVICEBUS_CONNECTION_STRING")
    if connection is None:
        print("SERVICEBUS_CONNECTION_STRING: expected a connection string of Service Bus", file=sys.stderr)
        return 2
    with ServiceBusClient.from_connection_string(connection) as client:
        send_orders(client)
        print(f"{len(ORDERS)} orders sent to the topic 'orders'; packing what its subscription 'red' holds:")
        pack(client)
        print(f"queue 'parcels':           {bodies(client, queue='parcels')}")
        print(f"subscription 'big':        {bodies(client, subscription='big')}")
        print(f"subscription 'all':        {bodies(client, subscription='all')}")
        print(f"dead letters of 'red':     {bodies(client, subscription='red', dead=True)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
