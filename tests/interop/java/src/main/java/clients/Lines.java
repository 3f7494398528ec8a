package clients;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.ToNumberPolicy;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Takes commands as lines of JSON on standard input and answers each, in order, with one line of JSON on standard
 * output: {"ok": result} or {"error": text}. Everything else goes to standard error.
 */
final class Lines {

  interface Command {
    Object run(Fields fields) throws Exception;
  }

  /** The fields of one command; numbers are Long or Double. */
  record Fields(Map<String, Object> values) {

    String text(String name) {
      return (String) values.get(name);
    }

    String text(String name, String otherwise) {
      return (String) values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
      return ((Number) values.getOrDefault(name, otherwise)).intValue();
    }

    boolean flag(String name) {
      return Boolean.TRUE.equals(values.get(name));
    }

    boolean has(String name) {
      return values.get(name) != null;
    }

    Object any(String name) {
      return values.get(name);
    }

    @SuppressWarnings("unchecked")
    List<String> texts(String name) {
      return (List<String>) values.get(name);
    }

    String[] array(String name) {
      return texts(name).toArray(new String[0]);
    }

    @SuppressWarnings("unchecked")
    Map<String, Object> map(String name) {
      return (Map<String, Object>) values.getOrDefault(name, Map.of());
    }

    @SuppressWarnings("unchecked")
    List<Fields> list(String name) {
      return ((List<Map<String, Object>>) values.get(name)).stream().map(Fields::new).toList();
    }
  }

  private static final Gson GSON =
      new GsonBuilder().serializeNulls().setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE).create();

  private Lines() {}

  /** Serve the commands until standard input ends, then end the process. */
  @SuppressWarnings("unchecked")
  static void serve(Map<String, Command> commands) throws Exception {
    PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      Fields fields = new Fields(GSON.fromJson(line, Map.class));
      Map<String, Object> reply = new LinkedHashMap<>();
      try {
        reply.put("ok", commands.get(fields.text("do")).run(fields));
      } catch (Exception error) {
        error.printStackTrace();
        reply.put("error", described(error));
      }
      replies.println(GSON.toJson(reply));
    }
    System.exit(0);
  }

  private static String described(Throwable error) {
    String text = error.getClass().getSimpleName() + ": " + error.getMessage();
    return error.getCause() == null ? text : text + " <- " + described(error.getCause());
  }
}
