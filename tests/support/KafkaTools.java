import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's tools, one for each line (main class, arguments), in one virtual machine. */
public class KafkaTools {
    static final class Ended extends RuntimeException {
        Ended(int status) {
            super("exit " + status);
        }
    }

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println("\f" + line);
            String[] words = line.split(" ");
            String[] rest = Arrays.copyOfRange(words, 1, words.length);
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            } catch (InvocationTargetException thrown) {
                System.out.println(thrown.getCause().getMessage());
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
