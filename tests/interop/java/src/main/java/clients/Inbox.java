package clients;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;

/** What a consumer has received and nobody has taken yet. */
final class Inbox {

  private final List<Map<String, Object>> messages = new ArrayList<>();
  private String closed;

  synchronized void put(Map<String, Object> message) {
    messages.add(message);
    notifyAll();
  }

  /** The consumer was ended by the other side. */
  synchronized void close(String reason) {
    closed = reason;
    notifyAll();
  }

  /** Everything received since the last call, once all bodies of `until` are among it. */
  synchronized List<Map<String, Object>> take(List<String> until, int seconds) throws Exception {
    long deadline = System.nanoTime() + seconds * 1_000_000_000L;
    while (!bodies().containsAll(until)) {
      if (closed != null) {
        throw new IllegalStateException("closed: " + closed);
      }
      await(deadline, "did not receive " + until);
    }
    List<Map<String, Object>> taken = new ArrayList<>(messages);
    messages.clear();
    return taken;
  }

  /** Why the other side ended the consumer, once it has. */
  synchronized String end(int seconds) throws Exception {
    long deadline = System.nanoTime() + seconds * 1_000_000_000L;
    while (closed == null) {
      await(deadline, "was not closed");
    }
    return closed;
  }

  private void await(long deadline, String what) throws Exception {
    long left = (deadline - System.nanoTime()) / 1_000_000;
    if (left <= 0) {
      throw new TimeoutException(what + ", but " + bodies());
    }
    wait(left);
  }

  private Set<String> bodies() {
    return messages.stream().map(message -> (String) message.get("body")).collect(Collectors.toSet());
  }
}
