// mysql2: node failover.js HOST:PORT,HOST:PORT PASSWORD MILLISECONDS. It has no strings of several hosts, but clusters of pools.
const mysql = require('mysql2');
const [hosts, password, milliseconds] = process.argv.slice(2);
const cluster = mysql.createPoolCluster({ canRetry: true, removeNodeErrorCount: 1, restoreNodeTimeout: 500, defaultSelector: 'ORDER' });
hosts.split(',').forEach((address, number) => {
  const [host, port] = address.split(':');
  cluster.add('n' + number, { host, port: Number(port), user: 'app', password, database: 'd', connectTimeout: 1000 });
});
const end = Date.now() + Number(milliseconds);
let last = 0, gap = 0, errors = 0, first = null;
const failed = (error) => {
  errors++;
  first = first || error.code + ': ' + error.message;
  setTimeout(step, 20);
};
const step = () => {
  if (Date.now() > end) {
    // Without a commit until the end, it has not come back.
    console.log(`gap_ms=${end - last > 2000 ? 'never' : gap} errors=${errors} first=${first}`);
    process.exit(0);
  }
  cluster.getConnection('*', 'ORDER', (error, connection) => {
    if (error) return failed(error);
    connection.query('INSERT INTO d.t (k) VALUES (1)', (error) => {
      if (error) {
        // Its next connection may be to another server.
        connection.destroy();
        return failed(error);
      }
      connection.release();
      const now = Date.now();
      if (last) gap = Math.max(gap, now - last);
      last = now;
      setTimeout(step, 20);
    });
  });
};
step();
