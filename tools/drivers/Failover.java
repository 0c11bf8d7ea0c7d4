// Connector/J: java -cp .:mysql-connector-j.jar Failover HOST:PORT,HOST:PORT PASSWORD MILLISECONDS
import java.sql.*;

public class Failover {
    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:mysql://" + arguments[0] + "/d?failOverReadOnly=false&sslMode=DISABLED&allowPublicKeyRetrieval=true"
            + "&connectTimeout=1000&secondsBeforeRetrySource=0&queriesBeforeRetrySource=0";
        Connection connection = null;
        long last = 0, gap = 0, end = System.currentTimeMillis() + Long.parseLong(arguments[2]);
        int errors = 0;
        String first = null;
        while (System.currentTimeMillis() < end) {
            try {
                if (connection == null || connection.isClosed()) {
                    connection = DriverManager.getConnection(url, "app", arguments[1]);
                }
                try (Statement statement = connection.createStatement()) {
                    statement.executeUpdate("INSERT INTO d.t (k) VALUES (1)");
                }
                long now = System.currentTimeMillis();
                if (last > 0) gap = Math.max(gap, now - last);
                last = now;
            } catch (SQLException error) {
                errors++;
                if (first == null) first = error.getSQLState() + " " + error.getMessage().split("\n")[0];
                try {
                    if (connection != null) connection.close();
                } catch (SQLException closing) {
                    // It is gone already.
                }
                connection = null;
            }
            Thread.sleep(20);
        }
        // Without a commit until the end, it has not come back.
        System.out.println("gap_ms=" + (end - last > 2000 ? "never" : String.valueOf(gap)) + " errors=" + errors + " first=" + first);
    }
}
