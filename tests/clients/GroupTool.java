import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/** Runs Kafka's consumer-groups tool once for each line of arguments, in one virtual machine. */
public class GroupTool {
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
            String[] words = ("--bootstrap-server " + args[0] + " " + line).split(" ");
            try {
                ConsumerGroupCommand.main(words);
            } catch (Ended ended) {
                System.out.println(ended.getMessage());
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
