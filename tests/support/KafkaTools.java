import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's tools, one for each line (main class, arguments, perhaps "&lt;FILE" as its standard
 * input), in one virtual machine, and shows the status that each ends with.
 */
public class KafkaTools {
    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println("\f" + line);
            int status = new Tool(line.split(" ")).status();
            // Some end within a line.
            System.out.println("\nexit " + status);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** It ends where it asks for its exit: its thread stops there for good, since some tools catch
     * whatever is thrown, and would go on. */
    private static class Tool {
        private final CompletableFuture<Integer> ended = new CompletableFuture<>();
        private final String main;
        private final String[] rest;

        Tool(String[] words) throws Exception {
            String last = words[words.length - 1];
            boolean hasInput = last.startsWith("<");
            main = words[0];
            rest = Arrays.copyOfRange(words, 1, words.length - (hasInput ? 1 : 0));
            System.setIn(
                hasInput ? new FileInputStream(last.substring(1)) : InputStream.nullInputStream());
        }

        int status() throws Exception {
            Exit.setExitProcedure((code, message) -> {
                ended.complete(code);
                while (true) {
                    LockSupport.park();
                }
            });
            Thread thread = new Thread(this::run, main);
            thread.setDaemon(true);
            thread.start();
            return ended.get();
        }

        private void run() {
            try {
                Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) rest);
                ended.complete(0);
            } catch (InvocationTargetException thrown) {
                thrown.getCause().printStackTrace();
                ended.complete(1);
            } catch (ReflectiveOperationException broken) {
                broken.printStackTrace();
                ended.complete(1);
            }
        }
    }
}
