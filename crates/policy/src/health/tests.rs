//! Disks that degrade, from documents in the shape of real ones (`documents/README.md`).

use std::ops::Range;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;

const SEAGATE: &str = include_str!("documents/seagate.json");
const NVME: &str = include_str!("documents/nvme.json");
const SCSI: &str = include_str!("documents/scsi.json");

/// A disk that is read every 90 minutes.
struct Played {
    disk: Disk,
    document: Value,
    now: Timestamp,
    own: Own,
    settings: Settings,
}

impl Played {
    fn new(document: &str) -> Played {
        let document = serde_json::from_str(document).unwrap();
        let own = Own { member: "m".into(), ..Own::default() };
        let now = "2026-11-01T00:00:00Z".parse().unwrap();
        Played { disk: Disk::default(), document, now, own, settings: Settings::default() }
    }

    fn set(&mut self, pointer: &str, value: Value) -> &mut Played {
        *self.document.pointer_mut(pointer).expect(pointer) = value;
        self
    }

    /// Sets the raw value of an ATA attribute.
    fn attribute(&mut self, id: u64, raw: u64, string: &str) -> &mut Played {
        let table = self.document["ata_smart_attributes"]["table"].as_array_mut().unwrap();
        let attribute = table.iter_mut().find(|it| it["id"] == id).unwrap();
        attribute["raw"] = json!({ "value": raw, "string": string });
        self
    }

    fn reading(&self) -> Reading {
        match read(&serde_json::to_vec(&self.document).unwrap()) {
            Answer::Reading(reading) => *reading,
            other => panic!("{other:?}"),
        }
    }

    fn poll(&mut self) -> Verdict {
        self.after(SignedDuration::from_mins(90))
    }

    fn after(&mut self, span: SignedDuration) -> Verdict {
        self.now += span;
        let reading = self.reading();
        let own = std::slice::from_ref(&self.own);
        self.disk.observe(self.now, Some(&reading), own, &self.settings)
    }

    #[track_caller]
    fn expect(&mut self, level: Level, reason: &str) {
        let verdict = self.poll();
        assert_eq!(verdict.level, level, "{verdict:?}");
        assert!(verdict.reasons.iter().any(|it| it.contains(reason)), "{reason}: {verdict:?}");
    }

    #[track_caller]
    fn expect_ok(&mut self) {
        assert_eq!(self.poll(), Verdict::default());
    }
}

#[test]
fn healthy_disks_of_each_protocol_are_read_and_well() {
    for (document, protocol, serial, hours, celsius) in [
        (SEAGATE, "ATA", "ZW60A1B2", 14894, 34),
        (NVME, "NVMe", "S5GXNX0T123456", 9120, 41),
        (SCSI, "SCSI", "7PG1ABCD", 31822, 37),
    ] {
        let mut disk = Played::new(document);
        let reading = disk.reading();
        assert_eq!(reading.protocol.as_deref(), Some(protocol));
        assert_eq!(reading.serial.as_deref(), Some(serial));
        assert_eq!(reading.passed, Some(true));
        assert_eq!(reading.power_on_hours, Some(hours));
        assert_eq!(reading.temperature_celsius, Some(celsius));
        assert!(reading.model.is_some() && !reading.attributes.is_empty());
        disk.expect_ok();
        disk.expect_ok();
    }
}

#[test]
fn a_disk_that_sleeps_or_does_not_open_gives_no_reading() {
    assert_eq!(read(include_bytes!("documents/asleep.json")), Answer::Asleep);
    let denied = read(include_bytes!("documents/denied.json"));
    let Answer::Nothing(why) = denied else { panic!("{denied:?}") };
    assert!(why.contains("Permission denied"), "{why}");
    // What was known of it stays.
    let mut disk = Played::new(SEAGATE);
    disk.attribute(197, 3, "3").expect(Level::Suspect, "3 unreadable sectors");
    let asleep = disk.disk.observe(disk.now, None, &[], &disk.settings);
    assert_eq!(asleep.level, Level::Suspect);
}

#[test]
fn growth_makes_a_disk_suspect_and_a_stable_count_only_watched() {
    let mut disk = Played::new(SEAGATE);
    disk.attribute(5, 8, "8").expect(Level::Watch, "8 reallocated sectors");
    disk.expect(Level::Watch, "8 reallocated sectors");
    disk.attribute(5, 24, "24").expect(Level::Suspect, "16 new reallocated sectors");
    // Without further growth it stays suspect for the memory, and no longer.
    assert_eq!(disk.after(SignedDuration::from_hours(59 * 24)).level, Level::Suspect);
    assert_eq!(disk.after(SignedDuration::from_hours(48)).level, Level::Watch);
    // Other disks print further counters beside the first.
    disk.attribute(5, 24 | 7 << 32, "24 (0 7)").expect(Level::Watch, "24 reallocated");
}

