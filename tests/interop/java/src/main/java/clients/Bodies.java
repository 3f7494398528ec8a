package clients;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** How the body of a message is told: its text, or of a long one the length and the MD5. */
final class Bodies {

  private static final int LONG_BYTES = 1000;

  private Bodies() {}

  static String told(byte[] body) {
    if (body.length <= LONG_BYTES) {
      return new String(body, StandardCharsets.UTF_8);
    }
    try {
      byte[] digest = MessageDigest.getInstance("MD5").digest(body);
      return body.length + " " + String.format("%032x", new BigInteger(1, digest));
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
