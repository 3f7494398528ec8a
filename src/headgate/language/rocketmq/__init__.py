"""The language of RocketMQ: SQL92 expressions and tags, and the Java that their meaning comes from."""
