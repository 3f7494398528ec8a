"""A schema of Protobuf, made without protoc, and bodies of its message `shop.Order`."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from headgate.message.body_schema.schema import BodySchema, SchemaFormat

_F = descriptor_pb2.FieldDescriptorProto
TYPE = "shop.Order"
_LINE = ".shop.Order.Line"


@cache
def descriptor_set() -> bytes:
    """A FileDescriptorSet whose files stand before those that they import."""
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="shop", syntax="proto3")
    state = common.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    orders = descriptor_pb2.FileDescriptorProto(
        name="orders.proto", package="shop", syntax="proto3", dependency=["common.proto"]
    )
    orders.message_type.add(name="Unused").field.add(name="x", number=1, type=_F.TYPE_INT32, label=_F.LABEL_OPTIONAL)
    order = orders.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    line.field.add(name="parts", number=2, type=_F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=_LINE)
    entry = order.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_F.TYPE_INT64, label=_F.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    for number, (name, kind) in enumerate(
        [
            *(("id", _F.TYPE_UINT64), ("total", _F.TYPE_DOUBLE), ("rate", _F.TYPE_FLOAT), ("paid", _F.TYPE_BOOL)),
            *(("customer_name", _F.TYPE_STRING), ("key", _F.TYPE_BYTES), ("count", _F.TYPE_SINT32)),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=_F.LABEL_OPTIONAL)
    order.field.add(name="state", number=10, type=_F.TYPE_ENUM, label=_F.LABEL_OPTIONAL, type_name=".shop.State")
    order.field.add(name="main", number=11, type=_F.TYPE_MESSAGE, label=_F.LABEL_OPTIONAL, type_name=_LINE)
    order.field.add(name="lines", number=12, type=_F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=_LINE)
    order.field.add(
        name="labels", number=13, type=_F.TYPE_MESSAGE, label=_F.LABEL_REPEATED, type_name=".shop.Order.LabelsEntry"
    )
    order.field.add(
        name="note", number=14, type=_F.TYPE_STRING, label=_F.LABEL_OPTIONAL, oneof_index=0, proto3_optional=True
    )
    return descriptor_pb2.FileDescriptorSet(file=[orders, common]).SerializeToString()


@cache
def _order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file):
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(TYPE))


def order_body(**fields: object) -> bytes:
    """The bytes of an order with these fields, as Protobuf's JSON has them."""
    return bytes(json_format.ParseDict(fields, _order_class()()).SerializeToString())


def order_schema(*, number: int | None = None) -> BodySchema:
    """The schema of orders: of bare bodies, or behind Confluent's header with this id."""
    return BodySchema(SchemaFormat.PROTOBUF, ((number, descriptor_set()),), TYPE)
