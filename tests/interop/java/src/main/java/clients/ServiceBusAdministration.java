package clients;

import clients.Lines.Fields;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.QueueRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.SubscriptionRuntimeProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import java.net.URI;
import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The administration client of com.azure:azure-messaging-servicebus over plain HTTP, driven by lines of JSON. It has no
 * port of its own choice, so its requests are sent on to the one that is given.
 */
public final class ServiceBusAdministration {

  private static ServiceBusAdministrationClient client;

  private ServiceBusAdministration() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", ServiceBusAdministration::connect);
    commands.put("namespace", fields -> client.getNamespaceProperties().getName());
    commands.put("create_topic", ServiceBusAdministration::createTopic);
    commands.put("get_topic", fields -> told(client.getTopic(fields.text("topic"))));
    commands.put("update_topic", ServiceBusAdministration::updateTopic);
    commands.put("create_queue", ServiceBusAdministration::createQueue);
    commands.put("get_queue", fields -> told(client.getQueue(fields.text("queue"))));
    commands.put("queue_counts", fields -> counts(client.getQueueRuntimeProperties(fields.text("queue"))));
    commands.put("create_subscription", ServiceBusAdministration::createSubscription);
    commands.put(
        "get_subscription",
        fields -> told(client.getSubscription(fields.text("topic"), fields.text("subscription"))));
    commands.put("update_subscription", ServiceBusAdministration::updateSubscription);
    commands.put("subscription_counts", ServiceBusAdministration::subscriptionCounts);
    commands.put("create_rule", ServiceBusAdministration::createRule);
    commands.put("update_rule", ServiceBusAdministration::updateRule);
    commands.put(
        "list_topics", fields -> client.listTopics().stream().map(TopicProperties::getName).toList());
    commands.put(
        "list_queues", fields -> client.listQueues().stream().map(QueueProperties::getName).toList());
    commands.put("list_subscriptions", ServiceBusAdministration::listSubscriptions);
    commands.put("list_rules", ServiceBusAdministration::listRules);
    commands.put("exists", fields -> client.getTopicExists(fields.text("topic")));
    commands.put("delete", ServiceBusAdministration::delete);
    commands.put("fail", fields -> fail(commands, fields));
    Lines.serve(commands);
  }

  private static Object connect(Fields fields) {
    HttpClient plain = HttpClient.createDefault();
    client =
        new ServiceBusAdministrationClientBuilder()
            .connectionString(fields.text("connection_string"))
            .httpClient(
                request -> {
                  URI asked = URI.create(request.getUrl().toString());
                  String query = asked.getRawQuery() == null ? "" : "?" + asked.getRawQuery();
                  request.setUrl(
                      "http://" + fields.text("host") + ":" + fields.number("port", 5300) + asked.getRawPath() + query);
                  return plain.send(request);
                })
            .buildClient();
    return null;
  }

  private static Object createTopic(Fields fields) {
    CreateTopicOptions options = new CreateTopicOptions().setUserMetadata(fields.text("user_metadata"));
    if (fields.has("time_to_live")) {
      options.setDefaultMessageTimeToLive(Duration.parse(fields.text("time_to_live")));
    }
    return told(client.createTopic(fields.text("topic"), options));
  }

  private static Object updateTopic(Fields fields) {
    TopicProperties topic = client.getTopic(fields.text("topic"));
    topic.setStatus(EntityStatus.fromString(fields.text("status")));
    return told(client.updateTopic(topic));
  }

  private static Object createQueue(Fields fields) {
    CreateQueueOptions options = new CreateQueueOptions();
    options.setLockDuration(Duration.parse(fields.text("lock")));
    options.setMaxDeliveryCount(fields.number("max_delivery_count", 10));
    return told(client.createQueue(fields.text("queue"), options));
  }

  private static Object createSubscription(Fields fields) {
    CreateSubscriptionOptions options = new CreateSubscriptionOptions();
    if (fields.has("forward_to")) {
      options.setForwardTo(fields.text("forward_to"));
    }
    options.setSessionRequired(fields.flag("sessions"));
    String topic = fields.text("topic");
    String name = fields.text("subscription");
    if (fields.has("rule")) {
      return told(client.createSubscription(topic, name, fields.text("rule"), options, rule(fields)));
    }
    return told(client.createSubscription(topic, name, options));
  }

  private static Object updateSubscription(Fields fields) {
    SubscriptionProperties found = client.getSubscription(fields.text("topic"), fields.text("subscription"));
    found.setMaxDeliveryCount(fields.number("max_delivery_count", 10));
    return told(client.updateSubscription(found));
  }

  private static CreateRuleOptions rule(Fields fields) {
    CreateRuleOptions options = new CreateRuleOptions();
    if (fields.has("sql")) {
      SqlRuleFilter filter = new SqlRuleFilter(fields.text("sql"));
      filter.getParameters().putAll(fields.map("parameters"));
      options.setFilter(filter);
    } else if (fields.has("label")) {
      CorrelationRuleFilter filter = new CorrelationRuleFilter().setLabel(fields.text("label"));
      filter.getProperties().putAll(fields.map("properties"));
      options.setFilter(filter);
    }
    return fields.has("action") ? options.setAction(new SqlRuleAction(fields.text("action"))) : options;
  }

  private static Object createRule(Fields fields) {
    return told(
        client.createRule(fields.text("topic"), fields.text("rule"), fields.text("subscription"), rule(fields)));
  }

  private static Object updateRule(Fields fields) {
    String topic = fields.text("topic");
    String subscription = fields.text("subscription");
    RuleProperties found = client.getRule(topic, subscription, fields.text("rule"));
    found.setFilter(new SqlRuleFilter(fields.text("sql")));
    return told(client.updateRule(topic, subscription, found));
  }

  private static Object subscriptionCounts(Fields fields) {
    SubscriptionRuntimeProperties found =
        client.getSubscriptionRuntimeProperties(fields.text("topic"), fields.text("subscription"));
    return List.of(found.getTotalMessageCount(), found.getActiveMessageCount(), found.getDeadLetterMessageCount());
  }

  private static Object counts(QueueRuntimeProperties found) {
    return List.of(found.getTotalMessageCount(), found.getActiveMessageCount(), found.getDeadLetterMessageCount());
  }

  private static Object listSubscriptions(Fields fields) {
    return client.listSubscriptions(fields.text("topic")).stream()
        .map(SubscriptionProperties::getSubscriptionName)
        .toList();
  }

  private static Object listRules(Fields fields) {
    return client.listRules(fields.text("topic"), fields.text("subscription")).stream()
        .map(ServiceBusAdministration::told)
        .toList();
  }

  private static Object delete(Fields fields) {
    String topic = fields.text("topic");
    if (fields.has("queue")) {
      client.deleteQueue(fields.text("queue"));
    } else if (fields.has("rule")) {
      client.deleteRule(topic, fields.text("subscription"), fields.text("rule"));
    } else if (fields.has("subscription")) {
      client.deleteSubscription(topic, fields.text("subscription"));
    } else {
      client.deleteTopic(topic);
    }
    return null;
  }

  /** The exception of a command that fails, with the status of the response. */
  private static Object fail(Map<String, Lines.Command> commands, Fields fields) throws Exception {
    try {
      commands.get(fields.text("command")).run(fields);
    } catch (HttpResponseException error) {
      return Map.of(
          "kind", error.getClass().getSimpleName(),
          "status", error.getResponse().getStatusCode(),
          "message", String.valueOf(error.getMessage()));
    }
    throw new IllegalStateException(fields.text("command") + " did not fail");
  }

  private static Map<String, Object> told(TopicProperties topic) {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("name", topic.getName());
    told.put("time_to_live", topic.getDefaultMessageTimeToLive().toString());
    told.put("user_metadata", topic.getUserMetadata());
    told.put("status", topic.getStatus().toString());
    told.put("batched", topic.isBatchedOperationsEnabled());
    return told;
  }

  private static Map<String, Object> told(QueueProperties queue) {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("name", queue.getName());
    told.put("lock", queue.getLockDuration().toString());
    told.put("max_delivery_count", queue.getMaxDeliveryCount());
    return told;
  }

  private static Map<String, Object> told(SubscriptionProperties subscription) {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("name", subscription.getSubscriptionName());
    told.put("topic", subscription.getTopicName());
    told.put("max_delivery_count", subscription.getMaxDeliveryCount());
    told.put("forward_to", subscription.getForwardTo());
    told.put("sessions", subscription.isSessionRequired());
    return told;
  }

  private static Map<String, Object> told(RuleProperties rule) {
    RuleFilter filter = rule.getFilter();
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("name", rule.getName());
    told.put("kind", filter.getClass().getSimpleName());
    if (filter instanceof SqlRuleFilter sql) {
      told.put("sql", sql.getSqlExpression());
      told.put("parameters", sql.getParameters());
    } else if (filter instanceof CorrelationRuleFilter correlation) {
      told.put("label", correlation.getLabel());
      told.put("properties", correlation.getProperties());
    }
    told.put("action", rule.getAction() instanceof SqlRuleAction action ? action.getSqlExpression() : null);
    return told;
  }
}
