"""The language of RocketMQ: SQL92 expressions and tags, and the parts of Java that define their meaning.

ROCKETMQ, ROCKETMQ_MAP       the dialect, over stored messages and over property maps
parse_tags, TAGS, tag_hash   tag expressions, what stands for their dialect, and the hash that stands for a tag
LISTS, TagExpression         the languages whose texts are lists and no expressions; one such list
compared, signed, NUMBERS    values as Java compares and negates them; `double_text` prints one
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.language.rocketmq.dialect import ROCKETMQ, ROCKETMQ_MAP
    from headgate.language.rocketmq.java import double_text
    from headgate.language.rocketmq.tags import LISTS, TAGS, TagExpression, parse_tags, tag_hash
    from headgate.language.rocketmq.values import NUMBERS, compared, numbers_of, signed
else:
    from headgate.faces import lazy

    __getattr__, __dir__ = lazy(__name__)