#[test]
fn the_packed_counters_of_seagate_raise_no_alarm() {
    let mut disk = Played::new(SEAGATE);
    disk.expect_ok();
    // Three counters of 16 bits, with and without smartctl knowing the disk.
    disk.attribute(188, 4_295_032_833, "1 1 1").expect_ok();
    assert_eq!(disk.reading().counters[&Counter::Timeouts], 1);
    disk.attribute(188, 4_295_032_853, "4295032853").expect_ok();
    assert_eq!(disk.reading().counters[&Counter::Timeouts], 21);
    // Beside another reason it is mentioned.
    disk.attribute(197, 1, "1").expect(Level::Suspect, "21 new command timeouts");
}

#[test]
fn a_disk_that_reports_failure_is_to_be_replaced() {
    let mut disk = Played::new(SEAGATE);
    disk.set("/smart_status/passed", json!(false)).expect(Level::Replace, "reports that it is");
    let mut disk = Played::new(SEAGATE);
    let first = "/ata_smart_attributes/table/2/when_failed";
    disk.set(first, json!("now")).expect(Level::Replace, "attribute 5 (Reallocated Sector Ct)");
    // Heat and age are below thresholds, too.
    let mut disk = Played::new(SEAGATE);
    disk.set("/ata_smart_attributes/table/7/when_failed", json!("now")).expect_ok();
    let mut disk = Played::new(SCSI);
    let status = json!({ "passed": false, "scsi": { "asc": 93, "ascq": 16,
        "ie_string": "HARDWARE IMPENDING FAILURE GENERAL HARD DRIVE FAILURE" } });
    disk.set("/smart_status", status).expect(Level::Replace, "hardware impending failure");
}

#[test]
fn the_warnings_of_nvme_have_different_weights() {
    for (bits, level, reason) in [
        (0x04, Level::Replace, "degraded reliability"),
        (0x08, Level::Replace, "read-only"),
        (0x10, Level::Suspect, "volatile memory"),
    ] {
        let mut disk = Played::new(NVME);
        disk.set("/smart_status/passed", json!(false));
        disk.set("/nvme_smart_health_information_log/critical_warning", json!(bits));
        disk.expect(level, reason);
    }
    let log = "/nvme_smart_health_information_log";
    let mut disk = Played::new(NVME);
    disk.set(&format!("{log}/available_spare"), json!(9));
    disk.expect(Level::Suspect, "9 % of its spare blocks are left");
    let mut disk = Played::new(NVME);
    disk.set(&format!("{log}/percentage_used"), json!(104)).expect(Level::Watch, "104 %");
    // Heat alone replaces no disk, though it does not pass.
    let mut disk = Played::new(NVME);
    disk.set("/smart_status/passed", json!(false));
    disk.set(&format!("{log}/critical_warning"), json!(2)).expect_ok();
}

#[test]
fn scsi_defects_and_failed_self_tests_make_suspects() {
    let mut disk = Played::new(SCSI);
    disk.expect_ok();
    disk.set("/scsi_grown_defect_list", json!(5)).expect(Level::Suspect, "5 new reallocated");
    let mut disk = Played::new(SCSI);
    disk.set("/scsi_pending_defects/count", json!(2)).expect(Level::Suspect, "2 unreadable");
    let mut disk = Played::new(SCSI);
    let failed = json!({ "value": 7, "string": "Failed in segment -->" });
    disk.set("/scsi_self_test_0/result", failed).expect(Level::Suspect, "self-test failed");
    let mut disk = Played::new(SEAGATE);
    let failed = json!({ "value": 121, "string": "Completed: read failure", "passed": false });
    let place = "/ata_smart_self_test_log/standard/table/0/status";
    disk.set(place, failed).expect(Level::Suspect, "completed: read failure");
}

#[test]
fn heat_and_cables_are_watched() {
    let mut disk = Played::new(SEAGATE);
    disk.set("/temperature/current", json!(61)).expect(Level::Watch, "61 °C; the limit is 60 °C");
    let mut disk = Played::new(SEAGATE);
    disk.attribute(199, 40, "40").expect_ok();
    disk.attribute(199, 41, "41").expect(Level::Watch, "check the cable");
}

