package clients;

import clients.Lines.Fields;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** org.apache.rocketmq:rocketmq-client-java (gRPC), driven by lines of JSON. */
public final class RocketMqV5 {

  private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  private static final Map<Long, MessageView> HELD = Collections.synchronizedMap(new HashMap<>());
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final Map<String, SimpleConsumer> CONSUMERS = new HashMap<>();
  private static final Map<String, AutoCloseable> OPEN = new LinkedHashMap<>();
  private static final Map<String, Inbox> INBOXES = new HashMap<>();
  private static ClientConfiguration configuration;
  private static Producer producer;

  private RocketMqV5() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", RocketMqV5::connect);
    commands.put("send", RocketMqV5::send);
    commands.put(
        "recall",
        fields -> producer.recallMessage(fields.text("topic"), fields.text("handle")).getMessageId().toString());
    commands.put("open", RocketMqV5::open);
    commands.put("receive", RocketMqV5::receive);
    commands.put(
        "ack",
        fields -> {
          for (Object number : (List<?>) fields.any("numbers")) {
            CONSUMERS.get(fields.text("id")).ack(HELD.get(((Number) number).longValue()));
          }
          return null;
        });
    commands.put(
        "change_invisible",
        fields -> {
          MessageView message = HELD.get((long) fields.number("number", 0));
          Duration duration = Duration.ofSeconds(fields.number("seconds", 0));
          CONSUMERS.get(fields.text("id")).changeInvisibleDuration(message, duration);
          return null;
        });
    commands.put("push", RocketMqV5::push);
    commands.put(
        "take", fields -> INBOXES.get(fields.text("id")).take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put(
        "shut",
        fields -> {
          OPEN.remove(fields.text("id")).close();
          return null;
        });
    commands.put(
        "close",
        fields -> {
          for (AutoCloseable each : OPEN.values()) {
            each.close();
          }
          OPEN.clear();
          return null;
        });
    Lines.serve(commands);
  }

  private static Object connect(Fields fields) {
    ClientConfigurationBuilder builder = ClientConfiguration.newBuilder();
    builder.setEndpoints(fields.text("host") + ":" + fields.number("port", 0)).enableSsl(fields.flag("tls"));
    builder.setRequestTimeout(Duration.ofSeconds(10));
    if (fields.has("keys")) {
      List<String> keys = fields.texts("keys");
      builder.setCredentialProvider(new StaticSessionCredentialsProvider(keys.get(0), keys.get(1)));
    }
    configuration = builder.build();
    return null;
  }

  private static Message made(String topic, Fields fields) {
    MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic);
    if (fields.has("size")) {
      byte[] body = new byte[fields.number("size", 0)];
      Arrays.fill(body, (byte) 'x');
      builder.setBody(body);
    } else {
      builder.setBody(fields.text("body").getBytes(StandardCharsets.UTF_8));
    }
    if (fields.has("tag")) {
      builder.setTag(fields.text("tag"));
    }
    if (fields.has("keys")) {
      builder.setKeys(fields.array("keys"));
    }
    if (fields.has("group")) {
      builder.setMessageGroup(fields.text("group"));
    }
    if (fields.has("due_ms")) {
      builder.setDeliveryTimestamp(((Number) fields.any("due_ms")).longValue());
    }
    fields.map("properties").forEach((name, value) -> builder.addProperty(name, (String) value));
    return builder.build();
  }

  private static Object send(Fields fields) throws Exception {
    if (producer == null) {
      producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).build();
      OPEN.put("producer", producer);
    }
    List<Object> receipts = new ArrayList<>();
    for (Fields message : fields.list("messages")) {
      SendReceipt receipt = producer.send(made(fields.text("topic"), message));
      String recall = receipt.getRecallHandle();
      Map<String, Object> told = new HashMap<>();
      told.put("message_id", receipt.getMessageId().toString());
      told.put("recall", recall == null || recall.isEmpty() ? null : recall);
      receipts.add(told);
    }
    return receipts;
  }

  private static Map<String, Object> told(MessageView message) {
    long number = NUMBERS.incrementAndGet();
    HELD.put(number, message);
    ByteBuffer buffer = message.getBody();
    byte[] body = new byte[buffer.remaining()];
    buffer.get(body);
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("number", number);
    told.put("body", Bodies.told(body));
    told.put("topic", message.getTopic());
    told.put("message_id", message.getMessageId().toString());
    told.put("tag", message.getTag().orElse(null));
    told.put("keys", message.getKeys().stream().sorted().toList());
    told.put("properties", message.getProperties());
    told.put("group", message.getMessageGroup().orElse(null));
    told.put("attempt", message.getDeliveryAttempt());
    told.put("is_corrupted", false);
    return told;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, FilterExpression> expressions(Fields fields) {
    Map<String, FilterExpression> result = new LinkedHashMap<>();
    fields
        .map("topics")
        .forEach(
            (topic, how) -> {
              Map<String, String> words = (Map<String, String>) how;
              result.put(
                  topic,
                  words.containsKey("sql")
                      ? new FilterExpression(words.get("sql"), FilterExpressionType.SQL92)
                      : new FilterExpression(words.getOrDefault("tag", "*"), FilterExpressionType.TAG));
            });
    return result;
  }

  private static Object open(Fields fields) throws Exception {
    SimpleConsumer consumer =
        PROVIDER
            .newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(fields.text("group"))
            .setAwaitDuration(Duration.ofSeconds(fields.number("wait_seconds", 10)))
            .setSubscriptionExpressions(expressions(fields))
            .build();
    CONSUMERS.put(fields.text("id"), consumer);
    OPEN.put(fields.text("id"), consumer);
    return null;
  }

  private static Object receive(Fields fields) throws Exception {
    Duration invisible = Duration.ofSeconds(fields.number("invisible_seconds", 30));
    List<MessageView> messages =
        CONSUMERS.get(fields.text("id")).receive(fields.number("count", 32), invisible);
    return messages.stream().map(RocketMqV5::told).toList();
  }

  private static Object push(Fields fields) throws Exception {
    Inbox inbox = new Inbox();
    INBOXES.put(fields.text("id"), inbox);
    Failures failures = new Failures(fields.map("fails"));
    OPEN.put(
        fields.text("id"),
        PROVIDER
            .newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(fields.text("group"))
            .setSubscriptionExpressions(expressions(fields))
            .setMessageListener(
                message -> {
                  Map<String, Object> told = told(message);
                  synchronized (inbox) {
                    boolean fails = failures.next((String) told.get("body"));
                    inbox.put(told);
                    return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                  }
                })
            .build());
    return null;
  }
}
