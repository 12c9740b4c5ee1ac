//! Days of events, played in virtual time.

use super::*;
use crate::alerts::{Kind, Severity, Web};
use crate::period::Period;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn event(word: &str, member: Option<&str>, message: &str) -> Event {
    let severity = match word {
        "Fail" | "FailedArray" | "BadBlock" => Severity::Error,
        "DegradedArray" | "Repaired" | "Slow" => Severity::Warning,
        _ => Severity::Info,
    };
    Event {
        array: "tank".into(),
        uuid: "u".into(),
        word: word.into(),
        severity,
        member: member.map(String::from),
        message: message.into(),
        time: Timestamp::UNIX_EPOCH,
    }
}

fn channel() -> Channel {
    let web = Web { url: "https://h/x".into(), token: None, ca: None };
    Channel { remind: Some(Period::days(1)), ..Channel::new(Kind::Webhook(web)) }
}

/// Delivers all that is due; returns word and count of each message.
fn deliver(outbox: &mut Outbox, now: u64) -> Vec<(String, u64)> {
    let mut sent = Vec::new();
    while let Some(notice) = outbox.next(seconds(now)) {
        outbox.sent();
        let still = if notice.since.is_some() { "still " } else { "" };
        sent.push((format!("{still}{}", notice.event.word), notice.count));
    }
    sent
}

fn told(words: &[(&str, u64)]) -> Vec<(String, u64)> {
    words.iter().map(|&(word, count)| (word.to_owned(), count)).collect()
}

#[test]
fn an_event_is_told_at_once_and_its_repeats_once_an_hour() {
    let mut outbox = Outbox::new(channel());
    for minute in 0..90 {
        let message = format!("{minute} KiB rewritten");
        outbox.note(&event("Repaired", Some("sdb"), &message), seconds(minute * MINUTE));
        let sent = deliver(&mut outbox, minute * MINUTE);
        match minute {
            0 => assert_eq!(sent, told(&[("Repaired", 1)])),
            // The event of this minute is a repeat of the hour before.
            60 => assert_eq!(sent, told(&[("Repaired", 59), ("Repaired", 1)])),
            _ => assert_eq!(sent, []),
        }
    }
    assert_eq!(outbox.wake(), Some(seconds(2 * HOUR)));
    assert_eq!(deliver(&mut outbox, 2 * HOUR), told(&[("Repaired", 29)]));
    assert_eq!(deliver(&mut outbox, 4 * HOUR), []);
    assert_eq!(outbox.wake(), None);
}

#[test]
fn another_message_another_member_and_a_failure_after_a_recovery_are_no_repeats() {
    let mut outbox = Outbox::new(channel());
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(0));
    outbox.note(&event("DegradedArray", None, "one more"), seconds(0));
    outbox.note(&event("Fail", Some("sdc"), "gone"), seconds(1));
    outbox.note(&event("DegradedArray", None, "no further"), seconds(1));
    let all = [("Fail", 1), ("DegradedArray", 1), ("Fail", 1), ("DegradedArray", 1)];
    assert_eq!(deliver(&mut outbox, 1), told(&all));
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(2));
    assert_eq!(deliver(&mut outbox, 2), [], "the same again");
    outbox.note(&event("Healthy", None, "well"), seconds(3));
    assert_eq!(deliver(&mut outbox, 3), told(&[("Fail", 1), ("Healthy", 1)]));
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(4));
    assert_eq!(deliver(&mut outbox, 4), told(&[("Fail", 1)]), "it had recovered");
    for second in 5..8 {
        outbox.note(&event(TEST, None, "test"), seconds(second));
        assert_eq!(deliver(&mut outbox, second), told(&[(TEST, 1)]));
    }
}

