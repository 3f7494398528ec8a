"""Bodies in Avro or Protobuf: the schema that a stream declares for them, and decoding them by it.

    BodySchema               a declared schema: format, files, message type; `document` decodes a body
    read_body_schema         the schema that `FILE`, `FILE#type`, or a folder of them states
    SchemaFormat             avro, protobuf
    MAX_SCHEMA_TEXT_BYTES    limit of the text that a stream keeps of it; MAX_SCHEMA_FILES_BYTES of its files
    schema_facts             what is shown of it
    check_filter_source      that filter values do not come from such bodies; `check_body_fields`: nor columns

Hidden: the two libraries, imported when a schema of their format is first used. A decoded body becomes a document of
JSON, so paths mean the same everywhere. The table of types is in docs/languages/amqp.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.message.body_schema.files import read_body_schema
    from headgate.message.body_schema.schema import (
        MAX_SCHEMA_FILES_BYTES,
        MAX_SCHEMA_TEXT_BYTES,
        BodySchema,
        SchemaFormat,
        check_body_fields,
        check_filter_source,
        schema_facts,
    )
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
