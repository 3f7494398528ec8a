package clients;

import java.util.HashMap;
import java.util.Map;

/** How many times more a listener fails each body. */
final class Failures {

  private final Map<String, Integer> left = new HashMap<>();

  Failures(Map<String, Object> given) {
    given.forEach((body, count) -> left.put(body, ((Number) count).intValue()));
  }

  synchronized boolean next(String body) {
    return left.merge(body, -1, Integer::sum) >= 0;
  }
}
