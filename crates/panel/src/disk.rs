//! The page of a disk: what its array sees of it beside its peers, and what it says of itself.
//!
//! Not live: its SMART data changes every 90 minutes at most. Needs no JavaScript.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::chart::chart;
use crate::document::{Array, Attribute, Day, DiskRecord, Latency, Member, SelfTest};
use crate::forms::{Outcome, button, result, shell};
use crate::html::{
    age, badge, disk_health, fact, former, glyph, health_level, level_class, member_level, millis,
    state_words,
};
use crate::metrics::places;
use crate::verdict::{Level, size};

/// Values whose growth means errors or wear: ATA's numbers, and the names of NVMe and SCSI.
const TELLING: [&str; 14] = [
    "5",
    "187",
    "188",
    "197",
    "198",
    "199",
    "critical_warning",
    "available_spare",
    "percentage_used",
    "media_errors",
    "scsi_grown_defect_list",
    "scsi_pending_defects",
    "read_uncorrected_errors",
    "verify_uncorrected_errors",
];

/// A disk, as its page shows it.
pub(crate) struct Subject<'a> {
    pub(crate) array: &'a Array,
    pub(crate) member: &'a Member,
    /// The whole disks below the member, or why they are not known.
    pub(crate) disks: Result<Vec<DiskRecord>, String>,
}

/// The address of the page of a member.
pub(crate) fn address(array: &Array, member: &Member) -> String {
    format!("disk?array={}&member={}", array.uuid, member.uuid)
}

/// Returns the member of this UUID, serial number or slot.
pub(crate) fn find<'a>(
    arrays: &'a [Array],
    array: &str,
    member: &str,
) -> Option<(&'a Array, &'a Member)> {
    let own = arrays.iter().filter(|it| array.is_empty() || it.uuid == array || it.name == array);
    let pairs = own.flat_map(|array| places(array).into_iter().map(move |place| (array, place)));
    let is_it = |(_, (it, slot, _)): &(&Array, (&Member, Option<usize>, _))| {
        it.uuid == member
            || it.serial.as_deref() == Some(member)
            || slot.is_some_and(|slot| slot.to_string() == member)
    };
    let found = pairs.filter(|_| !member.is_empty()).find(is_it);
    found.map(|(array, (member, ..))| (array, member))
}

/// The page. Its forms have this token; without one, it has none.
pub(crate) fn page(
    subject: &Subject<'_>,
    outcome: Option<&Outcome>,
    now: Timestamp,
    token: Option<&str>,
) -> String {
    let Subject { array, member, disks } = subject;
    let own = places(array).into_iter().find(|(it, ..)| it.uuid == member.uuid);
    let (place, state) = own.map_or((former(member), "failed"), |(_, slot, state)| {
        (slot.map_or_else(|| former(member), |slot| format!("slot {slot}")), state)
    });
    let (level, words) = (member_level(member, state), state_words(state).1);
    let name = array.disk_name(member);
    let body = html! {
        @if let Some(outcome) = outcome { (result(outcome)) }
        section {
            h2.verdict.(level_class(level)) {
                (glyph(level)) " " (name) ": " (words) ", " (place) " of " (array.name)
            }
            @if let Some(token) = token {
                p.actions { a href=(format!("act?array={}", array.uuid)) { "Actions" } }
                (locate(array, member, token))
            }
            dl { (own_facts(member)) }
            @if let Some(health) = &member.health { div.health { (disk_health(health)) } }
            @for reason in member.health.iter().flat_map(|it| it.reasons.iter().skip(1)) {
                p { (reason) }
            }
            (peers(array, member))
        }
        @match disks {
            Ok(disks) => @for disk in disks { (whole_disk(disk, now)) },
            Err(why) => section { p { "The server does not describe the disk: " (why) } },
        }
        @if disks.as_ref().is_ok_and(Vec::is_empty) {
            section { p.faint { "The member is on no disk of this machine: a file, an array, or a \
                                 disk of another machine." } }
        }
    };
    shell(&format!("{name}: disk of {}", array.name), body)
}

