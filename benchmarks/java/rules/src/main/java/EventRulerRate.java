import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import software.amazon.event.ruler.Machine;

/**
 * The rate of Event Ruler: {@code EventRulerRate RULES EVENTS CHECKED ROUND_SECONDS ROUNDS BUILD_SECONDS}.
 *
 * <p>RULES has an event pattern in each line, EVENTS a JSON object. Prints one JSON object: seconds to build, bytes of
 * the heap for each rule, the number of matches of the first CHECKED events, and the events of each round a second of
 * processor time, garbage collection included, after a first round in which the JIT compiles. Rules that were not added after BUILD_SECONDS are left out, and the
 * number of those that were is printed.
 */
final class EventRulerRate {
  private static final OperatingSystemMXBean PROCESS =
      (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

  public static void main(String[] arguments) throws Exception {
    List<String> rules = Files.readAllLines(Path.of(arguments[0]));
    List<String> events = Files.readAllLines(Path.of(arguments[1]));
    int checked = Integer.parseInt(arguments[2]);
    double roundSeconds = Double.parseDouble(arguments[3]);
    int rounds = Integer.parseInt(arguments[4]);
    double buildSeconds = Double.parseDouble(arguments[5]);
    long before = usedBytes();
    long start = PROCESS.getProcessCpuTime();
    Machine machine = new Machine();
    int added = 0;
    for (String rule : rules) {
      if ((PROCESS.getProcessCpuTime() - start) / 1e9 > buildSeconds) {
        break;
      }
      machine.addRule(Integer.toString(added), rule);
      added++;
    }
    double built = (PROCESS.getProcessCpuTime() - start) / 1e9;
    long bytes = (usedBytes() - before) / added;
    long matches = 0;
    for (String event : events.subList(0, checked)) {
      matches += machine.rulesForJSONEvent(event).size();
    }
    StringBuilder rates = new StringBuilder();
    int next = 0;
    long found = 0;
    for (int round = 0; round <= rounds; round++) {
      long began = PROCESS.getProcessCpuTime();
      long count = 0;
      while (PROCESS.getProcessCpuTime() - began < roundSeconds * 1e9) {
        found += machine.rulesForJSONEvent(events.get(next)).size();
        next = next + 1 == events.size() ? 0 : next + 1;
        count++;
      }
      if (round > 0) {
        double rate = count / ((PROCESS.getProcessCpuTime() - began) / 1e9);
        rates.append(round > 1 ? ", " : "").append(String.format(Locale.ROOT, "%.1f", rate));
      }
    }
    System.out.printf(
        Locale.ROOT,
        "{\"rules\": %d, \"build_s\": %.3f, \"bytes_per_rule\": %d, \"matches\": %d, \"found\": %d, \"rates\": [%s]}%n",
        added,
        built,
        bytes,
        matches,
        found,
        rates);
  }

  private static long usedBytes() {
    for (int round = 0; round < 3; round++) {
      System.gc();
    }
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }
}
