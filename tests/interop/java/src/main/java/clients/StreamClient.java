package clients;

import clients.Lines.Fields;
import com.rabbitmq.stream.Consumer;
import com.rabbitmq.stream.ConsumerBuilder;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.Message;
import com.rabbitmq.stream.MessageBuilder;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.Producer;
import com.rabbitmq.stream.ProducerBuilder;
import com.rabbitmq.stream.StreamCreator;
import com.rabbitmq.stream.StreamStats;
import com.rabbitmq.stream.compression.Compression;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** com.rabbitmq:stream-client, driven by lines of JSON. */
public final class StreamClient {

  private record Subscribed(Consumer consumer, Inbox inbox) {}

  private static Environment environment;
  private static final Map<String, Subscribed> CONSUMERS = new ConcurrentHashMap<>();
  private static final Map<String, Set<String>> ACTIVE = new ConcurrentHashMap<>();

  private StreamClient() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", StreamClient::connect);
    commands.put("create", StreamClient::create);
    commands.put("delete", fields -> nothing(() -> environment.deleteStream(fields.text("stream"))));
    commands.put("exists", fields -> environment.streamExists(fields.text("stream")));
    commands.put("publish", StreamClient::publish);
    commands.put("last_id", StreamClient::lastId);
    commands.put("subscribe", StreamClient::subscribe);
    commands.put(
        "take", fields -> consumer(fields).inbox().take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put("unsubscribe", StreamClient::unsubscribe);
    commands.put(
        "store", fields -> nothing(() -> consumer(fields).consumer().store(fields.number("offset", 0))));
    commands.put("stored", fields -> consumer(fields).consumer().storedOffset());
    commands.put("active", fields -> ACTIVE.get(fields.text("id")));
    commands.put("stats", StreamClient::stats);
    commands.put("create_super", StreamClient::createSuper);
    commands.put("delete_super", fields -> nothing(() -> environment.deleteSuperStream(fields.text("stream"))));
    commands.put("publish_super", StreamClient::publishSuper);
    commands.put("close", fields -> nothing(environment::close));
    Lines.serve(commands);
  }

  private static Object nothing(Runnable work) {
    work.run();
    return null;
  }

  private static Subscribed consumer(Fields fields) {
    return CONSUMERS.get(fields.text("id"));
  }

  private static Object connect(Fields fields) {
    environment =
        Environment.builder()
            .host(fields.text("host"))
            .port(fields.number("port", 5552))
            .username(fields.text("user", "guest"))
            .password(fields.text("password", "guest"))
            .recoveryBackOffDelayPolicy(com.rabbitmq.stream.BackOffDelayPolicy.fixed(Duration.ofMillis(200)))
            .topologyUpdateBackOffDelayPolicy(com.rabbitmq.stream.BackOffDelayPolicy.fixed(Duration.ofMillis(200)))
            .build();
    return null;
  }

  private static StreamCreator creator(Fields fields) {
    StreamCreator creator = environment.streamCreator().stream(fields.text("stream"));
    fields.map("arguments").forEach((name, value) -> creator.argument(name, String.valueOf(value)));
    return creator;
  }

  private static Object create(Fields fields) {
    creator(fields).create();
    return null;
  }

