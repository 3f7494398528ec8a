import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Classic clients against one name server, told what to do by lines: `first TOPIC`, `register TOPIC GROUP COUNT`,
 * `produce TOPIC MESSAGES THREADS BATCH`, `consume TOPIC GROUP COUNT MESSAGES`, `quit`. Each is answered by a line:
 * seconds and a number of messages, or of groups for `register`; for `consume` also the seconds of pauses in which no
 * group got anything. Message i has the property `bucket` = i modulo 100; group k of COUNT takes its share of the
 * buckets.
 */
public final class RocketMqLoad {
  private static final byte[] BODY = new byte[1024];
  private static final String FILLER = "x".repeat(120);
  private static final int FILLERS = 8;
  private static final long PAUSE_NS = 1_000_000_000L;
  private static final long REGISTER_NS = 30_000_000_000L;

  private static String names;
  private static int clients;

  public static void main(String[] arguments) throws Exception {
    names = arguments[0];
    DefaultMQProducer producer = new DefaultMQProducer("load");
    producer.setNamesrvAddr(names);
    producer.setCompressMsgBodyOverHowmuch(1 << 22);
    producer.setSendMsgTimeout(20_000);
    producer.start();
    try (Scanner lines = new Scanner(System.in)) {
      while (lines.hasNextLine()) {
        String[] words = lines.nextLine().split(" ");
        String answer = switch (words[0]) {
          case "first" -> first(producer, words[1]);
          case "register" -> register(words[1], words[2], Integer.parseInt(words[3]));
          case "produce" -> produce(producer, words[1], number(words[2]), number(words[3]), number(words[4]));
          case "consume" -> consume(words[1], words[2], number(words[3]), number(words[4]));
          default -> "";
        };
        System.out.println(answer);
        if (answer.isEmpty()) {
          break;
        }
      }
    }
    System.exit(0);
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }

  private static Message message(String topic, int number) {
    Message message = new Message(topic, "tag", BODY);
    message.putUserProperty("kind", number < 0 ? "first" : "order");
    message.putUserProperty("bucket", Integer.toString(Math.floorMod(number, 100)));
    for (int filler = 0; filler < FILLERS; filler++) {
      message.putUserProperty("filler" + filler, FILLER);
    }
    return message;
  }

  /** A message that no group takes, by which the topic is made. */
  private static String first(DefaultMQProducer producer, String topic) throws Exception {
    producer.send(message(topic, -1));
    return "0 1";
  }

  private static DefaultMQPushConsumer consumer(String topic, String group, int number, int count) throws Exception {
    int width = 100 / count;
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group + number);
    consumer.setNamesrvAddr(names);
    consumer.setInstanceName("load" + clients++);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    int low = number * width;
    String filter = "bucket BETWEEN " + low + " AND " + (low + width - 1) + " AND kind = 'order'";
    consumer.subscribe(topic, MessageSelector.bySql(filter));
    return consumer;
  }

  /**
   * The groups come and go, so that the broker knows their expressions before messages come. A client goes when it has
   * all queues of the topic and the broker was told so: the original may take its heartbeat behind its farewell else,
   * and keeps half of the queues for it for two minutes. The number is that of clients that came so far in time.
   */
  private static String register(String topic, String group, int count) throws Exception {
    long start = System.nanoTime();
    List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      DefaultMQPushConsumer consumer = consumer(topic, group, number, count);
      consumer.registerMessageListener(
          (MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
      consumer.start();
      consumers.add(consumer);
    }
    int ready = 0;
    for (DefaultMQPushConsumer consumer : consumers) {
      boolean isReady = isReady(consumer, topic);
      while (!isReady && System.nanoTime() - start < REGISTER_NS) {
        Thread.sleep(50);
        isReady = isReady(consumer, topic);
      }
      ready += isReady ? 1 : 0;
      consumer.shutdown();
    }
    return (System.nanoTime() - start) / 1e9 + " " + ready;
  }

  /** Whether a client has all queues of the topic, and the broker knows what it subscribes to since then. */
  private static boolean isReady(DefaultMQPushConsumer consumer, String topic) throws Exception {
    DefaultMQPushConsumerImpl made = consumer.getDefaultMQPushConsumerImpl();
    Set<MessageQueue> queues = made.fetchSubscribeMessageQueues(topic);
    return made.getRebalanceImpl().getProcessQueueTable().keySet().containsAll(queues)
        && made.getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
  }

  private static String produce(DefaultMQProducer producer, String topic, int total, int threads, int batch)
      throws Exception {
    List<Thread> senders = new ArrayList<>();
    AtomicInteger failures = new AtomicInteger();
    long start = System.nanoTime();
    for (int thread = 0; thread < threads; thread++) {
      int begin = thread;
      Thread sender = new Thread(() -> {
        try {
          List<Message> together = new ArrayList<>();
          for (int number = begin; number < total; number += threads) {
            if (batch == 1) {
              producer.send(message(topic, number));
              continue;
            }
            together.add(message(topic, number));
            if (together.size() == batch || number + threads >= total) {
              producer.send(together);
              together = new ArrayList<>();
            }
          }
        } catch (Exception error) {
          error.printStackTrace();
          failures.incrementAndGet();
        }
      });
      senders.add(sender);
      sender.start();
    }
    for (Thread sender : senders) {
      sender.join();
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    return seconds + " " + (failures.get() == 0 ? total : -1);
  }

  /**
   * From the first message that a group gets to the last that any gets. A client whose pull is refused, as its heartbeat
   * came later, waits for three seconds: what all of them waited together is told beside it.
   */
  private static String consume(String topic, String group, int count, int total) throws Exception {
    AtomicLong first = new AtomicLong();
    AtomicLong last = new AtomicLong();
    AtomicLong paused = new AtomicLong();
    AtomicInteger left = new AtomicInteger(total);
    CountDownLatch done = new CountDownLatch(1);
    List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      DefaultMQPushConsumer consumer = consumer(topic, group, number, count);
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        long now = System.nanoTime();
        first.compareAndSet(0, now);
        long before = last.getAndAccumulate(now, Math::max);
        if (before > 0 && now - before > PAUSE_NS) {
          paused.addAndGet(now - before);
        }
        if (left.addAndGet(-messages.size()) <= 0) {
          done.countDown();
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      consumers.add(consumer);
    }
    System.out.println("begins");
    List<Thread> starting = new ArrayList<>();
    for (DefaultMQPushConsumer consumer : consumers) {
      Thread thread = new Thread(() -> {
        try {
          consumer.start();
        } catch (Exception error) {
          error.printStackTrace();
        }
      });
      starting.add(thread);
      thread.start();
    }
    for (Thread thread : starting) {
      thread.join();
    }
    // A client leaves out a heartbeat that it would send beside another one, and then is refused for half a minute.
    boolean isDone = false;
    for (int wait = 0; wait < 200 && !isDone; wait++) {
      isDone = done.await(300, java.util.concurrent.TimeUnit.MILLISECONDS);
      for (DefaultMQPushConsumer consumer : consumers) {
        consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
      }
    }
    System.out.println("ended");
    for (DefaultMQPushConsumer consumer : consumers) {
      consumer.shutdown();
    }
    return (last.get() - first.get()) / 1e9 + " " + (total - left.get()) + " " + paused.get() / 1e9;
  }
}
