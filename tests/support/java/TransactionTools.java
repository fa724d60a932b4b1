import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Base64;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.TransactionsCommand;

/**
 * kafka-transactions.sh many times over, in one JVM. Standard input: one run a line, its arguments separated by tabs.
 * Standard output: for each the exit code, a tab, and what it printed (both streams), in base64.
 * Written for Janino, the compiler that PySpark ships.
 */
public class TransactionTools {
    static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] ignored) throws Exception {
        Exit.Procedure end = new Exit.Procedure() {
            public void execute(int code, String message) {
                throw new Ended(code);
            }
        };
        Exit.setExitProcedure(end);
        PrintStream answers = System.out;
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String run = runs.readLine(); run != null; run = runs.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(printed, true, "UTF-8");
            System.setOut(to);
            System.setErr(to);
            int code = 0;
            try {
                TransactionsCommand.main(run.split("\t"));
            } catch (Ended ended) {
                code = ended.code;
            } catch (Throwable failed) {
                code = 1;
                failed.printStackTrace(to);
            }
            to.flush();
            answers.println(code + "\t" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }
}
