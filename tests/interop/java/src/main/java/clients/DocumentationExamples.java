package clients;

import clients.Lines.Fields;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.ConsumerBuilder;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.MessageBuilder;
import com.rabbitmq.stream.Producer;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The examples of the page "Stream Filtering" of RabbitMQ's documentation that it gives in Java, with its values and
 * filters. What an example would process goes to its inbox.
 */
public final class DocumentationExamples {

  private static final String ORDERS =
      "p.subject = 'order.created' AND "
          + "p.creation_time > UTC() - 3600000 AND "
          + "region IN ('AMER', 'EMEA', 'APJ') AND "
          + "(h.priority > 4 OR price >= 99.99 OR premium_customer = TRUE)";

  private static Environment environment;
  private static Connection connection;
  private static com.rabbitmq.client.Connection connection091;
  private static Inbox inbox;
  private static final List<AutoCloseable> CONSUMERS = new java.util.ArrayList<>();

  private DocumentationExamples() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", DocumentationExamples::connect);
    commands.put("publish_amqp10", DocumentationExamples::publishAmqp10);
    commands.put("publish_amqp091", DocumentationExamples::publishAmqp091);
    commands.put("publish_stream", DocumentationExamples::publishStream);
    commands.put("bloom_amqp10", fields -> consuming(fields, DocumentationExamples::bloomAmqp10));
    commands.put("bloom_amqp091", fields -> consuming(fields, DocumentationExamples::bloomAmqp091));
    commands.put("bloom_stream", fields -> consuming(fields, DocumentationExamples::bloomStream));
    commands.put("property_filter", fields -> consuming(fields, DocumentationExamples::propertyFilter));
    commands.put("sql_filter", fields -> consuming(fields, DocumentationExamples::sqlFilter));
    commands.put("bloom_and_sql", fields -> consuming(fields, DocumentationExamples::bloomAndSql));
    commands.put("invalid_filter", fields -> consuming(fields, DocumentationExamples::invalidFilter));
    commands.put("take", fields -> inbox.take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put("stop", fields -> stop());
    commands.put("close", DocumentationExamples::close);
    Lines.serve(commands);
  }

  private interface Consuming {
    AutoCloseable start(String stream, boolean fromFirst) throws Exception;
  }

  private static Object consuming(Fields fields, Consuming example) throws Exception {
    inbox = new Inbox();
    CONSUMERS.add(example.start(fields.text("stream"), fields.flag("from_first")));
    return null;
  }

  private static Object stop() throws Exception {
    List<AutoCloseable> consumers = List.copyOf(CONSUMERS);
    CONSUMERS.clear();
    for (AutoCloseable consumer : consumers) {
      consumer.close();
    }
    return null;
  }

  private static Object connect(Fields fields) throws Exception {
    String user = fields.text("user");
    String password = fields.text("password");
    environment =
        Environment.builder()
            .host(fields.text("host"))
            .port(fields.number("stream_port", 5552))
            .username(user)
            .password(password)
            .build();
    connection =
        new AmqpEnvironmentBuilder()
            .build()
            .connectionBuilder()
            .host(fields.text("host"))
            .port(fields.number("amqp_port", 5672))
            .username(user)
            .password(password)
            .build();
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost(fields.text("host"));
    factory.setPort(fields.number("amqp_port", 5672));
    factory.setUsername(user);
    factory.setPassword(password);
    connection091 = factory.newConnection();
    return null;
  }

  private static Object close(Fields fields) throws Exception {
    connection.close();
    connection091.close();
    environment.close();
    return null;
  }

