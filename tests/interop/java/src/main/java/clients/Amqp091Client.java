package clients;

import clients.Lines.Fields;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** com.rabbitmq:amqp-client (AMQP 0.9.1), driven by lines of JSON. */
public final class Amqp091Client {

  private record Subscribed(Channel channel, Inbox inbox) {}

  private interface Work {
    Object on(Channel channel) throws Exception;
  }

  private static Connection connection;
  private static final Map<String, Subscribed> CONSUMERS = new ConcurrentHashMap<>();

  private Amqp091Client() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", Amqp091Client::connect);
    commands.put("create", Amqp091Client::create);
    commands.put("exists", fields -> briefly(channel -> channel.queueDeclarePassive(fields.text("stream")).getQueue()));
    commands.put("delete", fields -> briefly(channel -> channel.queueDelete(fields.text("stream")).getMessageCount()));
    commands.put("get", fields -> briefly(channel -> channel.basicGet(fields.text("stream"), false)));
    commands.put("bind", Amqp091Client::bind);
    commands.put("publish", Amqp091Client::publish);
    commands.put("subscribe", Amqp091Client::subscribe);
    commands.put("take", fields -> consumer(fields).inbox().take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put("end", fields -> consumer(fields).inbox().end(fields.number("seconds", 20)));
    commands.put("unsubscribe", Amqp091Client::unsubscribe);
    commands.put("close", Amqp091Client::close);
    Lines.serve(commands);
  }

  private static Subscribed consumer(Fields fields) {
    return CONSUMERS.get(fields.text("id"));
  }

  private static Object briefly(Work work) throws Exception {
    try (Channel channel = connection.createChannel()) {
      return work.on(channel);
    }
  }

  private static Object connect(Fields fields) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setHost(fields.text("host"));
    factory.setPort(fields.number("port", 5672));
    factory.setUsername(fields.text("user", "guest"));
    factory.setPassword(fields.text("password", "guest"));
    factory.setAutomaticRecoveryEnabled(false);
    connection = factory.newConnection();
    return null;
  }

  private static Object create(Fields fields) throws Exception {
    Map<String, Object> arguments = new HashMap<>(fields.map("arguments"));
    arguments.put("x-queue-type", "stream");
    return briefly(channel -> channel.queueDeclare(fields.text("stream"), true, false, false, arguments).getQueue());
  }

  private static Object bind(Fields fields) throws Exception {
    return briefly(
        channel -> {
          channel.exchangeDeclare(fields.text("exchange"), "direct", true);
          channel.queueBind(fields.text("stream"), fields.text("exchange"), fields.text("key"));
          return null;
        });
  }

  private static Object publish(Fields fields) throws Exception {
    List<String> returned = Collections.synchronizedList(new ArrayList<>());
    List<Fields> messages = fields.list("messages");
    briefly(
        channel -> {
          channel.confirmSelect();
          channel.addReturnListener(message -> returned.add(new String(message.getBody(), StandardCharsets.UTF_8)));
          for (Fields message : messages) {
            Map<String, Object> headers = new HashMap<>(message.map("properties"));
            if (message.has("filter_value")) {
              headers.put("x-stream-filter-value", message.text("filter_value"));
            }
            AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder()
                    .headers(headers)
                    .messageId(message.text("id"))
                    .type(message.text("subject"))
                    .build();
            channel.basicPublish(
                fields.text("exchange", ""),
                fields.text("key", fields.text("stream")),
                fields.flag("mandatory"),
                properties,
                message.text("body").getBytes(StandardCharsets.UTF_8));
          }
          channel.waitForConfirmsOrDie(20_000);
          return null;
        });
    return Map.of("confirmed", messages.size(), "returned", returned);
  }

  private static Object subscribe(Fields fields) throws Exception {
    Inbox inbox = new Inbox();
    Channel channel = connection.createChannel();
    int prefetch = fields.number("prefetch", 100);
    if (prefetch > 0) {
      channel.basicQos(prefetch);
    }
    Map<String, Object> arguments = new HashMap<>();
    if (fields.has("offset")) {
      arguments.put("x-stream-offset", fields.any("offset"));
    }
    if (fields.has("filter_values")) {
      arguments.put("x-stream-filter", fields.texts("filter_values"));
    }
    if (fields.flag("match_unfiltered")) {
      arguments.put("x-stream-match-unfiltered", true);
    }
    if (fields.has("sql")) {
      arguments.put("x-headgate-sql", fields.text("sql"));
    }
    channel.basicConsume(
        fields.text("stream"),
        fields.flag("no_ack"),
        arguments,
        (tag, delivery) -> {
          // Before whoever waits for the message may close the channel.
          channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
          inbox.put(received(delivery));
        },
        tag -> inbox.close("cancelled"));
    CONSUMERS.put(fields.text("id"), new Subscribed(channel, inbox));
    return null;
  }

  private static Map<String, Object> received(Delivery delivery) {
    Map<String, Object> headers = new LinkedHashMap<>();
    delivery
        .getProperties()
        .getHeaders()
        .forEach((name, value) -> headers.put(name, value instanceof Number ? value : String.valueOf(value)));
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("body", new String(delivery.getBody(), StandardCharsets.UTF_8));
    result.put("offset", headers.get("x-stream-offset"));
    result.put("filter_value", headers.get("x-stream-filter-value"));
    result.put("properties", headers);
    result.put("exchange", delivery.getEnvelope().getExchange());
    result.put("routing_key", delivery.getEnvelope().getRoutingKey());
    result.put("message_id", delivery.getProperties().getMessageId());
    return result;
  }

  private static Object unsubscribe(Fields fields) throws Exception {
    CONSUMERS.remove(fields.text("id")).channel().close();
    return null;
  }

  private static Object close(Fields fields) throws Exception {
    connection.close();
    return null;
  }
}
