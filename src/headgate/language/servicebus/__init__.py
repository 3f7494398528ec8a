"""The language of Service Bus: SQL filters, correlation filters, rule actions, and the system properties they name."""
