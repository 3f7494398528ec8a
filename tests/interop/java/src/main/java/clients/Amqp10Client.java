package clients;

import clients.Lines.Fields;
import com.rabbitmq.client.amqp.Connection;
import com.rabbitmq.client.amqp.Consumer;
import com.rabbitmq.client.amqp.ConsumerBuilder;
import com.rabbitmq.client.amqp.ConsumerBuilder.StreamOffsetSpecification;
import com.rabbitmq.client.amqp.Environment;
import com.rabbitmq.client.amqp.Management;
import com.rabbitmq.client.amqp.Message;
import com.rabbitmq.client.amqp.Publisher;
import com.rabbitmq.client.amqp.PublisherBuilder;
import com.rabbitmq.client.amqp.Resource;
import com.rabbitmq.client.amqp.impl.AmqpEnvironmentBuilder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** com.rabbitmq.client:amqp-client (AMQP 1.0), driven by lines of JSON. */
public final class Amqp10Client {

  private record Subscribed(Consumer consumer, Inbox inbox) {}

  private static Environment environment;
  private static Connection connection;
  private static final Map<String, Subscribed> CONSUMERS = new ConcurrentHashMap<>();

  private Amqp10Client() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", Amqp10Client::connect);
    commands.put("create", Amqp10Client::create);
    commands.put("delete", Amqp10Client::delete);
    commands.put("info", Amqp10Client::info);
    commands.put("bind", Amqp10Client::bind);
    commands.put("publish", Amqp10Client::publish);
    commands.put("subscribe", Amqp10Client::subscribe);
    commands.put(
        "take", fields -> consumer(fields).inbox().take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put("end", fields -> consumer(fields).inbox().end(fields.number("seconds", 20)));
    commands.put("unsubscribe", Amqp10Client::unsubscribe);
    commands.put("close", Amqp10Client::close);
    Lines.serve(commands);
  }

  private static Subscribed consumer(Fields fields) {
    return CONSUMERS.get(fields.text("id"));
  }

  private static Object connect(Fields fields) {
    environment = new AmqpEnvironmentBuilder().build();
    connection =
        environment
            .connectionBuilder()
            .host(fields.text("host"))
            .port(fields.number("port", 5672))
            .username(fields.text("user", "guest"))
            .password(fields.text("password", "guest"))
            .recovery()
            .activated(false)
            .connectionBuilder()
            .build();
    return null;
  }

  private static Object create(Fields fields) {
    Management.QueueSpecification queue =
        connection.management().queue(fields.text("stream")).type(Management.QueueType.STREAM);
    fields.map("arguments").forEach(queue::argument);
    return described(queue.declare());
  }

  private static Object info(Fields fields) {
    return described(connection.management().queueInfo(fields.text("stream")));
  }

  private static Map<String, Object> described(Management.QueueInfo info) {
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("name", info.name());
    result.put("durable", info.durable());
    result.put("type", info.type().name());
    result.put("arguments", info.arguments());
    result.put("leader", info.leader());
    result.put("messages", info.messageCount());
    result.put("consumers", info.consumerCount());
    return result;
  }

  private static Object delete(Fields fields) {
    connection.management().queueDelete(fields.text("stream"));
    return null;
  }

  private static Object bind(Fields fields) {
    Management management = connection.management();
    management.exchange(fields.text("exchange")).type("direct").declare();
    management
        .binding()
        .sourceExchange(fields.text("exchange"))
        .destinationQueue(fields.text("stream"))
        .key(fields.text("key"))
        .bind();
    return null;
  }

  private static Message message(Publisher publisher, Fields fields) {
    Message message = publisher.message(fields.text("body").getBytes(StandardCharsets.UTF_8));
    if (fields.has("filter_value")) {
      message.annotation("x-stream-filter-value", fields.text("filter_value"));
    }
    if (fields.has("subject")) {
      message.subject(fields.text("subject"));
    }
    if (fields.has("user_id")) {
      message.userId(fields.text("user_id").getBytes(StandardCharsets.UTF_8));
    }
    if (fields.has("to")) {
      message.to(fields.text("to"));
    }
    if (fields.has("priority")) {
      message.priority((byte) fields.number("priority", 4));
    }
    if (fields.has("creation_time")) {
      message.creationTime(((Number) fields.any("creation_time")).longValue());
    }
    fields
        .map("properties")
        .forEach(
            (name, value) -> {
              if (value instanceof Long number) {
                message.property(name, number.longValue());
              } else if (value instanceof Double number) {
                message.property(name, number.doubleValue());
              } else if (value instanceof Boolean flag) {
                message.property(name, flag.booleanValue());
              } else {
                message.property(name, (String) value);
              }
            });
    return message;
  }

