//! What is in the tables at the beginning (clause 4.3.3.1), so that the books balance.

use super::{DISTRICTS, Scale, UNDELIVERED_IN_TEN, last_name, name_number};
use crate::Result;
use crate::loads::{insert_rows, letters};
use crate::random::Random;
use crate::sql::Session;

/// What each customer has paid at the beginning.
const FIRST_PAYMENT: u64 = 10;

pub(super) fn all(session: &mut Session, scale: Scale, random: &mut Random) -> Result<()> {
    insert_rows(session, "item", 1..=scale.items, |id| {
        format!(
            "{id}, '{}', {}.{:02}, '{}'",
            letters(random, 14, 24),
            1 + random.below(100),
            random.below(100),
            letters(random, 26, 50)
        )
    })?;
    for warehouse in 1..=scale.warehouses {
        one_warehouse(session, scale, warehouse, random)?;
    }
    Ok(())
}

fn one_warehouse(session: &mut Session, scale: Scale, warehouse: u64, random: &mut Random) -> Result<()> {
    let of_districts = DISTRICTS * scale.customers * FIRST_PAYMENT;
    session.run(&format!(
        "INSERT INTO warehouse VALUES ({warehouse}, '{}', 0.{:04}, {of_districts})",
        letters(random, 6, 10),
        random.below(2_000)
    ))?;
    insert_rows(session, "stock", 1..=scale.items, |item| {
        format!("{warehouse}, {item}, {}, 0, 0, 0, '{}'", 10 + random.below(91), letters(random, 26, 50))
    })?;
    for district in 1..=DISTRICTS {
        session.run(&format!(
            "INSERT INTO district VALUES ({warehouse}, {district}, '{}', 0.{:04}, {}, {})",
            letters(random, 6, 10),
            random.below(2_000),
            scale.customers * FIRST_PAYMENT,
            scale.customers + 1
        ))?;
        one_district(session, scale, (warehouse, district), random)?;
    }
    Ok(())
}

fn one_district(
    session: &mut Session,
    scale: Scale,
    (warehouse, district): (u64, u64),
    random: &mut Random,
) -> Result<()> {
    let customers = scale.customers;
    insert_rows(session, "customer", 1..=customers, |customer| {
        let credit = if random.chance(10) { "BC" } else { "GC" };
        format!(
            "{warehouse}, {district}, {customer}, '{}', '{}', '{credit}', 0.{:04}, -{FIRST_PAYMENT}, {FIRST_PAYMENT}, 1, 0, '{}'",
            letters(random, 8, 16),
            last_name(name_number(customer)),
            random.below(5_000),
            letters(random, 100, 300)
        )
    })?;
    insert_rows(session, "history", 1..=customers, |customer| {
        format!(
            "{customer}, {district}, {warehouse}, {district}, {warehouse}, NOW(), {FIRST_PAYMENT}, '{}'",
            letters(random, 12, 24)
        )
    })?;
    // Each customer has one order, in an order of their own.
    let mut order_of: Vec<u64> = (1..=customers).collect();
    random.shuffle(&mut order_of);
    let lines: Vec<u64> = (0..customers).map(|_| 5 + random.below(11) as u64).collect();
    let place = |order: u64| (order - 1) as usize;
    let first_undelivered = customers - customers * UNDELIVERED_IN_TEN / 10 + 1;
    insert_rows(session, "orders", 1..=customers, |order| {
        let carrier = if order < first_undelivered { (1 + random.below(10)).to_string() } else { "NULL".to_owned() };
        format!(
            "{warehouse}, {district}, {order}, {}, NOW(), {carrier}, {}, 1",
            order_of[place(order)],
            lines[place(order)]
        )
    })?;
    insert_rows(session, "new_order", first_undelivered..=customers, |order| {
        format!("{warehouse}, {district}, {order}")
    })?;
    let all_lines: Vec<(u64, u64)> =
        (1..=customers).flat_map(|order| (1..=lines[place(order)]).map(move |line| (order, line))).collect();
    insert_rows(session, "order_line", 1..=all_lines.len() as u64, |number| {
        let (order, line) = all_lines[place(number)];
        let item = 1 + random.below(scale.items as usize);
        let (delivered, amount) = if order < first_undelivered {
            ("NOW()", "0".to_owned())
        } else {
            ("NULL", format!("{}.{:02}", random.below(9_999), random.below(100)))
        };
        format!(
            "{warehouse}, {district}, {order}, {line}, {item}, {warehouse}, {delivered}, 5, {amount}, '{}'",
            letters(random, 24, 24)
        )
    })
}
