package clients;

import clients.Lines.Fields;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/** org.apache.qpid:qpid-jms-client, driven by lines of JSON. */
public final class Jms {

  private static Connection connection;
  private static Session session;

  private Jms() {}

  public static void main(String[] arguments) throws Exception {
    Map<String, Lines.Command> commands = new HashMap<>();
    commands.put("connect", Jms::connect);
    commands.put("send", Jms::send);
    commands.put("receive", Jms::receive);
    commands.put("browse", Jms::browse);
    commands.put("close", Jms::close);
    Lines.serve(commands);
  }

  private static Object connect(Fields fields) throws JMSException {
    String address = "amqp://" + fields.text("host") + ":" + fields.number("port", 5672);
    JmsConnectionFactory factory = new JmsConnectionFactory(address);
    factory.setUsername(fields.text("user", "guest"));
    factory.setPassword(fields.text("password", "guest"));
    connection = factory.createConnection();
    session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    connection.start();
    return null;
  }

  /** Messages of texts; one without a body is JMS's plain message, which has none. */
  private static Object send(Fields fields) throws JMSException {
    try (MessageProducer producer = session.createProducer(session.createQueue(fields.text("address")))) {
      producer.setDeliveryMode(DeliveryMode.PERSISTENT);
      for (Fields given : fields.list("messages")) {
        Message message = given.has("body") ? session.createTextMessage(given.text("body")) : session.createMessage();
        for (Map.Entry<String, Object> property : given.map("properties").entrySet()) {
          message.setObjectProperty(property.getKey(), property.getValue());
        }
        producer.send(message);
      }
    }
    return null;
  }

  private static Map<String, Object> told(Message message) throws JMSException {
    Map<String, Object> properties = new HashMap<>();
    for (Enumeration<?> names = message.getPropertyNames(); names.hasMoreElements(); ) {
      String name = (String) names.nextElement();
      properties.put(name, message.getObjectProperty(name));
    }
    Map<String, Object> result = new HashMap<>();
    result.put("body", message.isBodyAssignableTo(String.class) ? message.getBody(String.class) : null);
    result.put("properties", properties);
    return result;
  }

  private static Object receive(Fields fields) throws JMSException {
    Queue queue = session.createQueue(fields.text("address"));
    List<Object> found = new ArrayList<>();
    try (MessageConsumer consumer = session.createConsumer(queue, fields.text("selector"))) {
      while (found.size() < fields.number("count", 1)) {
        Message message = consumer.receive(1000L * fields.number("seconds", 20));
        if (message == null) {
          break;
        }
        found.add(told(message));
      }
    }
    return found;
  }

  private static Object browse(Fields fields) throws JMSException {
    Queue queue = session.createQueue(fields.text("address"));
    List<Object> found = new ArrayList<>();
    try (QueueBrowser browser = session.createBrowser(queue, fields.text("selector"))) {
      for (Enumeration<?> messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
        found.add(told((Message) messages.nextElement()));
      }
    }
    return found;
  }

  private static Object close(Fields fields) throws JMSException {
    connection.close();
    return null;
  }
}