  private static Object publish(Fields fields) throws Exception {
    PublisherBuilder builder = connection.publisherBuilder();
    if (fields.has("exchange")) {
      builder.exchange(fields.text("exchange")).key(fields.text("key"));
    } else if (fields.has("stream")) {
      builder.queue(fields.text("stream"));
    }
    List<Fields> messages = fields.list("messages");
    String[] outcomes = new String[messages.size()];
    CountDownLatch settled = new CountDownLatch(outcomes.length);
    try (Publisher publisher = builder.build()) {
      for (int index = 0; index < outcomes.length; index++) {
        int place = index;
        publisher.publish(
            message(publisher, messages.get(index)),
            context -> {
              outcomes[place] = context.status().name().toLowerCase(Locale.ROOT);
              settled.countDown();
            });
      }
      if (!settled.await(20, TimeUnit.SECONDS)) {
        throw new TimeoutException(settled.getCount() + " messages have no outcome");
      }
    }
    return Map.of("outcomes", List.of(outcomes));
  }

  private static Object subscribe(Fields fields) {
    Inbox inbox = new Inbox();
    ConsumerBuilder builder = connection.consumerBuilder().queue(fields.text("stream"));
    ConsumerBuilder.StreamOptions options = builder.stream();
    if (fields.any("offset") instanceof Number offset) {
      options.offset(offset.longValue());
    } else if (fields.has("offset")) {
      options.offset(StreamOffsetSpecification.valueOf(fields.text("offset").toUpperCase(Locale.ROOT)));
    }
    if (fields.has("filter_values")) {
      options.filterValues(fields.array("filter_values")).filterMatchUnfiltered(fields.flag("match_unfiltered"));
    }
    ConsumerBuilder.StreamFilterOptions filter = options.filter();
    fields
        .map("properties")
        .forEach(
            (name, value) -> {
              switch (name) {
                case "user_id" -> filter.userId(((String) value).getBytes(StandardCharsets.UTF_8));
                case "subject" -> filter.subject((String) value);
                case "to" -> filter.to((String) value);
                default -> throw new IllegalArgumentException(name);
              }
            });
    fields
        .map("application_properties")
        .forEach(
            (name, value) -> {
              if (value instanceof Long number) {
                filter.property(name, number.longValue());
              } else {
                filter.property(name, (String) value);
              }
            });
    if (fields.has("sql")) {
      filter.sql(fields.text("sql"));
    }
    if (fields.has("credit")) {
      builder.initialCredits(fields.number("credit", 100));
    }
    if (fields.flag("pre_settled")) {
      builder.preSettled();
    }
    Consumer consumer =
        builder
            .messageHandler(
                (context, message) -> {
                  inbox.put(received(message));
                  if (!fields.flag("pre_settled")) {
                    context.accept();
                  }
                })
            .listeners(
                change -> {
                  if (change.currentState() == Resource.State.CLOSED) {
                    inbox.close(String.valueOf(change.failureCause()));
                  }
                })
            .build();
    CONSUMERS.put(fields.text("id"), new Subscribed(consumer, inbox));
    return null;
  }

  private static Map<String, Object> received(Message message) {
    Map<String, Object> properties = new LinkedHashMap<>();
    message.forEachProperty(properties::put);
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("body", new String(message.body(), StandardCharsets.UTF_8));
    result.put("offset", message.annotation("x-stream-offset"));
    result.put("filter_value", message.annotation("x-stream-filter-value"));
    result.put("properties", properties);
    result.put("subject", message.subject());
    return result;
  }

  private static Object unsubscribe(Fields fields) {
    CONSUMERS.remove(fields.text("id")).consumer().close();
    return null;
  }

  private static Object close(Fields fields) {
    connection.close();
    environment.close();
    return null;
  }
}
