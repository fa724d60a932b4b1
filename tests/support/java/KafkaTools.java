import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Base64;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * A tool of Kafka many times over, in one JVM; its class is the only argument. Standard input: one run a line, its
 * arguments separated by tabs. Standard output: for each the exit code, a tab, and what it printed (both streams), in
 * base64.
 * Written for Janino, the compiler that PySpark ships.
 */
public class KafkaTools {
    static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure end = new Exit.Procedure() {
            public void execute(int code, String message) {
                throw new Ended(code);
            }
        };
        Exit.setExitProcedure(end);
        Method tool = Class.forName(arguments[0]).getMethod("main", new Class[] {String[].class});
        PrintStream answers = System.out;
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String run = runs.readLine(); run != null; run = runs.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(printed, true, "UTF-8");
            System.setOut(to);
            System.setErr(to);
            int code = 0;
            try {
                tool.invoke(null, new Object[] {run.split("\t")});
            } catch (InvocationTargetException thrown) {
                Throwable cause = thrown.getCause();
                code = cause instanceof Ended ? ((Ended) cause).code : 1;
                if (!(cause instanceof Ended))
                    cause.printStackTrace(to);
            }
            to.flush();
            answers.println(code + "\t" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }
}
