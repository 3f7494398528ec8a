package clients;

import clients.Lines.Fields;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** org.apache.rocketmq:rocketmq-client (remoting), driven by lines of JSON. */
public final class RocketMqClassic {

  private static final Map<String, Runnable> OPEN = new LinkedHashMap<>();
  private static final Map<String, DefaultMQPushConsumer> PUSHED = new HashMap<>();
  private static final Map<String, DefaultLitePullConsumer> PULLED = new HashMap<>();
  private static final Map<String, Inbox> INBOXES = new HashMap<>();
  private static String names;
  private static RPCHook hook;
  private static DefaultMQProducer producer;
  private static int instances;

  private RocketMqClassic() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put(
        "connect",
        fields -> {
          names = fields.text("host") + ":" + fields.number("port", 0);
          if (fields.has("keys")) {
            List<String> keys = fields.texts("keys");
            hook = new AclClientRPCHook(new SessionCredentials(keys.get(0), keys.get(1)));
          }
          return null;
        });
    commands.put("send", RocketMqClassic::send);
    commands.put("request", RocketMqClassic::request);
    commands.put("recall", fields -> producer().recallMessage(fields.text("topic"), fields.text("handle")));
    commands.put("push", RocketMqClassic::push);
    commands.put(
        "take", fields -> INBOXES.get(fields.text("id")).take(fields.texts("until"), fields.number("seconds", 20)));
    commands.put("assigned", RocketMqClassic::assigned);
    commands.put("pull", RocketMqClassic::pull);
    commands.put("pull_once", RocketMqClassic::pullOnce);
    commands.put("poll", RocketMqClassic::poll);
    commands.put("seek", RocketMqClassic::seek);
    commands.put("commit", RocketMqClassic::commit);
    commands.put(
        "committed", fields -> PULLED.get(fields.text("id")).committed(queue(PULLED.get(fields.text("id")), fields)));
    commands.put("query", RocketMqClassic::query);
    commands.put("view", fields -> told(producer().viewMessage(fields.text("topic"), fields.text("message_id"))));
    commands.put("offsets", RocketMqClassic::offsets);
    commands.put(
        "shut",
        fields -> {
          OPEN.remove(fields.text("id")).run();
          return null;
        });
    commands.put(
        "close",
        fields -> {
          OPEN.values().forEach(Runnable::run);
          OPEN.clear();
          return null;
        });
    Lines.serve(commands);
  }

  /** Each client of this program is a client of its own: clients with one name share connections and heartbeats. */
  private static String instance() {
    instances += 1;
    return UtilAll.getPid() + "-" + instances;
  }

  private static DefaultMQProducer producer() throws MQClientException {
    if (producer == null) {
      producer = new DefaultMQProducer("producers", hook);
      producer.setNamesrvAddr(names);
      producer.setInstanceName(instance());
      producer.setSendMsgTimeout(10_000);
      // What is too large is the server's to say.
      producer.setMaxMessageSize(16 << 20);
      producer.start();
      OPEN.put("producer", producer::shutdown);
    }
    return producer;
  }

  private static Message made(String topic, Fields fields) {
    byte[] body;
    if (fields.has("size")) {
      body = new byte[fields.number("size", 0)];
      if (fields.flag("random")) {
        // It cannot be compressed.
        new Random(0).nextBytes(body);
      } else {
        Arrays.fill(body, (byte) 'x');
      }
    } else {
      body = fields.text("body").getBytes(StandardCharsets.UTF_8);
    }
    Message message = new Message(topic, body);
    if (fields.has("tag")) {
      message.setTags(fields.text("tag"));
    }
    if (fields.has("keys")) {
      message.setKeys(fields.texts("keys"));
    }
    if (fields.has("level")) {
      message.setDelayTimeLevel(fields.number("level", 0));
    }
    if (fields.has("due_ms")) {
      message.setDeliverTimeMs(((Number) fields.any("due_ms")).longValue());
    }
    fields.map("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
    return message;
  }

  private static Map<String, Object> told(SendResult result) {
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("status", result.getSendStatus().toString());
    told.put("message_id", result.getMsgId());
    told.put("offset_id", result.getOffsetMsgId());
    told.put("queue", result.getMessageQueue().getQueueId());
    told.put("offset", result.getQueueOffset());
    told.put("recall", result.getRecallHandle());
    return told;
  }

  private static Object send(Fields fields) throws Exception {
    String topic = fields.text("topic");
    String how = fields.text("how", "plain");
    List<Object> results = new ArrayList<>();
    if (how.equals("batch")) {
      Collection<Message> messages = new ArrayList<>(fields.list("messages").stream().map(each -> made(topic, each)).toList());
      return told(producer().send(messages));
    }
    for (Fields each : fields.list("messages")) {
      Message message = made(topic, each);
      if (how.equals("oneway")) {
        producer().sendOneway(message);
      } else if (how.equals("async")) {
        CompletableFuture<SendResult> sent = new CompletableFuture<>();
        producer()
            .send(
                message,
                new SendCallback() {
                  @Override
                  public void onSuccess(SendResult result) {
                    sent.complete(result);
                  }

                  @Override
                  public void onException(Throwable error) {
                    sent.completeExceptionally(error);
                  }
                });
        results.add(told(sent.get(20, TimeUnit.SECONDS)));
      } else if (each.has("queue")) {
        // A queue by its number, as a selector of an application does it.
        results.add(told(producer().send(message, (queues, sent, number) -> queues.get((int) number), each.number("queue", 0))));
      } else {
        results.add(told(producer().send(message)));
      }
    }
    return results;
  }

  /** The reply of a consumer to a message. */
  private static Object request(Fields fields) throws Exception {
    Message message = made(fields.text("topic"), fields);
    return Bodies.told(producer().request(message, 1_000L * fields.number("seconds", 20)).getBody());
  }

  /** Replies that say the body of each message again, behind a word. */
  private static void reply(List<MessageExt> messages, String word) {
    try {
      for (MessageExt message : messages) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        body.write(word.getBytes(StandardCharsets.UTF_8));
        body.write(message.getBody());
        producer().send(MessageUtil.createReplyMessage(message, body.toByteArray()));
      }
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  private static Map<String, Object> told(MessageExt message) {
    Map<String, String> users = new TreeMap<>();
    Map<String, String> system = new TreeMap<>();
    message
        .getProperties()
        .forEach((name, value) -> (MessageConst.STRING_HASH_SET.contains(name) ? system : users).put(name, value));
    Map<String, Object> told = new LinkedHashMap<>();
    told.put("body", Bodies.told(message.getBody()));
    told.put("topic", message.getTopic());
    told.put("message_id", message.getMsgId());
    told.put("tag", message.getTags());
    told.put("keys", message.getKeys() == null ? List.of() : Arrays.stream(message.getKeys().split(" ")).sorted().toList());
    told.put("properties", users);
    told.put("system", system);
    told.put("attempt", message.getReconsumeTimes() + 1);
    told.put("queue", message.getQueueId());
    told.put("offset", message.getQueueOffset());
    return told;
  }

  @SuppressWarnings("unchecked")
  private static Map<String, MessageSelector> selectors(Fields fields) {
    Map<String, MessageSelector> result = new LinkedHashMap<>();
    fields
        .map("topics")
        .forEach(
            (topic, how) -> {
              Map<String, String> words = (Map<String, String>) how;
              result.put(
                  topic,
                  words.containsKey("sql")
                      ? MessageSelector.bySql(words.get("sql"))
                      : MessageSelector.byTag(words.getOrDefault("tag", "*")));
            });
    return result;
  }

  private static ConsumeFromWhere from(Fields fields) {
    return switch (fields.text("from", "first")) {
      case "last" -> ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
      case "time" -> ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
      default -> ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
    };
  }

  private static Object push(Fields fields) throws Exception {
    String id = fields.text("id");
    Inbox inbox = new Inbox();
    INBOXES.put(id, inbox);
    Failures failures = new Failures(fields.map("fails"));
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(fields.text("group"), hook);
    consumer.setNamesrvAddr(names);
    consumer.setInstanceName(fields.text("instance", instance()));
    consumer.setConsumeFromWhere(from(fields));
    consumer.setMaxReconsumeTimes(fields.number("max_retries", -1));
    consumer.setClientRebalance(!fields.flag("server_divides"));
    consumer.setSuspendCurrentQueueTimeMillis(100);
    // The route of the retry topic is asked for before there is one: ask again before 30 seconds are over.
    consumer.setPollNameServerInterval(1_000);
    consumer.setPersistConsumerOffsetInterval(fields.number("persist_ms", 5_000));
    if (fields.flag("broadcasting")) {
      consumer.setMessageModel(MessageModel.BROADCASTING);
    }
    for (Map.Entry<String, MessageSelector> each : selectors(fields).entrySet()) {
      consumer.subscribe(each.getKey(), each.getValue());
    }
    if (fields.flag("orderly")) {
      consumer.registerMessageListener(
          (MessageListenerOrderly)
              (messages, context) ->
                  fails(messages, inbox, failures)
                      ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                      : ConsumeOrderlyStatus.SUCCESS);
    } else {
      consumer.registerMessageListener(
          (MessageListenerConcurrently)
              (messages, context) -> {
                context.setDelayLevelWhenNextConsume(fields.number("retry_level", 1));
                if (fields.has("reply")) {
                  reply(messages, fields.text("reply"));
                }
                return fails(messages, inbox, failures)
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
              });
    }
    try {
      consumer.start();
    } catch (MQClientException error) {
      consumer.shutdown();
      throw error;
    }
    PUSHED.put(id, consumer);
    OPEN.put(id, consumer::shutdown);
    return null;
  }

  private static boolean fails(List<MessageExt> messages, Inbox inbox, Failures failures) {
    boolean fails = false;
    for (MessageExt message : messages) {
      Map<String, Object> told = told(message);
      fails |= failures.next((String) told.get("body"));
      inbox.put(told);
    }
    return fails;
  }

  /** The numbers of the queues that consumers have, once there are `count` in all. */
  private static Object assigned(Fields fields) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(fields.number("seconds", 20));
    List<List<Integer>> result;
    do {
      result = new ArrayList<>();
      Set<Integer> all = new HashSet<>();
      int count = 0;
      for (String id : fields.texts("ids")) {
        List<Integer> queues =
            PUSHED.get(id).getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> queue.getTopic().equals(fields.text("topic")))
                .map(MessageQueue::getQueueId)
                .sorted()
                .toList();
        result.add(queues);
        all.addAll(queues);
        count += queues.size();
      }
      if (all.size() == fields.number("count", 0) && count == all.size() && result.stream().noneMatch(List::isEmpty)) {
        return result;
      }
      Thread.sleep(20);
    } while (System.nanoTime() < deadline);
    throw new TimeoutException("the queues were not shared, but " + result);
  }

  private static Object pull(Fields fields) throws Exception {
    DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(fields.text("group"), hook);
    consumer.setNamesrvAddr(names);
    consumer.setInstanceName(instance());
    consumer.setConsumeFromWhere(from(fields));
    consumer.setAutoCommit(fields.flag("commits"));
    if (!fields.has("assign")) {
      for (Map.Entry<String, MessageSelector> each : selectors(fields).entrySet()) {
        consumer.subscribe(each.getKey(), each.getValue());
      }
    }
    consumer.start();
    if (fields.has("assign")) {
      consumer.assign(consumer.fetchMessageQueues(fields.text("assign")));
    }
    PULLED.put(fields.text("id"), consumer);
    OPEN.put(fields.text("id"), consumer::shutdown);
    return null;
  }

  /** What a pull consumer that was just started is given of a queue by an expression, and up to where it said it was. */
  @SuppressWarnings("deprecation")
  private static Object pullOnce(Fields fields) throws Exception {
    DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(fields.text("group"), hook);
    consumer.setNamesrvAddr(names);
    consumer.setInstanceName(instance());
    consumer.start();
    try {
      MessageQueue queue =
          consumer.fetchSubscribeMessageQueues(fields.text("topic")).stream()
              .filter(each -> each.getQueueId() == fields.number("queue", 0))
              .findFirst()
              .orElseThrow();
      // The first words with the broker: the client learns in a thread of its own which version it has.
      long first = consumer.minOffset(queue);
      List<MessageExt> found = chosen(consumer, queue, fields.text("sql"), first);
      long next = consumer.maxOffset(queue);
      consumer.updateConsumeOffset(queue, next);
      consumer.getOffsetStore().persistAll(Set.of(queue));
      Map<String, Object> told = new LinkedHashMap<>();
      told.put("messages", found.stream().map(RocketMqClassic::told).toList());
      // It is said without an answer, and what is asked next may overtake it.
      long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
      while (consumer.fetchConsumeOffset(queue, true) != next && System.nanoTime() < deadline) {
        Thread.sleep(20);
      }
      told.put("is_kept", consumer.fetchConsumeOffset(queue, true) == next);
      return told;
    } finally {
      consumer.shutdown();
    }
  }

  /** Pull by an expression as soon as the client knows that the broker takes them, long before its next heartbeat. */
  private static List<MessageExt> chosen(DefaultMQPullConsumer consumer, MessageQueue queue, String sql, long first)
      throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
    while (true) {
      try {
        return consumer.pull(queue, MessageSelector.bySql(sql), first, 32, 10_000).getMsgFoundList();
      } catch (MQClientException notKnown) {
        if (System.nanoTime() > deadline) {
          throw notKnown;
        }
        Thread.sleep(20);
      }
    }
  }

  /** Poll until all bodies of `until` were found. */
  private static Object poll(Fields fields) throws Exception {
    DefaultLitePullConsumer consumer = PULLED.get(fields.text("id"));
    Inbox inbox = new Inbox();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(fields.number("seconds", 20));
    Set<String> missing = new HashSet<>(fields.texts("until"));
    while (!missing.isEmpty() && System.nanoTime() < deadline) {
      for (MessageExt message : consumer.poll(200)) {
        Map<String, Object> told = told(message);
        missing.remove(told.get("body"));
        inbox.put(told);
      }
    }
    return inbox.take(fields.texts("until"), 0);
  }

  private static MessageQueue queue(DefaultLitePullConsumer consumer, Fields fields) throws MQClientException {
    return consumer.fetchMessageQueues(fields.text("topic")).stream()
        .filter(each -> each.getQueueId() == fields.number("queue", 0))
        .findFirst()
        .orElseThrow();
  }

  private static Object seek(Fields fields) throws Exception {
    DefaultLitePullConsumer consumer = PULLED.get(fields.text("id"));
    if (fields.any("offset") instanceof Number offset) {
      consumer.seek(queue(consumer, fields), offset.longValue());
    } else if ("end".equals(fields.any("offset"))) {
      consumer.seekToEnd(queue(consumer, fields));
    } else {
      consumer.seekToBegin(queue(consumer, fields));
    }
    return null;
  }

  private static Object commit(Fields fields) throws Exception {
    DefaultLitePullConsumer consumer = PULLED.get(fields.text("id"));
    if (fields.has("offset")) {
      consumer.commit(Map.of(queue(consumer, fields), (long) fields.number("offset", 0)), true);
    } else {
      consumer.commit(consumer.assignment(), true);
    }
    return null;
  }

  /** What has that key, once there are `count` messages: the original's index is a moment late. */
  private static Object query(Fields fields) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(fields.number("seconds", 20));
    while (true) {
      try {
        List<MessageExt> found =
            producer().queryMessage(fields.text("topic"), fields.text("key"), 32, 0, Long.MAX_VALUE).getMessageList();
        if (found.size() >= fields.number("count", 0)) {
          return found.stream().map(RocketMqClassic::told).toList();
        }
      } catch (MQClientException error) {
        if (fields.number("count", 0) == 0 || System.nanoTime() > deadline) {
          throw error;
        }
      }
      Thread.sleep(50);
    }
  }

  /** Of each queue: the first offset, the next one, and the first one at or after `at_ms`. */
  private static Object offsets(Fields fields) throws Exception {
    List<Object> result = new ArrayList<>();
    for (MessageQueue queue : producer().fetchPublishMessageQueues(fields.text("topic"))) {
      List<Long> each = new ArrayList<>(List.of(producer().minOffset(queue), producer().maxOffset(queue)));
      if (fields.has("at_ms")) {
        each.add(producer().searchOffset(queue, ((Number) fields.any("at_ms")).longValue()));
      }
      result.add(each);
    }
    return result;
  }
}
