import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools, one for each line (main class, arguments), in one virtual machine, and shows
 * the status that each ends with. A tool goes on behind its exit, since some catch whatever is
 * thrown there.
 */
public class KafkaTools {
    private static Integer status;

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> { status = status == null ? code : status; });
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println("\f" + line);
            String[] words = line.split(" ");
            String[] rest = Arrays.copyOfRange(words, 1, words.length);
            status = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            } catch (InvocationTargetException thrown) {
                thrown.getCause().printStackTrace();
                status = status == null ? 1 : status;
            }
            System.out.println("exit " + (status == null ? 0 : status));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