  private static void processed(String body) {
    inbox.put(Map.of("body", body));
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String text(byte[] body) {
    return new String(body, StandardCharsets.UTF_8);
  }

  private static void await(CountDownLatch latch) throws Exception {
    if (!latch.await(20, TimeUnit.SECONDS)) {
      throw new TimeoutException("a message was not confirmed");
    }
  }

  // Publishing: "Example: Bloom Filter AMQP 1.0", "… AMQP 0.9.1", "… Stream Protocol".

  private static Object publishAmqp10(Fields fields) throws Exception {
    List<Fields> messages = fields.list("messages");
    CountDownLatch accepted = new CountDownLatch(messages.size());
    try (Publisher publisher = connection.publisherBuilder().queue(fields.text("stream")).build()) {
      for (Fields given : messages) {
        Message message = publisher.message(bytes(given.text("body")));
        if (given.has("filter_value")) {
          message.annotation("x-stream-filter-value", given.text("filter_value")); // set Bloom filter value
        }
        if (given.has("subject")) {
          message.subject(given.text("subject"));
        }
        if (given.has("user_id")) {
          message.userId(bytes(given.text("user_id")));
        }
        if (given.has("region")) {
          message.property("region", given.text("region"));
        }
        if (given.has("price")) {
          message.property("price", ((Number) given.any("price")).doubleValue());
        }
        if (given.has("premium_customer")) {
          message.property("premium_customer", given.flag("premium_customer"));
        }
        if (given.has("priority")) {
          message.priority((byte) given.number("priority", 4));
        }
        if (given.has("age_ms")) {
          message.creationTime(System.currentTimeMillis() - given.number("age_ms", 0));
        }
        publisher.publish(message, context -> accepted.countDown());
      }
      await(accepted);
    }
    return null;
  }

  private static Object publishAmqp091(Fields fields) throws Exception {
    try (Channel channel = connection091.createChannel()) {
      channel.confirmSelect();
      for (Fields given : fields.list("messages")) {
        AMQP.BasicProperties.Builder properties = new AMQP.BasicProperties.Builder();
        if (given.has("filter_value")) {
          // set Bloom filter value
          properties.headers(Collections.singletonMap("x-stream-filter-value", given.text("filter_value")));
        }
        channel.basicPublish(
            "", // default exchange
            fields.text("stream"),
            properties.build(),
            bytes(given.text("body")));
      }
      channel.waitForConfirmsOrDie(20_000);
    }
    return null;
  }

  private static Object publishStream(Fields fields) throws Exception {
    List<Fields> messages = fields.list("messages");
    CountDownLatch confirmed = new CountDownLatch(messages.size());
    try (Producer producer =
        environment
            .producerBuilder()
            .stream(fields.text("stream"))
            // The Java library will set the Bloom filter value by extracting
            // the value from key "region" in the message's application properties.
            .filterValue(msg -> msg.getApplicationProperties().get("region").toString())
            .build()) {
      for (Fields given : messages) {
        MessageBuilder builder = producer.messageBuilder().addData(bytes(given.text("body")));
        builder.applicationProperties().entry("region", given.text("region"));
        producer.send(builder.build(), status -> confirmed.countDown());
      }
      await(confirmed);
    }
    return null;
  }

  // Consuming, stages 1 and 3.

  private static AutoCloseable bloomAmqp10(String stream, boolean fromFirst) {
    return offset(connection.consumerBuilder().queue(stream).stream(), fromFirst)
        // This Bloom filter will be evaluated server-side per chunk (Stage 1).
        .filterValues("invoices", "orders")
        .filterMatchUnfiltered(true)
        .builder()
        .messageHandler(
            (ctx, msg) -> {
              ctx.accept(); // before whoever waits for the message may close the consumer
              String filterValue = (String) msg.annotation("x-stream-filter-value");
              // This filter will be evaluted client-side per message (Stage 3).
              if ("invoices".equals(filterValue) || "orders".equals(filterValue)) {
                processed(text(msg.body()));
              }
            })
        .build();
  }

  private static AutoCloseable bloomAmqp091(String stream, boolean fromFirst) throws Exception {
    Channel channel = connection091.createChannel();
    // Consumer prefetch must be specified when consuming from a stream.
    channel.basicQos(100);
    Map<String, Object> arguments = new HashMap<>();
    // This Bloom filter will be evaluated server-side per chunk (Stage 1).
    arguments.put("x-stream-filter", "emea");
    if (fromFirst) {
      arguments.put("x-stream-offset", "first");
    }
    channel.basicConsume(
        stream,
        false,
        arguments,
        (consumerTag, message) -> {
          // Ack is required to receive more messages from the stream. The example acknowledges last; here that comes
          // before whoever waits for the message may close the channel.
          channel.basicAck(message.getEnvelope().getDeliveryTag(), false);
          Map<String, Object> headers = message.getProperties().getHeaders();
          // This filter will be evaluted client-side per message (Stage 3).
          if ("emea".equals(String.valueOf(headers.get("x-stream-filter-value")))) {
            processed(text(message.getBody()));
          }
        },
        consumerTag -> {});
    return channel;
  }

  private static AutoCloseable bloomStream(String stream, boolean fromFirst) {
    return environment
        .consumerBuilder()
        .stream(stream)
        .offset(
            fromFirst
                ? com.rabbitmq.stream.OffsetSpecification.first()
                : com.rabbitmq.stream.OffsetSpecification.next())
        .filter()
        // This Bloom filter will be evaluated server-side per chunk (Stage 1).
        .values("emea")
        // This filter will be evaluted client-side per message (Stage 3).
        .postFilter(msg -> "emea".equals(msg.getApplicationProperties().get("region")))
        .builder()
        .messageHandler((ctx, msg) -> processed(text(msg.getBodyAsBinary())))
        .build();
  }

  // Consuming, stage 2: "Property Filter Expressions", "SQL Filter Expressions", "Combining Bloom Filter and SQL …".

  private static AutoCloseable propertyFilter(String stream, boolean fromFirst) {
    return processing(
        offset(connection.consumerBuilder().queue(stream).stream(), fromFirst)
            .filter()
            .userId(bytes("John"))
            .subject("&p:Order")
            .property("region", "emea")
            .stream());
  }

  private static AutoCloseable sqlFilter(String stream, boolean fromFirst) {
    return processing(
        offset(connection.consumerBuilder().queue(stream).stream(), fromFirst)
            .filter()
            .sql("properties.user_id = 'John' AND properties.subject LIKE 'Order%' AND region = 'emea'")
            .stream());
  }

  private static AutoCloseable bloomAndSql(String stream, boolean fromFirst) {
    return processing(
        offset(connection.consumerBuilder().queue(stream).stream(), fromFirst)
            // This Bloom filter will be evaluated server-side per chunk at stage 1.
            .filterValues("order.created")
            // This complex SQL filter expression will be evaluted server-side per message at stage 2.
            .filter()
            .sql(ORDERS)
            .stream());
  }

  /** "Definitional Errors": the filter is left out of the attach, and the library gives an error to the application. */
  private static AutoCloseable invalidFilter(String stream, boolean fromFirst) {
    return processing(
        offset(connection.consumerBuilder().queue(stream).stream(), fromFirst)
            .filter()
            .sql("properties.user_id = 'John' AND")
            .stream());
  }

  private static ConsumerBuilder.StreamOptions offset(ConsumerBuilder.StreamOptions options, boolean fromFirst) {
    return options.offset(
        fromFirst ? ConsumerBuilder.StreamOffsetSpecification.FIRST : ConsumerBuilder.StreamOffsetSpecification.NEXT);
  }

  private static AutoCloseable processing(ConsumerBuilder.StreamOptions options) {
    return options
        .builder()
        .messageHandler(
            (ctx, msg) -> {
              ctx.accept(); // before whoever waits for the message may close the consumer
              processed(text(msg.body()));
            })
        .build();
  }
}
