//! How much the server's memory holds.

use spate_connection::Connection;
use spate_replica::Result;

/// For how many row changes the server's memory holds what is read ahead, until it is needed.
///
/// A server puts pages that were read once into the older part of its memory, three eighths of it, and a row change reads about three. So
/// one row change for sixteen pages takes half of that part.
pub(crate) fn rows_in_memory(connection: &mut Connection) -> Result<u64> {
    const PAGES_FOR_A_ROW: u64 = 16;
    const ROWS_MIN: u64 = 100;
    let pages = connection.query("SELECT @@innodb_buffer_pool_size DIV @@innodb_page_size")?.single_text();
    let pages: u64 = pages.and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Ok((pages / PAGES_FOR_A_ROW).max(ROWS_MIN))
}
