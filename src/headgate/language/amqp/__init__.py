"""The languages of AMQP, `rabbitmq` and `amqp`, and what a receiver gives beside a text: property filters, a map."""
