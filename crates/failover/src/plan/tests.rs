//! Made-up topologies.

use super::*;

fn mariadb(name: &str, server_id: u32, state: &str) -> ServerFacts {
    let mut applied = History { is_complete: true, ..History::default() };
    state.split(',').filter(|gtid| !gtid.is_empty()).for_each(|gtid| applied.add(gtid.parse().unwrap()));
    ServerFacts {
        name: name.to_owned(),
        server_id,
        is_read_only: true,
        logs_all: true,
        has_gtids: true,
        has_full_images: true,
        received: applied.clone(),
        applied,
        ..ServerFacts::default()
    }
}

fn replica(name: &str, server_id: u32, state: &str, received: &str) -> ServerFacts {
    let mut facts = mariadb(name, server_id, state);
    received.split(',').filter(|gtid| !gtid.is_empty()).for_each(|gtid| facts.received.add(gtid.parse().unwrap()));
    facts.channels = vec![ChannelFacts {
        source_host: "a".to_owned(),
        source_port: 3306,
        source_server_id: 1,
        is_receiving: true,
        is_connected: true,
        is_applying: true,
        tells_gtids: true,
        ..ChannelFacts::default()
    }];
    facts
}

fn plan_of(candidate: &ServerFacts, source: Option<&ServerFacts>, others: &[ServerFacts], allowed: Allowed) -> Plan {
    make(&Situation {
        candidate,
        source,
        source_names: Some(SourceNames { address: Some(("a".to_owned(), 3306)), server_id: Some(1) }),
        others,
        silent: &[],
        archive_end: None,
        source_took_writes: source.is_some_and(|source| !source.is_read_only),
        allowed,
    })
}

const DEAD: Allowed = Allowed { source_is_dead: true, loss: false, errant: false };

#[test]
fn reachable_source_loses_nothing() {
    let source = ServerFacts { is_read_only: false, ..mariadb("a:3306", 1, "0-1-120") };
    let plan = plan_of(&replica("b", 2, "0-1-100", "0-1-110"), Some(&source), &[], Allowed::default());
    assert_eq!(plan.refusals, Vec::<String>::new());
    assert!(plan.is_loss_known && plan.lost_transactions == 0, "{plan:?}");
    assert_eq!(plan.to_apply.transactions, 20);
    assert_eq!(plan.loss_in_words(), "nothing will be lost");
}

#[test]
fn unreachable_source_needs_a_person_and_its_loss_is_unknown() {
    let candidate = replica("b", 2, "0-1-100", "0-1-110");
    let plan = plan_of(&candidate, None, &[], Allowed::default());
    assert!(plan.refusals[0].contains("--source-is-dead"), "{plan:?}");
    let plan = plan_of(&candidate, None, &[], DEAD);
    assert!(plan.refusals.is_empty() && !plan.is_loss_known && plan.loss_in_words().starts_with("unknown"), "{plan:?}");
}

#[test]
fn another_replica_that_received_more_is_named() {
    let other = replica("c", 3, "0-1-100", "0-1-115");
    let plan = plan_of(&replica("b", 2, "0-1-100", "0-1-110"), None, std::slice::from_ref(&other), DEAD);
    assert_eq!(plan.lost_transactions, 5);
    assert!(plan.refusals[0].contains("promote c instead"), "{plan:?}");
    let accepted = Allowed { loss: true, ..DEAD };
    let plan = plan_of(&replica("b", 2, "0-1-100", "0-1-110"), None, &[other], accepted);
    assert!(plan.refusals.is_empty() && plan.lost_transactions == 5 && plan.left_out.is_empty(), "{plan:?}");
}

#[test]
fn a_stopped_receiver_loses_what_the_source_has() {
    let source = ServerFacts { is_read_only: false, ..mariadb("a:3306", 1, "0-1-120") };
    let mut candidate = replica("b", 2, "0-1-100", "0-1-110");
    candidate.channels[0].is_receiving = false;
    let plan = plan_of(&candidate, Some(&source), &[], Allowed::default());
    assert_eq!(plan.lost_transactions, 10);
    assert!(plan.refusals[0].contains("--accept-loss"), "{plan:?}");
}