  private static Message message(Producer producer, Fields fields) {
    MessageBuilder builder = producer.messageBuilder().addData(bytes(fields.text("body")));
    if (fields.has("id")) {
      builder.publishingId(fields.number("id", 0));
    }
    if (fields.has("subject")) {
      builder.properties().subject(fields.text("subject"));
    }
    if (fields.has("user_id")) {
      builder.properties().userId(bytes(fields.text("user_id")));
    }
    if (fields.has("key")) {
      builder.applicationProperties().entry("key", fields.text("key"));
    }
    fields
        .map("properties")
        .forEach(
            (name, value) -> {
              if (value instanceof Long number) {
                builder.applicationProperties().entry(name, number);
              } else if (value instanceof Double number) {
                builder.applicationProperties().entry(name, number);
              } else if (value instanceof Boolean flag) {
                builder.applicationProperties().entry(name, flag);
              } else {
                builder.applicationProperties().entry(name, (String) value);
              }
            });
    return builder.build();
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String body(Message message) {
    return new String(message.getBodyAsBinary(), StandardCharsets.UTF_8);
  }

  private static Object publish(Fields fields) throws Exception {
    Map<String, String> values = new HashMap<>();
    for (Fields message : fields.list("messages")) {
      if (message.has("filter_value")) {
        values.put(message.text("body"), message.text("filter_value"));
      }
    }
    ProducerBuilder builder = environment.producerBuilder().stream(fields.text("stream"));
    if (fields.has("name")) {
      builder.name(fields.text("name"));
    }
    if (!values.isEmpty()) {
      builder.filterValue(message -> values.get(body(message)));
    }
    if (fields.has("sub_batch")) {
      builder.subEntrySize(fields.number("sub_batch", 1));
      builder.compression(Compression.valueOf(fields.text("compression").toUpperCase(Locale.ROOT)));
    }
    try (Producer producer = builder.build()) {
      return sendAll(producer, fields);
    }
  }

  private static Object sendAll(Producer producer, Fields fields) throws Exception {
    List<Fields> messages = fields.list("messages");
    List<Object> refused = Collections.synchronizedList(new ArrayList<>());
    CountDownLatch confirmed = new CountDownLatch(messages.size());
    for (Fields message : messages) {
      producer.send(
          message(producer, message),
          status -> {
            if (!status.isConfirmed()) {
              refused.add(List.of(message.text("body"), status.getCode()));
            }
            confirmed.countDown();
          });
    }
    if (!confirmed.await(20, TimeUnit.SECONDS)) {
      throw new TimeoutException(confirmed.getCount() + " messages were not confirmed");
    }
    return Map.of("confirmed", messages.size() - refused.size(), "refused", refused);
  }

  private static Object lastId(Fields fields) {
    try (Producer producer =
        environment.producerBuilder().stream(fields.text("stream")).name(fields.text("name")).build()) {
      return producer.getLastPublishingId();
    }
  }

  private static OffsetSpecification start(Object offset) {
    if (offset instanceof Number number) {
      return OffsetSpecification.offset(number.longValue());
    }
    return switch ((String) offset) {
      case "first" -> OffsetSpecification.first();
      case "last" -> OffsetSpecification.last();
      default -> OffsetSpecification.next();
    };
  }

  private static Object subscribe(Fields fields) {
    Inbox inbox = new Inbox();
    ConsumerBuilder builder = environment.consumerBuilder();
    if (fields.has("super_stream")) {
      builder.superStream(fields.text("super_stream"));
    } else {
      builder.stream(fields.text("stream"));
    }
    if (fields.has("offset")) {
      builder.offset(start(fields.any("offset")));
    }
    if (fields.has("name")) {
      builder.name(fields.text("name")).manualTrackingStrategy().builder();
    }
    if (fields.flag("single_active")) {
      Set<String> active = new ConcurrentSkipListSet<>();
      ACTIVE.put(fields.text("id"), active);
      builder
          .singleActiveConsumer()
          .consumerUpdateListener(
              context -> {
                if (context.isActive()) {
                  active.add(context.stream());
                } else {
                  active.remove(context.stream());
                }
                return start(fields.any("offset"));
              });
    }
    if (fields.has("filter_values")) {
      Map<String, Object> post = fields.map("post_filter");
      builder
          .filter()
          .values(fields.array("filter_values"))
          .matchUnfiltered(fields.flag("match_unfiltered"))
          .postFilter(message -> post.isEmpty() || passes(message, post));
    }
    Consumer consumer =
        builder
            .messageHandler((context, message) -> inbox.put(received(context.stream(), context.offset(), message)))
            .build();
    CONSUMERS.put(fields.text("id"), new Subscribed(consumer, inbox));
    return null;
  }

  private static boolean passes(Message message, Map<String, Object> post) {
    Map<String, Object> properties = message.getApplicationProperties();
    return properties != null && post.get("value").equals(properties.get((String) post.get("property")));
  }

  private static Map<String, Object> received(String stream, long offset, Message message) {
    Map<String, Object> properties = new LinkedHashMap<>();
    if (message.getApplicationProperties() != null) {
      properties.putAll(message.getApplicationProperties());
    }
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("stream", stream);
    result.put("offset", offset);
    result.put("body", body(message));
    result.put("properties", properties);
    result.put("subject", message.getProperties() == null ? null : message.getProperties().getSubject());
    return result;
  }

  private static Object unsubscribe(Fields fields) {
    CONSUMERS.remove(fields.text("id")).consumer().close();
    return null;
  }

  private static Object stats(Fields fields) {
    StreamStats stats = environment.queryStreamStats(fields.text("stream"));
    return Map.of(
        "firstChunkId", stats.firstOffset(),
        "committedChunkId", stats.committedChunkId(),
        "committedOffset", stats.committedOffset());
  }

  private static Object createSuper(Fields fields) {
    StreamCreator.SuperStreamConfiguration configuration = creator(fields).superStream();
    if (fields.has("binding_keys")) {
      configuration.bindingKeys(fields.array("binding_keys"));
    } else {
      configuration.partitions(fields.number("partitions", 3));
    }
    configuration.creator().create();
    return null;
  }

  private static Object publishSuper(Fields fields) throws Exception {
    ProducerBuilder.RoutingConfiguration routing =
        environment
            .producerBuilder()
            .superStream(fields.text("stream"))
            .routing(message -> (String) message.getApplicationProperties().get("key"));
    ProducerBuilder builder =
        (fields.text("routing").equals("key") ? routing.key() : routing.hash()).producerBuilder();
    try (Producer producer = builder.build()) {
      return sendAll(producer, fields);
    }
  }
}