#[test]
fn errors_in_arrays_count_beside_smart() {
    let mut disk = Played::new(SEAGATE);
    disk.expect_ok();
    disk.own.slow = true;
    disk.expect(Level::Suspect, "far slower");
    disk.own.slow = false;
    disk.expect(Level::Suspect, "far slower");
    assert_eq!(disk.after(SignedDuration::from_hours(25)), Verdict::default(), "a day later");
    disk.own.checksum_errors = 1;
    disk.expect(Level::Suspect, "1 block with a wrong checksum");
    disk.own.read_errors = 4;
    disk.expect(Level::Suspect, "4 failed reads in an array");
    // The array was started again: its counts began anew.
    disk.own.read_errors = 3;
    disk.expect(Level::Suspect, "7 failed reads in an array");
    disk.own.read_errors = 6;
    disk.expect(Level::Replace, "10 failed reads; the limit is 10");
    disk.own.lost = true;
    disk.expect(Level::Fail, "an array has lost it");
    // A second array on the same disk that comes and goes adds no error twice.
    let both = [disk.own.clone(), Own { member: "n".into(), read_errors: 2, ..Own::default() }];
    for own in [&both[..], &both[..1]] {
        let verdict = disk.disk.observe(disk.now, None, own, &disk.settings);
        assert!(verdict.reasons.iter().any(|it| it.starts_with("12 failed reads;")), "{verdict:?}");
    }
}

#[test]
fn another_disk_in_the_same_place_begins_anew() {
    let mut disk = Played::new(SEAGATE);
    disk.own.read_errors = 3;
    disk.expect(Level::Suspect, "3 failed reads");
    disk.own = Own { member: "new".into(), ..Own::default() };
    disk.set("/serial_number", json!("OTHER")).expect_ok();
}

#[test]
fn what_is_remembered_survives_a_restart() {
    let mut disk = Played::new(SEAGATE);
    disk.expect_ok();
    let kept = serde_json::to_string(&disk.disk).unwrap();
    disk.disk = serde_json::from_str(&kept).unwrap();
    disk.attribute(187, 2, "2").expect(Level::Suspect, "2 new uncorrectable errors");
}

/// Every part of a document may be absent or have another type.
#[test]
fn no_document_causes_a_panic() {
    fn paths(value: &Value, path: String, all: &mut Vec<String>) {
        all.push(path.clone());
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| paths(value, format!("{path}/{key}"), all));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.for_each(|(index, value)| paths(value, format!("{path}/{index}"), all));
            }
            _ => {}
        }
    }
    for text in [SEAGATE, NVME, SCSI] {
        let whole: Value = serde_json::from_str(text).unwrap();
        let mut all = Vec::new();
        paths(&whole, String::new(), &mut all);
        for path in all {
            for other in [json!(null), json!("x y"), json!(-1), json!(u64::MAX), json!([[1]])] {
                let mut document = whole.clone();
                *document.pointer_mut(&path).unwrap() = other;
                if let Answer::Reading(reading) = read(document.to_string().as_bytes()) {
                    let now = Timestamp::UNIX_EPOCH;
                    let mut disk = Disk::default();
                    disk.observe(now, Some(&reading), &[], &Settings::default());
                }
            }
        }
        for end in (0..text.len()).step_by(97) {
            read(&text.as_bytes()[..end]);
        }
    }
}

fn standing(levels: &[Level], spares: &[Level]) -> Standing {
    let member = |start: char| {
        move |(index, &level): (usize, &Level)| PlannedMember {
            member: format!("{start}{index}"),
            level,
            places: Vec::new(),
        }
    };
    Standing {
        members: levels.iter().enumerate().map(member('m')).collect(),
        spares: spares.iter().enumerate().map(member('s')).collect(),
        is_whole: true,
        is_replacing: false,
        is_writable: true,
        is_busy: false,
        since_read: None,
        capacity: 1 << 40,
    }
}

