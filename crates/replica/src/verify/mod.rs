//! Compares a source and a replica, table by table, at exactly the same position.