#[test]
fn a_problem_is_repeated_while_it_lasts_and_its_end_is_told() {
    let mut outbox = Outbox::new(channel());
    outbox.note(&event("Healthy", None, "well"), seconds(0));
    assert_eq!(deliver(&mut outbox, 0), [], "there was no problem");
    outbox.note(&event("DegradedArray", None, "one more"), seconds(10));
    assert_eq!(deliver(&mut outbox, 10), told(&[("DegradedArray", 1)]));
    let mut reminders = 0;
    for hour in 1..24 * 5 {
        for (word, _) in deliver(&mut outbox, hour * HOUR) {
            assert_eq!(word, "still DegradedArray");
            reminders += 1;
        }
    }
    assert_eq!(reminders, 4, "once a day");
    outbox.note(&event("Healthy", None, "well"), seconds(5 * 24 * HOUR));
    assert_eq!(deliver(&mut outbox, 5 * 24 * HOUR).last(), told(&[("Healthy", 1)]).first());
    assert_eq!(outbox.wake(), None);
    // An array that is stopped is no problem any more, and an info is not wanted.
    outbox.note(&event("FailedArray", None, "lost"), seconds(6 * 24 * HOUR));
    outbox.note(&event("Stopped", None, "stopped"), seconds(6 * 24 * HOUR));
    assert_eq!(deliver(&mut outbox, 9 * 24 * HOUR), told(&[("FailedArray", 1)]));
}

#[test]
fn a_message_is_sent_again_with_longer_pauses_until_it_is_too_old() {
    let mut outbox = Outbox::new(Channel { remind: None, ..channel() });
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(0));
    let mut tries = Vec::new();
    while let Some(at) = outbox.wake() {
        let notice = outbox.next(at).expect("it is due");
        assert_eq!(notice.event.word, "Fail");
        tries.push(at.as_secs());
        outbox.failed(at, "no route", false);
        if outbox.waiting() > 0 {
            assert_eq!(outbox.next(at), None, "it waits");
            assert_eq!(outbox.failing().unwrap(), Failing { why: "no route".into(), waiting: 1 });
        }
    }
    assert_eq!(tries[..8], [0, 10, 30, 70, 150, 310, 630, 1270]);
    assert_eq!(tries[8] - tries[7], 900, "the longest pause");
    let last = *tries.last().unwrap();
    assert!((86_400..86_400 + 900).contains(&last), "{last}");
    assert_eq!((outbox.lost(), outbox.waiting()), (1, 0));
    // The next message that arrives tells of the loss, once.
    let later = seconds(2 * 86_400);
    outbox.note(&event("Fail", Some("sdc"), "gone"), later);
    assert_eq!(outbox.next(later).unwrap().lost, 1);
    outbox.sent();
    assert_eq!((outbox.lost(), outbox.failing()), (0, None));
}

#[test]
fn a_refusal_ends_one_message_and_a_program_runs_once() {
    let mut outbox = Outbox::new(channel());
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(0));
    outbox.note(&event("Fail", Some("sdc"), "gone"), seconds(0));
    assert!(outbox.next(seconds(0)).is_some());
    assert!(outbox.failed(seconds(0), "404", true), "given up");
    let next = outbox.next(seconds(0)).expect("the next one has its own chance");
    assert_eq!((next.event.member.as_deref(), next.lost), (Some("sdc"), 1));
    let mut outbox = Outbox::new(Channel::new(Kind::Exec { program: "p".into() }));
    outbox.note(&event("NewArray", None, "started"), seconds(0));
    assert!(outbox.next(seconds(0)).is_some());
    assert!(outbox.failed(seconds(0), "exit status: 1", false));
    assert_eq!(outbox.next(seconds(100)), None);
}

#[test]
fn a_full_queue_drops_the_least_severe_first_and_counts_them() {
    let mut outbox = Outbox::new(Channel { least: Severity::Info, quiet: None, ..channel() });
    for index in 0..MOST_WAITING {
        let word = if index == 7 { "Fail" } else { "RebuildStarted" };
        outbox.note(&event(word, None, &index.to_string()), seconds(0));
    }
    assert_eq!((outbox.waiting(), outbox.lost()), (MOST_WAITING, 0));
    for index in 0..MOST_WAITING {
        outbox.note(&event("DegradedArray", None, &index.to_string()), seconds(1));
        assert_eq!(outbox.waiting(), MOST_WAITING);
    }
    assert_eq!(outbox.lost(), MOST_WAITING as u64);
    let first = outbox.next(seconds(1)).unwrap();
    assert_eq!((first.event.word.as_str(), first.lost), ("Fail", MOST_WAITING as u64));
}

