package clients;

import clients.Lines.Fields;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** com.azure:azure-messaging-servicebus, driven by lines of JSON. */
public final class ServiceBus {

  private static String connectionString;
  private static final Map<String, ServiceBusSenderClient> SENDERS = new HashMap<>();
  private static final Map<String, ServiceBusReceiverClient> RECEIVERS = new HashMap<>();
  private static final Map<String, ServiceBusReceivedMessage> HELD = new HashMap<>();

  private ServiceBus() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put(
        "connect",
        fields -> {
          connectionString = fields.text("connection_string");
          return null;
        });
    commands.put("send", ServiceBus::send);
    commands.put("schedule", ServiceBus::schedule);
    commands.put("cancel", ServiceBus::cancel);
    commands.put("receive_deferred", ServiceBus::receiveDeferred);
    commands.put("open", ServiceBus::open);
    commands.put("receive", ServiceBus::receive);
    commands.put("settle", ServiceBus::settle);
    commands.put(
        "renew", fields -> RECEIVERS.get(fields.text("id")).renewMessageLock(held(fields)).toInstant().toEpochMilli());
    commands.put("peek", ServiceBus::peek);
    commands.put("no_session", ServiceBus::noSession);
    commands.put("state", ServiceBus::state);
    commands.put(
        "renew_session", fields -> RECEIVERS.get(fields.text("id")).renewSessionLock().toInstant().toEpochMilli());
    commands.put("process", ServiceBus::process);
    commands.put(
        "shut",
        fields -> {
          RECEIVERS.remove(fields.text("id")).close();
          return null;
        });
    commands.put("add_rule", ServiceBus::addRule);
    commands.put(
        "remove_rule",
        fields ->
            rules(
                fields,
                manager -> {
                  manager.deleteRule(fields.text("name"));
                  return null;
                }));
    commands.put("rules", fields -> rules(fields, ServiceBus::listed));
    commands.put("close", ServiceBus::close);
    Lines.serve(commands);
  }

  private static ServiceBusClientBuilder builder() {
    return builder(20);
  }

  private static ServiceBusClientBuilder builder(int seconds) {
    AmqpRetryOptions retry = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(seconds));
    return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(retry);
  }

  private static ServiceBusReceivedMessage held(Fields fields) {
    return HELD.get(fields.text("id") + "/" + ((Number) fields.any("number")).longValue());
  }

  private static ServiceBusMessage made(Fields fields) {
    ServiceBusMessage message = new ServiceBusMessage(BinaryData.fromString(fields.text("body")));
    if (fields.has("subject")) {
      message.setSubject(fields.text("subject"));
    }
    if (fields.has("correlation_id")) {
      message.setCorrelationId(fields.text("correlation_id"));
    }
    if (fields.has("session")) {
      message.setSessionId(fields.text("session"));
    }
    if (fields.has("ttl_ms")) {
      message.setTimeToLive(Duration.ofMillis(((Number) fields.any("ttl_ms")).longValue()));
    }
    if (fields.has("due_ms")) {
      message.setScheduledEnqueueTime(due(fields));
    }
    message.getApplicationProperties().putAll(fields.map("properties"));
    return message;
  }

  private static OffsetDateTime due(Fields fields) {
    return Instant.ofEpochMilli(((Number) fields.any("due_ms")).longValue()).atOffset(ZoneOffset.UTC);
  }

  private static ServiceBusSenderClient sender(Fields fields) {
    return SENDERS.computeIfAbsent(fields.text("entity"), name -> builder().sender().queueName(name).buildClient());
  }

  private static Object schedule(Fields fields) {
    List<ServiceBusMessage> messages = fields.list("messages").stream().map(ServiceBus::made).toList();
    List<Long> numbers = new ArrayList<>();
    sender(fields).scheduleMessages(messages, due(fields)).forEach(numbers::add);
    return numbers;
  }

  private static Object cancel(Fields fields) {
    sender(fields).cancelScheduledMessages(numbers(fields));
    return null;
  }

  private static List<Long> numbers(Fields fields) {
    return ((List<?>) fields.any("numbers")).stream().map(each -> ((Number) each).longValue()).toList();
  }

  private static Object receiveDeferred(Fields fields) {
    List<Map<String, Object>> found = new ArrayList<>();
    ServiceBusReceiverClient receiver = RECEIVERS.get(fields.text("id"));
    for (ServiceBusReceivedMessage message : receiver.receiveDeferredMessageBatch(numbers(fields))) {
      HELD.put(fields.text("id") + "/" + message.getSequenceNumber(), message);
      found.add(told(message));
    }
    return found;
  }

  private static Object send(Fields fields) {
    ServiceBusSenderClient sender = sender(fields);
    if (!fields.flag("batch")) {
      fields.list("messages").forEach(each -> sender.sendMessage(made(each)));
      return null;
    }
    ServiceBusMessageBatch batch = sender.createMessageBatch();
    for (Fields each : fields.list("messages")) {
      if (!batch.tryAddMessage(made(each))) {
        throw new IllegalStateException("the batch is full");
      }
    }
    sender.sendMessages(batch);
    return null;
  }

  private static Object open(Fields fields) {
    if (fields.flag("by_session")) {
      ServiceBusReceiverClient found = accept(builder(), fields);
      RECEIVERS.put(fields.text("id"), found);
      return found.getSessionId();
    }
    ServiceBusClientBuilder.ServiceBusReceiverClientBuilder receiver =
        builder()
            .receiver()
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .receiveMode(
                fields.flag("deletes") ? ServiceBusReceiveMode.RECEIVE_AND_DELETE : ServiceBusReceiveMode.PEEK_LOCK);
    if (fields.has("queue")) {
      receiver.queueName(fields.text("queue"));
    } else {
      receiver.topicName(fields.text("topic")).subscriptionName(fields.text("subscription"));
    }
    if (fields.flag("dead_letters")) {
      receiver.subQueue(SubQueue.DEAD_LETTER_QUEUE);
    }
    RECEIVERS.put(fields.text("id"), receiver.buildClient());
    return null;
  }

  private static ServiceBusReceiverClient accept(ServiceBusClientBuilder builder, Fields fields) {
    ServiceBusClientBuilder.ServiceBusSessionReceiverClientBuilder receiver =
        builder
            .sessionReceiver()
            .disableAutoComplete()
            .maxAutoLockRenewDuration(Duration.ZERO)
            .receiveMode(
                fields.flag("deletes") ? ServiceBusReceiveMode.RECEIVE_AND_DELETE : ServiceBusReceiveMode.PEEK_LOCK);
    if (fields.has("queue")) {
      receiver.queueName(fields.text("queue"));
    } else {
      receiver.topicName(fields.text("topic")).subscriptionName(fields.text("subscription"));
    }
    ServiceBusSessionReceiverClient client = receiver.buildClient();
    return fields.has("session") ? client.acceptSession(fields.text("session")) : client.acceptNextSession();
  }

  /** The error of asking for a session that is not to be had in some seconds. */
  private static Object noSession(Fields fields) {
    try {
      accept(builder(fields.number("seconds", 1)), fields).close();
      return null;
    } catch (RuntimeException error) {
      Throwable cause = error;
      while (cause != null) {
        if (cause instanceof AmqpException amqp && amqp.getErrorCondition() != null) {
          return amqp.getErrorCondition().getErrorCondition();
        }
        cause = cause.getCause();
      }
      return error.toString();
    }
  }

  private static Object state(Fields fields) {
    ServiceBusReceiverClient receiver = RECEIVERS.get(fields.text("id"));
    if (fields.flag("set")) {
      String state = fields.text("state");
      receiver.setSessionState(state == null ? null : state.getBytes(StandardCharsets.UTF_8));
    }
    byte[] found = receiver.getSessionState();
    return found == null ? null : new String(found, StandardCharsets.UTF_8);
  }

  /** Some sessions at once: the first message of each is done when all have one. */
  private static Object process(Fields fields) throws InterruptedException {
    int sessions = fields.number("sessions", 1);
    List<Map<String, Object>> found = Collections.synchronizedList(new ArrayList<>());
    List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
    CountDownLatch all = new CountDownLatch(fields.number("count", 1));
    CountDownLatch together = new CountDownLatch(sessions);
    ServiceBusProcessorClient processor =
        builder()
            .sessionProcessor()
            .queueName(fields.text("queue"))
            .disableAutoComplete()
            // One more, which waits for a session until the processor ends.
            .maxConcurrentSessions(sessions + 1)
            .processMessage(
                context -> {
                  found.add(told(context.getMessage()));
                  together.countDown();
                  try {
                    if (!together.await(20, TimeUnit.SECONDS)) {
                      throw new IllegalStateException("the sessions came one after the other");
                    }
                  } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                  }
                  context.complete();
                  all.countDown();
                })
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient();
    processor.start();
    boolean done = all.await(30, TimeUnit.SECONDS);
    processor.close();
    if (!done) {
      throw new IllegalStateException("got " + found + ", errors " + errors);
    }
    return found;
  }

  private static Object receive(Fields fields) {
    List<Map<String, Object>> found = new ArrayList<>();
    Duration wait = Duration.ofSeconds(fields.number("seconds", 20));
    while (found.size() < fields.number("count", 1)) {
      int before = found.size();
      ServiceBusReceiverClient receiver = RECEIVERS.get(fields.text("id"));
      for (ServiceBusReceivedMessage message : receiver.receiveMessages(fields.number("count", 1) - before, wait)) {
        HELD.put(fields.text("id") + "/" + message.getSequenceNumber(), message);
        found.add(told(message));
      }
      if (found.size() == before) {
        break;
      }
    }
    return found;
  }

  private static Map<String, Object> told(ServiceBusReceivedMessage message) {
    Map<String, Object> result = new LinkedHashMap<>();
    result.put("body", message.getBody().toString());
    result.put("message_id", message.getMessageId());
    result.put("sequence_number", message.getSequenceNumber());
    result.put("enqueued_sequence_number", message.getEnqueuedSequenceNumber());
    result.put("delivery_count", message.getDeliveryCount());
    result.put("session", message.getSessionId());
    result.put("state", message.getState().toString().toLowerCase(Locale.ROOT));
    result.put(
        "expires_after_ms",
        message.getExpiresAt() == null
            ? null
            : Duration.between(message.getEnqueuedTime(), message.getExpiresAt()).toMillis());
    result.put("subject", message.getSubject());
    result.put("correlation_id", message.getCorrelationId());
    result.put("properties", message.getApplicationProperties());
    result.put("dead_letter_reason", message.getDeadLetterReason());
    result.put("dead_letter_description", message.getDeadLetterErrorDescription());
    return result;
  }

  private static Object settle(Fields fields) {
    ServiceBusReceiverClient receiver = RECEIVERS.get(fields.text("id"));
    ServiceBusReceivedMessage message = held(fields);
    switch (fields.text("how")) {
      case "complete" -> receiver.complete(message);
      case "abandon" ->
          receiver.abandon(message, new AbandonOptions().setPropertiesToModify(fields.map("properties")));
      case "defer" -> receiver.defer(message, new DeferOptions().setPropertiesToModify(fields.map("properties")));
      default -> {
        DeadLetterOptions options =
            new DeadLetterOptions()
                .setDeadLetterReason(fields.text("reason"))
                .setDeadLetterErrorDescription(fields.text("description"));
        if (fields.has("properties")) {
          options.setPropertiesToModify(fields.map("properties"));
        }
        receiver.deadLetter(message, options);
      }
    }
    return null;
  }

  private static Object peek(Fields fields) {
    long from = fields.has("from") ? ((Number) fields.any("from")).longValue() : 1;
    List<Map<String, Object>> found = new ArrayList<>();
    ServiceBusReceiverClient receiver = RECEIVERS.get(fields.text("id"));
    receiver.peekMessages(fields.number("count", 1), from).forEach(message -> found.add(told(message)));
    return found;
  }

  private static Object rules(Fields fields, Function<ServiceBusRuleManagerClient, Object> use) {
    try (ServiceBusRuleManagerClient manager =
        builder()
            .ruleManager()
            .topicName(fields.text("topic"))
            .subscriptionName(fields.text("subscription"))
            .buildClient()) {
      return use.apply(manager);
    }
  }

  private static Object addRule(Fields fields) {
    RuleFilter filter;
    if (fields.has("sql")) {
      filter = new SqlRuleFilter(fields.text("sql"));
    } else {
      Fields given = new Fields(fields.map("correlation"));
      CorrelationRuleFilter correlation = new CorrelationRuleFilter();
      correlation.setLabel(given.text("label"));
      correlation.setCorrelationId(given.text("correlation_id"));
      correlation.getProperties().putAll(given.map("properties"));
      filter = correlation;
    }
    CreateRuleOptions options = new CreateRuleOptions(filter);
    if (fields.has("action")) {
      options.setAction(new SqlRuleAction(fields.text("action")));
    }
    return rules(
        fields,
        manager -> {
          manager.createRule(fields.text("name"), options);
          return null;
        });
  }

  private static Object listed(ServiceBusRuleManagerClient manager) {
    List<Map<String, Object>> found = new ArrayList<>();
    for (RuleProperties rule : manager.listRules()) {
      Map<String, Object> told = new LinkedHashMap<>();
      told.put("name", rule.getName());
      told.put("sql", rule.getFilter() instanceof SqlRuleFilter sql ? sql.getSqlExpression() : null);
      CorrelationRuleFilter correlation = rule.getFilter() instanceof CorrelationRuleFilter given ? given : null;
      told.put("label", correlation == null ? null : correlation.getLabel());
      told.put("properties", correlation == null ? Map.of() : correlation.getProperties());
      told.put("action", rule.getAction() instanceof SqlRuleAction action ? action.getSqlExpression() : null);
      found.add(told);
    }
    return found;
  }

  private static Object close(Fields fields) {
    RECEIVERS.values().forEach(ServiceBusReceiverClient::close);
    SENDERS.values().forEach(ServiceBusSenderClient::close);
    return null;
  }
}
