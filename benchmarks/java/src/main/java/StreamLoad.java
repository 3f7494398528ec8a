import com.rabbitmq.stream.Address;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.Producer;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Lone messages at a steady rate with RabbitMQ's stream client, set up as stream-perf-test sets it up: a connection per
 * producer and per consumer. (stream-perf-test itself is not on Maven Central.)
 *
 * <p>Arguments: host, port, prefix of the streams' names (followed by 0, 1, ...), streams, messages a second, seconds of
 * warm-up, seconds. Prints "measuring", "measured" and a line of figures: percentiles in milliseconds and the backlog.
 */
public final class StreamLoad {
  private static final int BODY_BYTES = 20;

  public static void main(String[] arguments) throws Exception {
    Address address = new Address(arguments[0], Integer.parseInt(arguments[1]));
    String prefix = arguments[2];
    int streams = Integer.parseInt(arguments[3]);
    int rate = Integer.parseInt(arguments[4]);
    double warmUpSeconds = Double.parseDouble(arguments[5]);
    double seconds = Double.parseDouble(arguments[6]);
    Latencies confirms = new Latencies((int) (rate * (seconds + 5)));
    Latencies deliveries = new Latencies((int) (rate * (seconds + 5)));
    AtomicLong sent = new AtomicLong();
    AtomicLong delivered = new AtomicLong();
    AtomicLong failed = new AtomicLong();

    Environment environment =
        Environment.builder()
            .host(address.host())
            .port(address.port())
            .addressResolver(any -> address)
            .maxProducersByConnection(1)
            .maxConsumersByConnection(1)
            .build();
    List<Producer> producers = new ArrayList<>();
    for (int number = 0; number < streams; number++) {
      environment.consumerBuilder()
          .stream(prefix + number)
          .offset(OffsetSpecification.first())
          .messageHandler(
              (context, message) -> {
                delivered.incrementAndGet();
                deliveries.add(ByteBuffer.wrap(message.getBodyAsBinary()).getLong());
              })
          .build();
      producers.add(environment.producerBuilder().stream(prefix + number).build());
    }

    ScheduledExecutorService scheduler = Executors.newScheduledThreadPool(1);
    long interval = 1_000_000_000L * streams / rate;
    for (int number = 0; number < streams; number++) {
      Producer producer = producers.get(number);
      Runnable send =
          () -> {
            long now = System.nanoTime();
            byte[] body = ByteBuffer.allocate(BODY_BYTES).putLong(now).array();
            sent.incrementAndGet();
            producer.send(
                producer.messageBuilder().addData(body).build(),
                status -> {
                  if (status.isConfirmed()) {
                    confirms.add(now);
                  } else {
                    failed.incrementAndGet();
                  }
                });
          };
      scheduler.scheduleAtFixedRate(send, interval * number / streams, interval, TimeUnit.NANOSECONDS);
    }

    Thread.sleep((long) (1000 * warmUpSeconds));
    confirms.open();
    deliveries.open();
    System.out.println("measuring");
    Thread.sleep((long) (1000 * seconds));
    long backlog = sent.get() - delivered.get();
    System.out.println("measured");
    scheduler.shutdown();
    scheduler.awaitTermination(5, TimeUnit.SECONDS);
    for (int wait = 0; wait < 50 && delivered.get() < sent.get(); wait++) {
      Thread.sleep(100);
    }
    if (failed.get() > 0 || delivered.get() != sent.get()) {
      System.err.printf("sent %d, delivered %d, refused %d%n", sent.get(), delivered.get(), failed.get());
      System.exit(1);
    }
    System.out.printf(
        "{\"confirm_p50_ms\": %f, \"confirm_p99_ms\": %f, \"delivery_p50_ms\": %f, \"delivery_p99_ms\": %f, "
            + "\"backlog\": %d}%n",
        confirms.percentile(0.5),
        confirms.percentile(0.99),
        deliveries.percentile(0.5),
        deliveries.percentile(0.99),
        backlog);
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  /** Times since messages were sent; only of messages sent after {@code open}. */
  private static final class Latencies {
    private final long[] times;
    private final AtomicInteger count = new AtomicInteger();
    private volatile long from = Long.MAX_VALUE;

    Latencies(int capacity) {
      times = new long[capacity];
    }

    void open() {
      from = System.nanoTime();
    }

    void add(long sentAt) {
      long now = System.nanoTime();
      int place = sentAt >= from ? count.getAndIncrement() : times.length;
      if (place < times.length) {
        times[place] = now - sentAt;
      }
    }

    double percentile(double share) {
      long[] sorted = Arrays.copyOf(times, Math.min(count.get(), times.length));
      Arrays.sort(sorted);
      return sorted[(int) (share * sorted.length)] / 1e6;
    }
  }
}
