import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * Reads frames of requests and answers with kafka-clients, and writes what it read and how it would write it itself.
 *
 * <p>Input: one frame per line, in hex and without its length; a request as "request HEX", an answer as "answer HEX",
 * which belongs to the request in front of it. Output: one line of JSON per frame: key, version, clientId, value (by
 * Kafka's own converter) and frame.
 */
public final class ControlMessages {
    private ControlMessages() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        RequestHeader header = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            ByteBuffer frame = ByteBuffer.wrap(HexFormat.of().parseHex(words[1]));
            ApiMessage message;
            ByteBuffer written;
            if (words[0].equals("request")) {
                header = RequestHeader.parse(frame);
                AbstractRequest request =
                    AbstractRequest.parseRequest(header.apiKey(), header.apiVersion(), frame).request;
                message = request.data();
                written = request.serializeWithHeader(header);
            } else {
                AbstractResponse answer = AbstractResponse.parseResponse(frame, header);
                message = answer.data();
                written = answerFrame(answer, header);
            }
            if (frame.hasRemaining()) {
                throw new IllegalStateException(frame.remaining() + " bytes were not read: " + line);
            }
            ObjectNode told = JsonNodeFactory.instance.objectNode();
            told.put("key", header.apiKey().id);
            told.put("version", header.apiVersion());
            told.put("clientId", header.clientId());
            told.set("value", json(message, header.apiVersion()));
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            told.put("frame", HexFormat.of().formatHex(bytes));
            System.out.println(told);
        }
    }

    /** What a broker sends; the method that gives it is for Kafka's own package only. */
    private static ByteBuffer answerFrame(AbstractResponse answer, RequestHeader header) throws Exception {
        var method = AbstractResponse.class.getDeclaredMethod(
            "serializeWithHeader", org.apache.kafka.common.requests.ResponseHeader.class, short.class);
        method.setAccessible(true);
        return (ByteBuffer) method.invoke(answer, header.toResponseHeader(), header.apiVersion());
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        return (JsonNode) converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
    }
}