/// Buttons that switch the LED.
fn locate(array: &Array, member: &Member, token: &str) -> Markup {
    let base = [("array", array.uuid.as_str()), ("member", &member.uuid), ("verb", "locate")];
    html! {
        div.buttons {
            @for (off, words) in [("", "Locate LED on"), ("1", "Locate LED off")] {
                (button(token, &[&base[..], &[("off", off)]].concat(), words))
            }
        }
    }
}

fn own_facts(member: &Member) -> Markup {
    let errors = [
        ("read", member.read_errors),
        ("write", member.write_errors),
        ("checksum", member.checksum_errors),
    ];
    let errors = errors.map(|(kind, count)| format!("{count} {kind}")).join(", ");
    html! {
        (fact("Path", &member.name))
        (fact("Errors in the array", &errors))
        @if member.repaired_bytes > 0 { (fact("Repaired", &size(member.repaired_bytes))) }
        @if member.bad_bytes > 0 { (fact("Bad blocks", &size(member.bad_bytes))) }
        (fact("Read and written", &format!(
            "{}, {}", size(member.read_bytes), size(member.written_bytes)
        )))
        @if let Some(trouble) = &member.trouble { (fact("Trouble", trouble)) }
    }
}

/// Latencies of all members in service, by slot.
fn peers(array: &Array, member: &Member) -> Markup {
    let mut rows = places(array);
    rows.retain(|(it, slot, _)| slot.is_some() || it.uuid == member.uuid);
    rows.sort_by_key(|(_, slot, _)| slot.unwrap_or(usize::MAX));
    let cell = |latency: Option<Latency>| match latency {
        Some(latency) => format!("{} / {}", millis(latency.p50_us), millis(latency.p99_us)),
        None => "not enough requests".into(),
    };
    html! {
        h3 { "Latency beside its peers" }
        table {
            thead { tr {
                th scope="col" { "Disk" }
                th scope="col" { "Read p50 / p99" }
                th scope="col" { "Write p50 / p99" }
            } }
            tbody {
                @for (it, slot, _) in rows {
                    @let is_own = it.uuid == member.uuid;
                    tr.own[is_own] aria-current=[is_own.then_some("true")] {
                        th scope="row" {
                            @if is_own { "▶ " }
                            @if let Some(slot) = slot { "slot " (slot) ": " }
                            @if is_own { (array.disk_name(it)) } @else {
                                a href=(address(array, it)) { (array.disk_name(it)) }
                            }
                            @if it.slow { " " (badge(Level::Warning, "slow")) }
                        }
                        td { (cell(it.read_latency)) }
                        td { (cell(it.write_latency)) }
                    }
                }
            }
        }
    }
}

fn whole_disk(disk: &DiskRecord, now: Timestamp) -> Markup {
    let kind = disk.rotational.map(|rotates| if rotates { "rotates" } else { "solid state" });
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
    html! {
        section {
            h2 { (disk.path) }
            dl {
                (fact("Model", &or_unknown(&disk.model)))
                (fact("Serial number", &or_unknown(&disk.serial)))
                (fact("Size", &size(disk.bytes)))
                @if let Some(kind) = kind { (fact("Kind", kind)) }
                @if let Some(hours) = disk.power_on_hours {
                    (fact("In service", &format!("{hours} h ({} days)", hours / 24)))
                }
                @if let Some(passed) = disk.passed {
                    (fact("Own check", if passed { "passed" } else { "failed" }))
                }
                @if let Some(read_at) = disk.read_at { (fact("SMART data", &age(read_at, now))) }
            }
            @if disk.read_at.is_none() {
                p.faint { "No SMART data: the server does not watch disks (--health), or the disk \
                           has none." }
            } @else {
                (temperature(disk))
                (attributes(disk))
                (changes(disk))
                (self_tests(&disk.self_tests))
            }
        }
    }
}

