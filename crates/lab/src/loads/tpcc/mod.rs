//! A load like that of TPC-C: its tables, its five transactions in their usual mix, and its consistency conditions ([`books`]). It is no benchmark by
//! the rules of the TPC: nobody waits between transactions, and no figures of it are comparable with published ones.
//!
//! In each schema there are `tables` warehouses of ten districts with `rows` customers each, and 33 items for each of those customers: with 3,000 it is
//! TPC-C's size. Source: TPC Benchmark C, Standard Specification, revision 5.11, clauses 1 to 4.

pub mod books;
mod fill;
mod transactions;

use super::{Load, LoadSize, Worker};
use crate::Result;
use crate::random::Random;
use crate::sql::Session;

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u64 = 10;
/// Of the orders that there are from the beginning, those that are not delivered: the last three in ten.
const UNDELIVERED_IN_TEN: u64 = 3;

/// The tables. As in TPC-C, payments are noted in a table without a key.
const TABLES: [&str; 9] = [
    "CREATE TABLE warehouse (w_id SMALLINT NOT NULL, w_name VARCHAR(10) NOT NULL, w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(14,2) NOT NULL,
     PRIMARY KEY (w_id)) ENGINE=InnoDB",
    "CREATE TABLE district (d_w_id SMALLINT NOT NULL, d_id TINYINT NOT NULL, d_name VARCHAR(10) NOT NULL, d_tax DECIMAL(4,4) NOT NULL,
     d_ytd DECIMAL(14,2) NOT NULL, d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id, d_id)) ENGINE=InnoDB",
    "CREATE TABLE customer (c_w_id SMALLINT NOT NULL, c_d_id TINYINT NOT NULL, c_id INT NOT NULL, c_first VARCHAR(16) NOT NULL,
     c_last VARCHAR(16) NOT NULL, c_credit CHAR(2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL, c_balance DECIMAL(14,2) NOT NULL,
     c_ytd_payment DECIMAL(14,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data TEXT NOT NULL,
     PRIMARY KEY (c_w_id, c_d_id, c_id), KEY by_name (c_w_id, c_d_id, c_last, c_first)) ENGINE=InnoDB",
    "CREATE TABLE history (h_c_id INT NOT NULL, h_c_d_id TINYINT NOT NULL, h_c_w_id SMALLINT NOT NULL, h_d_id TINYINT NOT NULL,
     h_w_id SMALLINT NOT NULL, h_date DATETIME NOT NULL, h_amount DECIMAL(8,2) NOT NULL, h_data VARCHAR(24) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE orders (o_w_id SMALLINT NOT NULL, o_d_id TINYINT NOT NULL, o_id INT NOT NULL, o_c_id INT NOT NULL, o_entry_d DATETIME NOT NULL,
     o_carrier_id TINYINT NULL, o_ol_cnt TINYINT NOT NULL, o_all_local TINYINT NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id),
     KEY by_customer (o_w_id, o_d_id, o_c_id, o_id)) ENGINE=InnoDB",
    "CREATE TABLE new_order (no_w_id SMALLINT NOT NULL, no_d_id TINYINT NOT NULL, no_o_id INT NOT NULL, PRIMARY KEY (no_w_id, no_d_id, no_o_id))
     ENGINE=InnoDB",
    "CREATE TABLE order_line (ol_w_id SMALLINT NOT NULL, ol_d_id TINYINT NOT NULL, ol_o_id INT NOT NULL, ol_number TINYINT NOT NULL,
     ol_i_id INT NOT NULL, ol_supply_w_id SMALLINT NOT NULL, ol_delivery_d DATETIME NULL, ol_quantity TINYINT NOT NULL,
     ol_amount DECIMAL(8,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)) ENGINE=InnoDB",
    "CREATE TABLE item (i_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL, PRIMARY KEY (i_id))
     ENGINE=InnoDB",
    "CREATE TABLE stock (s_w_id SMALLINT NOT NULL, s_i_id INT NOT NULL, s_quantity SMALLINT NOT NULL, s_ytd INT NOT NULL, s_order_cnt INT NOT NULL,
     s_remote_cnt INT NOT NULL, s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id, s_i_id)) ENGINE=InnoDB",
];

/// How many there are of everything.
#[derive(Debug, Clone, Copy)]
struct Scale {
    warehouses: u64,
    customers: u64,
    items: u64,
}

impl Scale {
    fn of(size: LoadSize) -> Scale {
        /// A hundred thousand items for three thousand customers.
        const ITEMS_PER_CUSTOMER: u64 = 33;
        Scale { warehouses: size.tables, customers: size.rows, items: ITEMS_PER_CUSTOMER * size.rows }
    }
}

pub(super) struct Tpcc;

impl Load for Tpcc {
    fn fill(&self, session: &mut Session, size: LoadSize, random: &mut Random) -> Result<()> {
        TABLES.iter().try_for_each(|table| session.run(table))?;
        fill::all(session, Scale::of(size), random)
    }

    fn workers(&self) -> usize {
        4
    }

    fn worker(&self, number: usize, size: LoadSize, random: Random) -> Box<dyn Worker> {
        // A terminal has a warehouse of its own.
        let scale = Scale::of(size);
        let home = 1 + number as u64 % scale.warehouses;
        Box::new(transactions::Terminal::new(scale, home, random))
    }
}

/// TPC-C's uneven numbers: some customers and items are asked for much more often (clause 2.1.6). `a` is the largest power of two, less one, that is
/// well below the range.
fn uneven(random: &mut Random, constant: u64, least: u64, most: u64) -> u64 {
    let range = most - least + 1;
    let a = (range / 3).max(1).next_power_of_two() - 1;
    let (one, two) = (random.below(a as usize + 1) as u64, least + random.below(range as usize) as u64);
    ((one | two) + constant) % range + least
}

/// A last name of three syllables from a number of three digits (clause 4.3.2.3).
fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10, number].iter().map(|digit| SYLLABLES[(digit % 10) as usize]).collect()
}

/// The number of the last name that a customer has: with 1,000 customers and more, each name occurs.
fn name_number(customer: u64) -> u64 {
    (customer - 1) % 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_numbers_stay_in_their_range_and_are_uneven() {
        let mut random = Random::new(3);
        let mut counts = [0_u32; 300];
        for _ in 0..30_000 {
            let number = uneven(&mut random, 7, 1, 300);
            counts[number as usize - 1] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*most > 5 * (*least).max(1), "{least} to {most}");
        for (least, most) in [(1, 1), (5, 6)] {
            assert!((least..=most).contains(&uneven(&mut random, 99, least, most)));
        }
    }

    #[test]
    fn names_are_made_of_syllables() {
        assert_eq!((last_name(0), last_name(371)), ("BARBARBAR".to_owned(), "PRICALLYOUGHT".to_owned()));
    }
}
