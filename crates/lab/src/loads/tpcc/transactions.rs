//! The five transactions (clause 2), in the mix of clause 5.2.3.

use super::{DISTRICTS, Scale, last_name, uneven};
use crate::Result;
use crate::loads::Worker;
use crate::random::Random;
use crate::sql::Session;

/// Who orders, pays, asks and delivers at one warehouse.
pub(super) struct Terminal {
    scale: Scale,
    home: u64,
    random: Random,
    /// The constants of the uneven numbers.
    customers: u64,
    items: u64,
    names: u64,
}

/// One kind of transaction.
type Transaction = fn(&mut Terminal, &mut Session) -> Result<()>;

/// The transactions, with their parts of a hundred.
const MIX: [(usize, Transaction); 5] = [
    (45, Terminal::new_order),
    (43, Terminal::payment),
    (4, Terminal::order_status),
    (4, Terminal::delivery),
    (4, Terminal::stock_level),
];

impl Terminal {
    pub(super) fn new(scale: Scale, home: u64, mut random: Random) -> Terminal {
        let (customers, items, names) =
            (random.below(1_024) as u64, random.below(8_192) as u64, random.below(256) as u64);
        Terminal { scale, home, random, customers, items, names }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound as usize) as u64
    }

    fn district(&mut self) -> u64 {
        1 + self.below(DISTRICTS)
    }

    fn customer(&mut self) -> u64 {
        uneven(&mut self.random, self.customers, 1, self.scale.customers)
    }

    /// Another warehouse in so many of a hundred cases, if there is one.
    fn other_warehouse(&mut self, percent: usize) -> u64 {
        if self.scale.warehouses == 1 || !self.random.chance(percent) {
            return self.home;
        }
        let other = 1 + self.below(self.scale.warehouses - 1);
        if other >= self.home { other + 1 } else { other }
    }

    fn new_order(&mut self, session: &mut Session) -> Result<()> {
        let (warehouse, district, customer) = (self.home, self.district(), self.customer());
        // One order in a hundred is for an item that does not exist, and is taken back.
        let is_taken_back = self.random.chance(1);
        let mut lines: Vec<(u64, u64, u64)> = (0..5 + self.below(11))
            .map(|_| {
                let item = uneven(&mut self.random, self.items, 1, self.scale.items);
                (item, self.other_warehouse(1), 1 + self.below(10))
            })
            .collect();
        // In the order of the stock's keys: two orders do not wait for each other.
        lines.sort_by_key(|&(item, supplier, _)| (supplier, item));
        let is_local = lines.iter().all(|&(_, supplier, _)| supplier == warehouse);
        session.run("BEGIN")?;
        let of_district = format!("WHERE d_w_id = {warehouse} AND d_id = {district}");
        let order: u64 = session.value(&format!("SELECT d_next_o_id FROM district {of_district} FOR UPDATE"))?;
        session.run(&format!("UPDATE district SET d_next_o_id = d_next_o_id + 1 {of_district}"))?;
        session.run(&format!(
            "INSERT INTO orders VALUES ({warehouse}, {district}, {order}, {customer}, NOW(), NULL, {}, {})",
            lines.len(),
            u8::from(is_local)
        ))?;
        session.run(&format!("INSERT INTO new_order VALUES ({warehouse}, {district}, {order})"))?;
        for (number, (item, supplier, quantity)) in (1..).zip(lines) {
            let remote = u8::from(supplier != warehouse);
            session.run(&format!(
                "UPDATE stock SET s_quantity = IF(s_quantity >= {quantity} + 10, s_quantity - {quantity}, s_quantity - {quantity} + 91),
                 s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + {remote}
                 WHERE s_w_id = {supplier} AND s_i_id = {item}"
            ))?;
            session.run(&format!(
                "INSERT INTO order_line SELECT {warehouse}, {district}, {order}, {number}, i_id, {supplier}, NULL, {quantity}, {quantity} * i_price,
                 RPAD('', 24, i_name) FROM item WHERE i_id = {item}"
            ))?;
        }
        session.run(if is_taken_back { "ROLLBACK" } else { "COMMIT" })
    }

    /// A customer by number, or in six of ten cases by the last name: of all with it, the one in the middle by the first name.
    fn who(&mut self, session: &mut Session, warehouse: u64, district: u64) -> Result<u64> {
        let customer = self.customer();
        if self.random.chance(40) {
            return Ok(customer);
        }
        let most = self.scale.customers.min(1_000) - 1;
        let name = last_name(uneven(&mut self.random, self.names, 0, most));
        let named: Vec<u64> = session.rows(&format!(
            "SELECT c_id FROM customer WHERE c_w_id = {warehouse} AND c_d_id = {district} AND c_last = '{name}' ORDER BY c_first, c_id"
        ))?;
        Ok(named.get(named.len() / 2).copied().unwrap_or(customer))
    }

    fn payment(&mut self, session: &mut Session) -> Result<()> {
        let (warehouse, district) = (self.home, self.district());
        let of_customer = self.other_warehouse(15);
        let district_of_customer = if of_customer == warehouse { district } else { self.district() };
        let amount = format!("{}.{:02}", 1 + self.below(5_000), self.below(100));
        session.run("BEGIN")?;
        let customer = self.who(session, of_customer, district_of_customer)?;
        session.run(&format!("UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {warehouse}"))?;
        session.run(&format!(
            "UPDATE district SET d_ytd = d_ytd + {amount} WHERE d_w_id = {warehouse} AND d_id = {district}"
        ))?;
        session.run(&format!(
            "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount}, c_payment_cnt = c_payment_cnt + 1,
             c_data = IF(c_credit = 'BC', LEFT(CONCAT({customer}, ' {district} {warehouse} {amount} ', c_data), 500), c_data)
             WHERE c_w_id = {of_customer} AND c_d_id = {district_of_customer} AND c_id = {customer}"
        ))?;
        session.run(&format!(
            "INSERT INTO history VALUES ({customer}, {district_of_customer}, {of_customer}, {district}, {warehouse}, NOW(), {amount}, 'payment')"
        ))?;
        session.run("COMMIT")
    }

    fn order_status(&mut self, session: &mut Session) -> Result<()> {
        let (warehouse, district) = (self.home, self.district());
        let customer = self.who(session, warehouse, district)?;
        session.run(&format!(
            "SELECT o.o_id, o.o_carrier_id, l.ol_i_id, l.ol_amount FROM orders o JOIN order_line l
             ON l.ol_w_id = o.o_w_id AND l.ol_d_id = o.o_d_id AND l.ol_o_id = o.o_id
             WHERE o.o_w_id = {warehouse} AND o.o_d_id = {district} AND o.o_c_id = {customer} ORDER BY o.o_id DESC LIMIT 15"
        ))
    }

    /// The oldest order of each district.
    fn delivery(&mut self, session: &mut Session) -> Result<()> {
        let (warehouse, carrier) = (self.home, 1 + self.below(10));
        session.run("BEGIN")?;
        for district in 1..=DISTRICTS {
            let oldest: Vec<u64> = session.rows(&format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id = {warehouse} AND no_d_id = {district} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
            ))?;
            let Some(order) = oldest.first() else { continue };
            session.run(&format!(
                "DELETE FROM new_order WHERE no_w_id = {warehouse} AND no_d_id = {district} AND no_o_id = {order}"
            ))?;
            let of_order = format!("WHERE o_w_id = {warehouse} AND o_d_id = {district} AND o_id = {order}");
            // Changed first: an order that is younger than the transaction's snapshot is in it only as the transaction's own.
            session.run(&format!("UPDATE orders SET o_carrier_id = {carrier} {of_order}"))?;
            let customer: u64 = session.value(&format!("SELECT o_c_id FROM orders {of_order}"))?;
            let of_lines = format!("WHERE ol_w_id = {warehouse} AND ol_d_id = {district} AND ol_o_id = {order}");
            session.run(&format!("UPDATE order_line SET ol_delivery_d = NOW() {of_lines}"))?;
            let amount: String =
                session.value(&format!("SELECT CAST(SUM(ol_amount) AS CHAR) FROM order_line {of_lines}"))?;
            session.run(&format!(
                "UPDATE customer SET c_balance = c_balance + {amount}, c_delivery_cnt = c_delivery_cnt + 1
                 WHERE c_w_id = {warehouse} AND c_d_id = {district} AND c_id = {customer}"
            ))?;
        }
        session.run("COMMIT")
    }

    fn stock_level(&mut self, session: &mut Session) -> Result<()> {
        let (warehouse, district, threshold) = (self.home, self.district(), 10 + self.below(11));
        session.run(&format!(
            "SELECT COUNT(DISTINCT s.s_i_id) FROM district d JOIN order_line l ON l.ol_w_id = d.d_w_id AND l.ol_d_id = d.d_id
             AND l.ol_o_id BETWEEN d.d_next_o_id - 20 AND d.d_next_o_id - 1
             JOIN stock s ON s.s_w_id = d.d_w_id AND s.s_i_id = l.ol_i_id AND s.s_quantity < {threshold}
             WHERE d.d_w_id = {warehouse} AND d.d_id = {district}"
        ))
    }
}

impl Worker for Terminal {
    fn transaction(&mut self, session: &mut Session) -> Result<()> {
        let mut number = self.random.below(100);
        for (part, transaction) in MIX {
            if number < part {
                return transaction(self, session);
            }
            number -= part;
        }
        Ok(())
    }
}