/// Every wanted event is in a message, in the count of one, waits, or is counted as lost.
#[test]
fn nothing_gets_lost_unseen() {
    let mut random = 7_u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..200 {
        let mut outbox = Outbox::new(Channel { remind: None, ..channel() });
        let (mut noted, mut delivered, mut now, mut told_lost) = (0, 0, 0, 0);
        for _ in 0..500 {
            now += draw(600);
            if draw(50) == 0 {
                outbox = restarted(&outbox, outbox.channel().clone(), now, 0);
            }
            for _ in 0..draw(4) {
                let word = ["Repaired", "Fail", "BadBlock"][draw(3) as usize];
                let member = ["sda", "sdb", "sdc"][draw(3) as usize];
                outbox.note(&event(word, Some(member), &draw(2).to_string()), seconds(now));
                noted += 1;
            }
            if let Some(notice) = outbox.next(seconds(now)) {
                match draw(3) {
                    0 => drop(outbox.failed(seconds(now), "", draw(4) == 0)),
                    _ => {
                        delivered += notice.count;
                        told_lost += notice.lost;
                        outbox.sent();
                    }
                }
            }
        }
        outbox.finish(seconds(now));
        let queued = outbox.waiting.iter().chain(&outbox.in_flight);
        let waiting: u64 = queued.map(|notice| notice.count).sum();
        assert_eq!(noted, delivered + told_lost + outbox.lost() + waiting);
    }
}

/// A time on the wall clock: the clocks of two servers have nothing else in common.
fn wall(second: u64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second as i64).unwrap()
}

/// The next server of a channel: its clock began `began` seconds after that of the first.
fn restarted(outbox: &Outbox, channel: Channel, at: u64, began: u64) -> Outbox {
    let kept = serde_json::to_string(&outbox.kept(seconds(at), wall(at))).unwrap();
    let mut next = Outbox::new(channel);
    next.restore(serde_json::from_str(&kept).unwrap(), seconds(at - began), wall(at));
    next
}

#[test]
fn a_restart_loses_no_message_and_tells_none_twice() {
    let mut outbox = Outbox::new(Channel { remind: None, ..channel() });
    assert!(outbox.kept(seconds(0), wall(0)).is_empty());
    outbox.note(&event("Fail", Some("sda"), "gone"), seconds(9000));
    assert_eq!(deliver(&mut outbox, 9000), told(&[("Fail", 1)]));
    outbox.note(&event("DegradedArray", None, "one more"), seconds(9001));
    outbox.note(&event("Fail", Some("sdb"), "gone"), seconds(9002));
    assert!(outbox.next(seconds(9002)).is_some(), "in flight when the server dies");
    let mut next = restarted(&outbox, outbox.channel().clone(), 9010, 9000);
    // The array is degraded still, and the next server says so again.
    next.note(&event("DegradedArray", None, "one more"), seconds(11));
    next.note(&event("Fail", Some("sda"), "gone"), seconds(11));
    assert_eq!(deliver(&mut next, 12), told(&[("DegradedArray", 1), ("Fail", 1)]));
    // What repeats the hour before is summed up at its end, which the restart has not moved.
    let kept = next.kept(seconds(12), wall(9012));
    assert_eq!(kept.waiting(), 0);
    assert_eq!(deliver(&mut next, 3599), []);
    let mut words = deliver(&mut next, 2 * HOUR);
    words.sort();
    assert_eq!(words, told(&[("DegradedArray", 1), ("Fail", 1)]));
}

