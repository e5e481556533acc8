import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools, one after the other, in one virtual machine.
 *
 * <p>Input: one call per line, as class and arguments with tabs between them. Output: what the tool prints, then a line
 * "= CODE" with its exit code.
 */
public final class KafkaTools {
    private KafkaTools() {}

    /** The first code that the tool wanted to end with; some catch what ends them here, and want another one. */
    private static Integer exitCode;

    private static final class Ended extends RuntimeException {}

    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                exitCode = code;
            }
            throw new Ended();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            System.out.println("\n= " + run(words[0], java.util.Arrays.copyOfRange(words, 1, words.length)));
            System.out.flush();
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
            throw error;
        }
    }
}