fn temperature(disk: &DiskRecord) -> Markup {
    let points: Vec<(Day<'_>, i64)> =
        disk.days.iter().filter_map(|day| Some((day, day.temperature_celsius?))).collect();
    let (Some(least), Some(most)) =
        (points.iter().map(|it| it.1).min(), points.iter().map(|it| it.1).max())
    else {
        return html! {};
    };
    let now = disk.temperature_celsius.map(|now| format!("{now} °C now, "));
    let words = format!("{}{least} to {most} °C {}", now.unwrap_or_default(), span(disk));
    html! {
        h3 { "Temperature" }
        p { (words) }
        (chart(&points.iter().map(|(day, value)| (day.day, *value)).collect::<Vec<_>>(), &words))
    }
}

/// The time that the history covers.
fn span(disk: &DiskRecord) -> String {
    match (disk.days.first(), disk.days.len()) {
        (Some(first), 2..) => format!("since {}", first.day),
        _ => "today".into(),
    }
}

fn attributes(disk: &DiskRecord) -> Markup {
    html! {
        h3 { "SMART values" }
        table.smart {
            thead { tr {
                th scope="col" { "ID" } th scope="col" { "Name" } th scope="col" { "Raw value" }
                th scope="col" { "History" }
            } }
            tbody { @for attribute in &disk.attributes { (attribute_row(disk, attribute)) } }
        }
    }
}

fn attribute_row(disk: &DiskRecord, attribute: &Attribute) -> Markup {
    let points: Vec<_> =
        disk.days.iter().filter_map(|day| Some((day.day, day.raw(&attribute.id)?))).collect();
    let first = points.first().map(|point| point.1);
    let words = match first {
        Some(first) if points.iter().any(|point| point.1 != first) => {
            format!("{first} → {} {}", attribute.raw, span(disk))
        }
        _ => String::new(),
    };
    let normalized = [
        attribute.value.map(|value| format!("value {value}")),
        attribute.worst.map(|worst| format!("worst {worst}")),
        attribute.threshold.map(|threshold| format!("threshold {threshold}")),
    ];
    let normalized: Vec<String> = normalized.into_iter().flatten().collect();
    html! {
        tr {
            // NVMe and SCSI have names only.
            td { @if attribute.value.is_some() { (attribute.id) } }
            th scope="row" {
                (attribute.name)
                @if !normalized.is_empty() { p.faint { (normalized.join(", ")) } }
            }
            td.number { (attribute.raw) }
            td {
                @if words.is_empty() { span.faint { "no change" } } @else {
                    (chart(&points, &words)) p.faint { (words) }
                }
            }
        }
    }
}

/// The days on which the health or an error count changed, the latest first.
fn changes(disk: &DiskRecord) -> Markup {
    let name = |id: &str| {
        let found = disk.attributes.iter().find(|attribute| attribute.id == id);
        found.map_or_else(|| id.to_owned(), |attribute| attribute.name.clone())
    };
    let change = |(before, after): (Day<'_>, Day<'_>)| {
        let mut words = Vec::new();
        if before.level != after.level {
            words.push(format!("health: {} → {}", before.level.text(), after.level.text()));
        }
        for id in TELLING {
            let (old, new) = (before.raw(id), after.raw(id));
            if let (Some(old), Some(new)) = (old, new)
                && old != new
            {
                words.push(format!("{}: {old} → {new}", name(id)));
            }
        }
        (!words.is_empty()).then(|| (after.day, after.level, words.join(", ")))
    };
    let pairs = disk.days.iter().zip(disk.days.iter().skip(1));
    let mut found: Vec<_> = pairs.filter_map(change).collect();
    found.reverse();
    html! {
        h3 { "History" }
        @if found.is_empty() {
            p { "No change of health or error counts " (span(disk)) "." }
        } @else {
            ol.days {
                @for (day, level, words) in found {
                    li { time.faint datetime=(day) { (day) }
                         p { (glyph(health_level(level))) " " (words) } }
                }
            }
        }
        p.faint { "Readings that are kept, one a day: " (disk.days.len()) }
    }
}

fn self_tests(tests: &[SelfTest]) -> Markup {
    let outcome = |test: &SelfTest| match test.passed {
        Some(true) => badge(Level::Good, &test.result),
        Some(false) => badge(Level::Critical, &test.result),
        None => html! { p { (test.result) } },
    };
    html! {
        h3 { "Self-tests" }
        @if tests.is_empty() { p { "None in the log of the disk." } } @else {
            table {
                thead { tr {
                    th scope="col" { "Test" } th scope="col" { "Result" }
                    th scope="col" { "In service" }
                } }
                tbody { @for test in tests { tr {
                    th scope="row" { (test.kind) }
                    td { (outcome(test)) }
                    td { @if let Some(hours) = test.power_on_hours { (hours) " h" } }
                } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::healthy;

    fn record(days: &str) -> DiskRecord {
        let text = format!(
            "{{\"path\":\"/dev/sda\",\"model\":\"<b>\",\"serial\":\"S1\",\"bytes\":4096,
            \"rotational\":true,\"read_at\":\"1970-01-01T00:00:00Z\",\"passed\":true,
            \"power_on_hours\":48,\"temperature_celsius\":41,\"attributes\":[{{\"id\":\"5\",
            \"name\":\"Reallocated <i>\",\"raw\":3,\"value\":99,\"worst\":98,\"threshold\":10}}],
            \"self_tests\":[{{\"kind\":\"<s>\",\"result\":\"<u>\",\"passed\":false,
            \"power_on_hours\":7}}],\"days\":[{days}]}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    fn day(day: u32, level: &str, celsius: i64, reallocated: u64) -> String {
        let values = format!("[{{\"id\":\"5\",\"raw\":{reallocated}}}]");
        format!(
            "{{\"day\":\"2026-03-{day:02}\",\"level\":\"{level}\",\"temperature_celsius\":{celsius},
            \"values\":{values}}}"
        )
    }

    fn shown(disks: Result<Vec<DiskRecord>, String>, token: Option<&str>) -> String {
        let mut array = healthy();
        for (slot, uuid) in ["a0", "a1", "a2", "a3"].iter().enumerate() {
            array.slots[slot].member.as_mut().unwrap().uuid = (*uuid).into();
        }
        let arrays = [array];
        let (array, member) = find(&arrays, "tank", "S1").unwrap();
        page(&Subject { array, member, disks }, None, Timestamp::UNIX_EPOCH, token)
    }

    #[test]
    fn a_disk_is_found_by_uuid_serial_number_and_slot() {
        let mut array = healthy();
        array.slots[2].member.as_mut().unwrap().uuid = "a2".into();
        let arrays = [array];
        let name = |array: &str, member: &str| {
            find(&arrays, array, member).map(|(_, member)| member.name.clone())
        };
        for (array, member) in [("01:02", "a2"), ("tank", "2"), ("", "S2"), ("", "2")] {
            assert_eq!(name(array, member).as_deref(), Some("/dev/sd2"), "{array} {member}");
        }
        for (array, member) in [("", ""), ("tank", ""), ("vault", "a2"), ("tank", "9")] {
            assert_eq!(name(array, member), None, "{array} {member}");
        }
    }

    #[test]
    fn the_history_has_the_days_of_changes_and_text_from_disks_adds_no_markup() {
        let days = [day(1, "ok", 30, 0), day(2, "ok", 44, 0), day(4, "watch", 41, 3)].join(",");
        let page = shown(Ok(vec![record(&days)]), None);
        let change = "health: ok → watch, Reallocated &lt;i&gt;: 0 → 3";
        assert_eq!(page.matches(change).count(), 1, "{page}");
        assert!(page.contains("<time class=\"faint\" datetime=\"2026-03-04\">"), "{page}");
        assert!(page.contains("41 °C now, 30 to 44 °C since 2026-03-01"), "{page}");
        assert!(page.contains("value 99, worst 98, threshold 10"), "{page}");
        for markup in ["<b>", "<i>", "<s>", "<u>", "style=", "<script", "<form"] {
            assert!(!page.contains(markup), "{markup}: {page}");
        }
        assert_eq!(page.matches("aria-current=\"true\"").count(), 1);
        assert!(page.contains("href=\"disk?array=01:02&amp;member=a2\""), "{page}");
    }

    #[test]
    fn one_day_and_no_day_are_shown_and_forms_have_the_token() {
        for days in ["", &day(1, "ok", 30, 3)] {
            let page = shown(Ok(vec![record(days)]), Some("t0ken"));
            assert!(page.contains("No change of health or error counts today."), "{page}");
            assert!(!page.contains("class=\"chart\""), "{page}");
            assert_eq!(page.matches("name=\"token\" value=\"t0ken\"").count(), 2);
        }
        assert!(shown(Err("<no>".into()), None).contains("does not describe the disk: &lt;no&gt;"));
    }
}