#[test]
fn never_two_members_of_an_array_at_once() {
    use Level::{Fail, Ok, Replace, Suspect, Watch};
    let of = |array: &Standing| Plan::of(Policy::ReplaceIfSpare, array);
    let two = standing(&[Ok, Replace, Replace, Fail], &[Suspect, Watch, Ok]);
    let plan = of(&two);
    assert_eq!(plan.replace, Some(("m3".into(), "s2".into())), "the worst, to the best spare");
    let others = vec![("m1".into(), Wait::Other), ("m2".into(), Wait::Other)];
    assert_eq!(plan.waiting, others);
    for (array, wait) in [
        (Standing { is_replacing: true, ..two.clone() }, Wait::Other),
        (Standing { is_whole: false, ..two.clone() }, Wait::Degraded),
        (Standing { is_writable: false, ..two.clone() }, Wait::ReadOnly),
        (Standing { spares: Vec::new(), ..two.clone() }, Wait::NoSpare),
        (standing(&[Replace, Replace, Replace], &[Suspect, Replace]), Wait::NoSpare),
    ] {
        let plan = of(&array);
        assert_eq!(plan.replace, None);
        assert!(plan.waiting.len() == 3 && plan.waiting.iter().all(|(_, it)| *it == wait));
    }
    assert_eq!(Plan::of(Policy::Alert, &two).waiting[0].1, Wait::Policy);
    assert_eq!(of(&standing(&[Suspect, Watch], &[Ok])), Plan::default(), "alert below replace");
}

/// An array of four members with these levels; those with a mark have erred at 1 GiB.
fn erring(levels: [(Level, bool); 4], spares: &[Level]) -> Standing {
    let mut array = standing(&levels.map(|(level, _)| level), spares);
    for (member, (_, erred)) in array.members.iter_mut().zip(levels) {
        member.places.extend(erred.then_some(1 << 30..(1 << 30) + 4096));
    }
    array
}

#[test]
fn the_surroundings_of_a_suspects_errors_are_read_one_suspect_at_a_time() {
    use Level::{Ok, Replace, Suspect, Watch};
    const MIB: u64 = 1 << 20;
    let part = (1 << 30) - 128 * MIB..(1 << 30) + 4096 + 128 * MIB;
    let read = |array: &Standing| Plan::of(Policy::ReplaceIfSpare, array).read;
    let of = |member: &str| Some((member.to_owned(), part.clone()));
    let one = erring([(Ok, true), (Watch, true), (Suspect, true), (Suspect, false)], &[Ok]);
    assert_eq!(read(&one), of("m2"), "only suspects, and only where the place is known");
    let two = erring([(Ok, false), (Suspect, true), (Suspect, true), (Ok, false)], &[]);
    assert_eq!(read(&two), of("m1"), "the lowest slot of two");
    let worse = erring([(Suspect, true), (Ok, false), (Replace, true), (Ok, false)], &[]);
    assert_eq!(read(&worse), of("m2"), "the worst, which no spare can replace");

    // Never beside other work on the array, least of all a replacement of another member.
    let hour = Duration::from_secs(3600);
    for (other, wanted) in [
        (erring([(Suspect, true), (Replace, false), (Ok, false), (Ok, false)], &[Ok]), None),
        (Standing { is_replacing: true, ..two.clone() }, None),
        (Standing { is_busy: true, ..two.clone() }, None),
        (Standing { is_whole: false, ..two.clone() }, None),
        (Standing { is_writable: false, ..two.clone() }, None),
        (Standing { since_read: Some(hour - Duration::from_secs(1)), ..two.clone() }, None),
        (Standing { since_read: Some(hour), ..two.clone() }, of("m1")),
    ] {
        assert_eq!(read(&other), wanted, "{other:?}");
    }
    for policy in [Policy::Alert, Policy::Off] {
        assert_eq!(Plan::of(policy, &two).read, None, "report only");
    }
}

#[test]
fn what_is_read_around_errors_is_bounded_and_in_the_array() {
    const MIB: u64 = 1 << 20;
    let read = |places: &[Range<u64>], capacity| {
        let mut array = erring([(Level::Suspect, false); 4], &[]);
        (array.members[0].places, array.capacity) = (places.to_vec(), capacity);
        Plan::of(Policy::ReplaceIfSpare, &array).read.map(|(_, range)| range)
    };
    let at = |start: u64| start * MIB..start * MIB + 1;
    let all = 1 << 40;
    assert_eq!(read(&[at(0)], all), Some(0..128 * MIB + 1));
    assert_eq!(read(&[at(5)], 10 * MIB), Some(0..10 * MIB));
    // Close places are read together, whatever their order; far ones wait.
    assert_eq!(read(&[at(400), at(200)], all), Some(72 * MIB..528 * MIB + 1));
    assert_eq!(read(&[at(200), at(500)], all), Some(72 * MIB..328 * MIB + 1));
    let many: Vec<Range<u64>> = (0..100).map(|index| at(200 + 100 * index)).collect();
    assert!(read(&many, all).is_some_and(|range| range.end - range.start <= 1 << 30));
    assert_eq!(read(&vec![0..u64::MAX; 2], all), Some(0..1 << 30));
    // What a server reports is input from outside.
    assert_eq!(read(&vec![all..all + 1; 2], 10), None);
}