#[test]
fn errant_transactions_of_a_candidate_are_refused() {
    let source = ServerFacts { is_read_only: false, ..mariadb("a:3306", 1, "0-1-120") };
    let candidate = replica("b", 2, "0-1-120,0-2-121", "");
    let plan = plan_of(&candidate, Some(&source), &[], Allowed::default());
    assert!(plan.refusals[0].contains("0-2-121") && plan.refusals[0].contains("--accept-errant"), "{plan:?}");
    let allowed = Allowed { errant: true, ..Allowed::default() };
    assert!(plan_of(&candidate, Some(&source), &[], allowed).refusals.is_empty());
}

#[test]
fn errant_transactions_of_another_leave_it_out() {
    let source = ServerFacts { is_read_only: false, ..mariadb("a:3306", 1, "0-1-120") };
    let other = replica("c", 3, "0-1-120,0-3-121", "");
    let plan = plan_of(&replica("b", 2, "0-1-120", ""), Some(&source), &[other], Allowed::default());
    assert!(plan.refusals.is_empty() && plan.lost.is_empty(), "{plan:?}");
    assert!(plan.left_out[0].why.contains("spate follow --replica c --source b"), "{plan:?}");
}

#[test]
fn a_promoted_server_s_own_transactions_are_no_errors() {
    let promoted = ServerFacts { is_read_only: false, ..mariadb("b", 2, "0-1-120,0-2-150") };
    let other = replica("c", 3, "0-1-120", "");
    let plan = plan_of(&promoted, None, &[other], Allowed::default());
    assert_eq!(plan.stage, Stage::Source);
    assert!(plan.refusals.is_empty() && plan.lost.is_empty() && plan.left_out.is_empty(), "{plan:?}");
    assert_eq!(plan.steps, ["point c at b", "check that all follow"]);
}

#[test]
fn an_old_source_that_is_back_shows_its_surplus() {
    let promoted = ServerFacts { is_read_only: false, ..mariadb("b", 2, "0-1-120,0-2-150") };
    let source = mariadb("a:3306", 1, "0-1-123");
    let plan = plan_of(&promoted, Some(&source), &[], Allowed::default());
    assert!(plan.refusals.is_empty(), "{plan:?}");
    assert_eq!(
        (plan.lost_transactions, plan.lost[0].surplus.to_string().as_str()),
        (3, "3 transactions (0-1-121…123)")
    );
}

#[test]
fn unsuitable_candidates_are_refused() {
    let source = ServerFacts { is_read_only: false, ..mariadb("a:3306", 1, "0-1-120") };
    let mut silent = replica("b", 2, "0-1-120", "");
    silent.logs_all = false;
    assert!(plan_of(&silent, Some(&source), &[], Allowed::default()).refusals[0].contains("log_slave_updates"));
    let mut broken = replica("b", 2, "0-1-120", "");
    broken.channels[0].error = "duplicate key".to_owned();
    assert!(plan_of(&broken, Some(&source), &[], Allowed::default()).refusals[0].contains("duplicate key"));
    let mut without = replica("b", 2, "0-1-120", "");
    without.has_gtids = false;
    assert!(plan_of(&without, Some(&source), &[], Allowed::default()).refusals[0].contains("gtid_mode"));
    assert!(plan_of(&source, Some(&source), &[], Allowed::default()).refusals[0].contains("same server"));
}

#[test]
fn a_detached_server_that_lacks_something_is_not_opened() {
    let detached = mariadb("b", 2, "0-1-100");
    let other = replica("c", 3, "0-1-120", "");
    let plan = plan_of(&detached, None, std::slice::from_ref(&other), DEAD);
    assert_eq!(plan.stage, Stage::Detached);
    assert!(plan.refusals[0].contains("promote c instead"), "{plan:?}");
    assert!(plan_of(&mariadb("b", 2, "0-1-120"), None, &[other], DEAD).refusals.is_empty());
}