#[test]
fn a_program_is_not_run_again_for_the_event_that_it_was_at() {
    let mut outbox = Outbox::new(Channel::new(Kind::Exec { program: "p".into() }));
    for member in ["sda", "sdb"] {
        outbox.note(&event("Fail", Some(member), "gone"), seconds(0));
    }
    let before = outbox.revision();
    assert!(outbox.next(seconds(0)).is_some());
    assert!(outbox.revision() > before, "kept before it is run");
    let mut next = restarted(&outbox, outbox.channel().clone(), 5, 0);
    let notice = next.next(seconds(5)).unwrap();
    assert_eq!((notice.event.member.as_deref(), notice.lost), (Some("sdb"), 1));
    next.sent();
    assert_eq!((next.next(seconds(5)), next.lost()), (None, 0));
}

#[test]
fn a_message_keeps_its_age_over_restarts() {
    let mut outbox = Outbox::new(Channel { remind: None, ..channel() });
    outbox.note(&event("Fail", Some("sda"), "gone"), seconds(0));
    for day in [seconds(0), TOO_OLD - seconds(1)] {
        let at = day.as_secs();
        let mut next = restarted(&outbox, outbox.channel().clone(), at, 0);
        assert!(next.next(seconds(at)).is_some());
        assert!(!next.failed(seconds(at), "no route", false));
    }
    let mut next = restarted(&outbox, outbox.channel().clone(), TOO_OLD.as_secs(), 0);
    assert!(next.next(TOO_OLD).is_some(), "it has one attempt");
    assert!(next.failed(TOO_OLD, "no route", false), "a day is over");
    // A clock that was set back makes nothing older.
    let kept = outbox.kept(seconds(0), wall(1000));
    let mut next = Outbox::new(outbox.channel().clone());
    next.restore(kept, seconds(7), wall(0));
    assert!(next.next(seconds(7)).is_some());
    assert!(!next.failed(seconds(7), "no route", false));
}

/// The file is input from outside: it may have more than any outbox.
#[test]
fn what_was_kept_is_bounded_again() {
    let mut outbox = Outbox::new(Channel { quiet: None, ..channel() });
    outbox.note(&event("Fail", Some("sda"), "gone"), seconds(0));
    let mut kept = serde_json::to_value(outbox.kept(seconds(0), wall(0))).unwrap();
    let mut message = kept["waiting"][0].clone();
    message["count"] = u64::MAX.into();
    kept["waiting"] = vec![message; 2 * MOST_WAITING].into();
    kept["lost"] = u64::MAX.into();
    let kept: Kept = serde_json::from_value(kept).unwrap();
    let mut next = Outbox::new(outbox.channel().clone());
    next.restore(kept, seconds(0), wall(0));
    assert_eq!((next.waiting(), next.lost()), (MOST_WAITING, u64::MAX));
}

#[test]
fn other_settings_of_a_channel_keep_its_messages_and_are_tried_at_once() {
    let mut outbox = Outbox::new(Channel { remind: None, ..channel() });
    outbox.note(&event("Fail", Some("sda"), "gone"), seconds(0));
    assert!(outbox.next(seconds(0)).is_some());
    outbox.failed(seconds(0), "unknown authority", false);
    assert_eq!(outbox.next(seconds(1)), None);
    let web = |ca: &str| Web { url: "https://h/x".into(), token: None, ca: Some(ca.into()) };
    let corrected = Channel { kind: Kind::Webhook(web("ca.pem")), ..outbox.channel().clone() };
    assert_eq!(corrected.kind.destination(), outbox.channel().kind.destination());
    outbox.set_channel(corrected, seconds(1));
    assert_eq!(deliver(&mut outbox, 1), told(&[("Fail", 1)]));
    // Repeats that were held are told when none is to be held.
    outbox.note(&event("Fail", Some("sda"), "gone"), seconds(2));
    assert_eq!(deliver(&mut outbox, 2), []);
    let all = Channel { quiet: None, ..outbox.channel().clone() };
    outbox.set_channel(all, seconds(3));
    assert_eq!(deliver(&mut outbox, 3), told(&[("Fail", 1)]));
    assert!(outbox.kept(seconds(3), wall(3)).is_empty());
}
