import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools, one after the other, in one virtual machine.
 *
 * <p>Input: one call per line, with tabs between its words: "<" and the tool's input, in which \n is a new line; class;
 * arguments. Output: what the tool prints, then a line "= CODE" with its exit code.
 */
public final class KafkaTools {
    private KafkaTools() {}

    /** The first code that the tool wanted to end with; some catch what ends them here, and want another one. */
    private static Integer exitCode;

    private static final class Ended extends RuntimeException {}

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        PrintStream nothing = new PrintStream(OutputStream.nullOutputStream());
        System.setErr(output);
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                exitCode = code;
            }
            // What a tool prints when it would have ended nobody sees.
            System.setOut(nothing);
            System.setErr(nothing);
            throw new Ended();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            System.setIn(new ByteArrayInputStream(words[0].substring(1).replace("\\n", "\n").getBytes(UTF_8)));
            int code = run(words[1], java.util.Arrays.copyOfRange(words, 2, words.length));
            System.setOut(output);
            System.setErr(output);
            output.println("\n= " + code);
            output.flush();
        }
    }

    private static int run(String name, String[] arguments) throws Exception {
        exitCode = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return exitCode == null ? 0 : exitCode;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                return exitCode;
            }
            error.getCause().printStackTrace();
            return 1;
        }
    }
}
