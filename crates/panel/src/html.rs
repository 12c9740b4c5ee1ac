//! The page: a sentence for each array, then its facts.
//!
//! Elements with `data-live` are replaced when their content changes (`assets/panel.js`); each has
//! an id that is unique in the page. No inline style and no inline script: the content security
//! policy forbids them. A colour never stands alone: a glyph and a word are beside it.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use crate::disk;
use crate::document::{
    Array, DiskHealth, Event, HealthLevel, Job, Member, Problem, Severity, SlotState, State,
};
use crate::forms::logout;
use crate::map::{self, Part};
use crate::metrics::places;
use crate::source::Snapshot;
use crate::verdict::{self, Level, sentence, size, span};

/// Seconds between reloads of the page without JavaScript.
const RELOAD_SECONDS: u32 = 10;

/// What the page offers beside the facts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Offer<'a> {
    /// Each array has a link to its actions.
    pub(crate) actions: bool,
    /// The token of the button that ends the session.
    pub(crate) logout: Option<&'a str>,
}

/// The whole page.
pub(crate) fn page(snapshot: &Snapshot, now: Timestamp, offer: Offer<'_>) -> String {
    let time = now.strftime("%Y-%m-%d %H:%M:%S UTC");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(&title(snapshot)))
                script src="panel.js" defer {}
                noscript { meta http-equiv="refresh" content=(RELOAD_SECONDS); }
            }
            body {
                header { h1 { "Parapet" } p #connection { "State at " (time) } }
                main { (content(snapshot, now, offer.actions)) }
                footer {
                    p { @if !offer.actions { "Read-only. Commands are run on the command line. " }
                        a href="metrics" { "Metrics" } }
                    @if let Some(token) = offer.logout { (logout(token)) }
                }
            }
        }
    }
    .into_string()
}

/// The live part of the page, with its title, as it is sent to a page that is open.
pub(crate) fn fragment(snapshot: &Snapshot, now: Timestamp, actions: bool) -> String {
    html! { title { (title(snapshot)) } (content(snapshot, now, actions)) }.into_string()
}

/// The head that all pages have.
pub(crate) fn head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        title { (title) }
        link rel="icon" href="icon.svg" type="image/svg+xml";
        link rel="stylesheet" href="style.css";
    }
}

/// The verdict on a page that is not live.
pub(crate) fn verdict_line(array: &Array) -> Markup {
    let level = Level::of(array);
    html! { h2.verdict.(level_class(level)) { (glyph(level)) " " (sentence(array)) } }
}

/// The sentence of the array in the worst state.
fn title(snapshot: &Snapshot) -> String {
    let silent = snapshot.servers.iter().any(|(_, error)| error.is_some());
    match snapshot.arrays.iter().max_by_key(|array| Level::of(array)) {
        _ if silent => "Parapet: a server does not answer".into(),
        Some(array) => sentence(array),
        None => "Parapet: no array is being served".into(),
    }
}

fn content(snapshot: &Snapshot, now: Timestamp, actions: bool) -> Markup {
    html! {
        div #servers data-live {
            @for (socket, error) in &snapshot.servers {
                @if let Some(error) = error {
                    p.verdict.critical role="alert" {
                        (glyph(Level::Critical)) " " (socket.display()) ": " (error)
                    }
                }
            }
            @if snapshot.arrays.is_empty() { p { "No array is being served." } }
        }
        @for array in &snapshot.arrays { (section(array, now, actions)) }
    }
}

fn section(array: &Array, now: Timestamp, actions: bool) -> Markup {
    let plain: String = array.uuid.chars().filter(char::is_ascii_alphanumeric).collect();
    let id = |part: &str| format!("{part}-{plain}");
    let level = Level::of(array);
    html! {
        section aria-labelledby=(id("verdict")) {
            h2 #(id("verdict")) .verdict.(level_class(level)) data-live aria-live="polite" {
                (glyph(level)) " " (sentence(array))
            }
            @if actions {
                p.actions { a href=(format!("act?array={}", array.uuid)) { "Actions" } }
            }
            div #(id("problems")) data-live { (problems(&array.problems)) }
            div #(id("job")) data-live { @if let Some(job) = &array.job { (job_bar(job)) } }
            dl #(id("facts")) data-live { (facts(array, now)) }
            div #(id("members")) data-live { (members(array)) }
            div #(id("map")) data-live { (stripe_map(array)) }
            div #(id("exports")) data-live { (exports(array)) }
            div #(id("events")) data-live { (timeline(&array.events)) }
        }
    }
}

pub(crate) fn level_class(level: Level) -> &'static str {
    match level {
        Level::Good => "good",
        Level::Busy => "busy",
        Level::Warning => "warning",
        Level::Critical => "critical",
    }
}

/// A sign beside a word that has the same meaning.
pub(crate) fn glyph(level: Level) -> Markup {
    let sign = match level {
        Level::Good => "✓",
        Level::Busy => "↻",
        Level::Warning => "!",
        Level::Critical => "✕",
    };
    html! { span.glyph.(level_class(level)) aria-hidden="true" { (sign) } }
}

fn problems(problems: &[Problem]) -> Markup {
    html! {
        @if !problems.is_empty() {
            h3 { "Problems" }
            ul.problems {
                @for problem in problems {
                    li {
                        p { (problem.message) " " small { (problem.id) } }
                        @for command in commands(&problem.action) { pre { code { (command) } } }
                    }
                }
            }
        }
    }
}

/// Cuts alternatives apart, so that each can be copied: `parapet re-add …, or parapet add …`.
fn commands(action: &str) -> Vec<&str> {
    let each: Vec<&str> = action.split(", or ").collect();
    if each.iter().all(|part| part.starts_with("parapet ")) { each } else { vec![action] }
}

fn job_bar(job: &Job) -> Markup {
    let rate = job.bytes_per_second.filter(|&rate| rate > 0);
    let rate = rate.map(|rate| format!(", {}/s", size(rate)));
    let limit = job.limited_by.as_ref().map(|limit| format!(", limited by {limit}"));
    let done = format!("{} of {}", size(job.done_bytes), size(job.total_bytes));
    html! {
        h3 { "Job" }
        p { (job.kind.activity()) ": " (job.percent) " %, " (left(job)) }
        progress max="100" value=(job.percent) aria-label=(job.kind.activity()) {}
        p.faint { (done) (rate.unwrap_or_default()) (limit.unwrap_or_default()) }
    }
}

fn left(job: &Job) -> String {
    match job.seconds_left {
        Some(_) => verdict::progress(job),
        None => "no estimate yet".into(),
    }
}

fn facts(array: &Array, now: Timestamp) -> Markup {
    let chunk = match array.chunk_bytes {
        0 => String::new(),
        bytes => format!(", chunk {}", size(bytes)),
    };
    let layout = match array.layout.as_str() {
        "none" => String::new(),
        layout => format!(", {layout}"),
    };
    let whole = array.slots.iter().filter(|slot| slot.state == SlotState::InSync).count();
    html! {
        (fact("Level", &format!("{}{layout}{chunk}", array.level)))
        (fact("Size", &size(array.capacity_bytes)))
        (fact("Redundancy left", &redundancy(array)))
        (fact("Disks in sync", &format!("{whole} of {}", array.slots.len())))
        (fact("Spares", &array.spares.len().to_string()))
        @if array.unsynced_bytes > 0 { (fact("Out of sync", &size(array.unsynced_bytes))) }
        @if array.bad_bytes > 0 { (fact("Unrecoverable", &size(array.bad_bytes))) }
        @if array.redundancy > 0 {
            (fact("Checksums", &checksums(array)))
            (fact("Last scrub", &last_scrub(array, now)))
            @if let Some(place) = interrupted_scrub(array) { (fact("Scrub interrupted", &place)) }
        }
    }
}

pub(crate) fn fact(name: &str, text: &str) -> Markup {
    html! { div { dt { (name) } dd { (text) } } }
}

fn redundancy(array: &Array) -> String {
    match (array.state, array.redundancy) {
        (State::Failed, _) => "none: data is not available".into(),
        (_, 0) => "none: this level has no redundancy".into(),
        (_, most) => format!("{} of {most}: {}", array.redundancy_left, verdict::redundancy(array)),
    }
}

fn checksums(array: &Array) -> String {
    match array.unsummed_bytes {
        None => "off".into(),
        Some(0) => "on".into(),
        Some(bytes) => format!("on; {} have none yet", size(bytes)),
    }
}

fn last_scrub(array: &Array, now: Timestamp) -> String {
    let Some(scrub) = &array.last_scrub else {
        return match array.scrub_record.completed {
            Some(ended) => format!("{}, complete", age(ended, now)),
            None => "none yet".into(),
        };
    };
    let age = age(scrub.ended, now);
    let end = if scrub.complete { "complete" } else { "stopped before the end" };
    let result = match (scrub.mismatches, scrub.mismatches_left()) {
        (0, _) => "no mismatch".into(),
        (found, 0) => format!("{found} mismatches, all repaired"),
        (found, left) => format!("{found} mismatches, {left} not repaired"),
    };
    format!("{age}, {end}, {result}")
}

pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    // Minutes are enough, and an open page changes less often.
    match u64::try_from(seconds).unwrap_or(0) {
        0..60 => "just now".into(),
        seconds => format!("{} ago", span(seconds / 60 * 60)),
    }
}

/// Describes a scrub that can be continued.
fn interrupted_scrub(array: &Array) -> Option<String> {
    let position = array.scrub_record.position_bytes;
    let is_at_rest = position > 0 && array.job.is_none();
    let size = |bytes| verdict::size(bytes);
    is_at_rest.then(|| format!("at {} of {}", size(position), size(array.capacity_bytes)))
}

fn members(array: &Array) -> Markup {
    let mut rows = places(array);
    let missing = array.slots.iter().filter(|slot| slot.state == SlotState::Missing);
    let empty: Vec<usize> = missing.map(|slot| slot.slot).collect();
    // In slot order; spares and failed disks last.
    rows.sort_by_key(|(_, slot, _)| slot.unwrap_or(usize::MAX));
    html! {
        h3 { "Disks" }
        ul.members {
            @for slot in 0..array.slots.len() {
                @if empty.contains(&slot) {
                    li.critical { p.place { "slot " (slot) } (badge(Level::Critical, "missing")) }
                }
                @for (member, _, state) in rows.iter().filter(|(_, its, _)| *its == Some(slot)) {
                    (disk(array, member, &format!("slot {slot}"), state))
                }
            }
            @for (member, _, state) in rows.iter().filter(|(_, its, _)| its.is_none()) {
                (disk(array, member, &former(member), state))
            }
        }
    }
}

pub(crate) fn former(member: &Member) -> String {
    member.last_slot.map_or("no slot".into(), |slot| format!("was slot {slot}"))
}

/// The words for the state of a disk, and how serious it is.
pub(crate) fn state_words(state: &str) -> (Level, &str) {
    match state {
        "active" => (Level::Good, "in sync"),
        "spare" => (Level::Good, "spare"),
        "rebuilding" => (Level::Busy, "being filled"),
        "replaced" => (Level::Busy, "replaced"),
        other => (Level::Critical, other),
    }
}

fn disk(array: &Array, member: &Member, place: &str, state: &str) -> Markup {
    let (level, word) = (member_level(member, state), state_words(state).1);
    let errors = errors(member);
    let health = member.health.as_ref();
    let name = array.disk_name(member);
    html! {
        li.(level_class(level)) {
            p.place { (place) }
            (badge(level, word))
            p.name { a href=(disk::address(array, member)) { (name) } }
            @if name != member.name { p.faint.name { (member.name) } }
            @if let Some(trouble) = &member.trouble { p { (trouble) } }
            @if member.slow { p { "slower than the others" } }
            @if errors > 0 {
                p { "errors: " (member.read_errors) " read, " (member.write_errors) " write, "
                    (member.checksum_errors) " checksum" }
            } @else if !is_marked(member) && level < Level::Critical {
                p.faint { "no errors" }
            }
            @if member.bad_bytes > 0 { p { (size(member.bad_bytes)) " of bad blocks" } }
            @if let Some(health) = health { (disk_health(health)) }
            @if let Some(latency) = member.read_latency {
                p.faint { "read " (millis(latency.p50_us)) ", p99 " (millis(latency.p99_us)) }
            }
        }
    }
}

/// How serious the state of a member and its disk is.
pub(crate) fn member_level(member: &Member, state: &str) -> Level {
    let marked = if is_marked(member) { Level::Warning } else { Level::Good };
    let health = member.health.as_ref().map_or(Level::Good, |health| health_level(health.level));
    state_words(state).0.max(marked).max(health)
}

fn errors(member: &Member) -> u64 {
    member.read_errors + member.write_errors + member.checksum_errors
}

/// True if the array has something against a member.
fn is_marked(member: &Member) -> bool {
    errors(member) > 0 || member.bad_bytes > 0 || member.slow || member.trouble.is_some()
}

pub(crate) fn health_level(level: HealthLevel) -> Level {
    match level {
        HealthLevel::Ok => Level::Good,
        HealthLevel::Watch | HealthLevel::Suspect | HealthLevel::Unknown => Level::Warning,
        HealthLevel::Replace | HealthLevel::Fail => Level::Critical,
    }
}

/// The health of a disk, its worst reason, the step that is taken, and its temperature.
pub(crate) fn disk_health(health: &DiskHealth) -> Markup {
    let celsius = health.temperature_celsius.map(|celsius| format!("{celsius} °C"));
    let words = [Some(format!("health: {}", health.level.text())), celsius];
    let line = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let is_ok = health.level == HealthLevel::Ok;
    html! {
        @if is_ok { p.faint { (line) } } @else { p { (line) } }
        @for words in health.reasons.first().into_iter().chain(&health.step) { p { (words) } }
    }
}

/// The latest events, the newest first.
fn timeline(events: &[Event]) -> Markup {
    html! {
        @if !events.is_empty() {
            h3 { "Events" }
            ol.events { @for event in events { (timeline_entry(event)) } }
        }
    }
}

fn timeline_entry(event: &Event) -> Markup {
    let level = match event.severity {
        Severity::Info => None,
        Severity::Warning | Severity::Unknown => Some(Level::Warning),
        Severity::Error => Some(Level::Critical),
    };
    // Many messages name the member.
    let member = event.member.as_ref().filter(|member| !event.message.contains(*member));
    html! {
        li {
            time.faint datetime=(event.time) { (event.time.strftime("%Y-%m-%d %H:%M:%SZ")) }
            p.badge { @if let Some(level) = level { (glyph(level)) " " } (event.event) }
            p.name { @if let Some(member) = member { (member) ": " } (event.message) }
        }
    }
}

pub(crate) fn badge(level: Level, word: &str) -> Markup {
    html! { p.badge { (glyph(level)) " " (word) } }
}

/// Formats microseconds; two digits keep an open page quiet.
pub(crate) fn millis(micros: u64) -> String {
    match micros {
        0..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{} ms", micros / 1000),
    }
}

/// Parts in a row of the map, and the edge of a part.
const COLUMNS: usize = 32;
const EDGE: usize = 10;

fn stripe_map(array: &Array) -> Markup {
    let parts = map::parts(array);
    if parts.is_empty() {
        return html! {};
    }
    let mut legend: Vec<Part> = parts.clone();
    legend.sort_unstable();
    legend.dedup();
    let share = |part: Part| {
        let count = parts.iter().filter(|&&other| other == part).count();
        let percent = (count * 100 + parts.len() / 2) / parts.len();
        format!("{} {} %", part.text(), percent.max(1))
    };
    let words: Vec<String> = legend.iter().map(|&part| share(part)).collect();
    let (wide, high) = (COLUMNS * EDGE, parts.len().div_ceil(COLUMNS) * EDGE);
    html! {
        h3 { "Stripes" }
        svg.map viewBox=(format!("0 0 {wide} {high}")) role="img" aria-label=(words.join(", ")) {
            @for (index, part) in parts.iter().enumerate() {
                (square(*part, index % COLUMNS * EDGE, index / COLUMNS * EDGE))
            }
        }
        ul.legend {
            @for (part, words) in legend.iter().zip(&words) {
                li { svg viewBox=(format!("0 0 {EDGE} {EDGE}")) aria-hidden="true" {
                    (square(*part, 0, 0))
                } " " (words) }
            }
        }
    }
}

/// Draws a part. The shape differs too, not only the colour.
fn square(part: Part, x: usize, y: usize) -> Markup {
    let path = match part {
        Part::Bad => Some(format!("M{} {}l4 4m0 -4l-4 4", x + 3, y + 3)),
        Part::Unsynced => Some(format!("M{} {}h4", x + 3, y + 5)),
        Part::Scrubbed => Some(format!("M{} {}l2 2l3 -4", x + 3, y + 5)),
        Part::Synced | Part::Unfilled => None,
    };
    html! {
        rect.(part.class()) x=(x + 1) y=(y + 1) width=(EDGE - 2) height=(EDGE - 2) rx="1" {}
        @if let Some(path) = path { path.(part.class()) d=(path) {} }
    }
}

fn exports(array: &Array) -> Markup {
    let clients = match array.clients {
        0 => "no connection".into(),
        1 => "1 connection".into(),
        count => format!("{count} connections"),
    };
    html! {
        h3 { "Exports and clients" }
        ul.exports {
            @for uri in &array.exports { li { code { (uri) } } }
            @if !array.exports.is_empty() { li { "NBD: " (clients) } }
            @if let Some(aoe) = &array.aoe {
                li { "AoE " (aoe.address.as_deref().unwrap_or("without an address")) ": "
                    @if aoe.online { "online on " (aoe.interfaces.join(", ")) }
                    @else { "offline" } }
            }
            @if array.exports.is_empty() && array.aoe.is_none() { li { "none" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Finding;
    use crate::verdict::tests::{healthy, rebuild};

    fn shown(array: Array) -> String {
        let arrays = vec![array];
        let snapshot = Snapshot { arrays, servers: Vec::new() };
        page(&snapshot, Timestamp::UNIX_EPOCH, Offer::default())
    }

    #[test]
    fn the_page_starts_with_the_verdict_and_shows_the_command() {
        let mut array = healthy();
        array.state = State::Critical;
        array.redundancy_left = 0;
        array.job = Some(rebuild(Some(60)));
        let action = "parapet re-add tank m1, or parapet add tank DISK".to_owned();
        let (id, message) = ("PPT-8002".into(), "a member is missing".into());
        array.problems.push(Problem { id, message, action });
        let page = shown(array);
        let sentence = "tank: critical, one more failure loses data; rebuilding, 60 s left";
        assert!(page.contains(&format!("<title>{sentence}</title>")), "{page}");
        assert!(page.contains("<pre><code>parapet re-add tank m1</code></pre>"), "{page}");
        assert!(page.contains("<pre><code>parapet add tank DISK</code></pre>"), "{page}");
        let prose = "repair the cause, or parapet stop tank";
        assert_eq!(commands(prose), [prose]);
        assert!(page.contains("<progress max=\"100\" value=\"12.5\""), "{page}");
    }

    #[test]
    fn names_from_disks_cannot_add_markup() {
        let mut array = healthy();
        array.name = "<script>alert(1)</script>".into();
        array.slots[0].member.as_mut().unwrap().name = "\"><img src=x>".into();
        array.slots[0].member.as_mut().unwrap().serial = None;
        let page = shown(array);
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
    }

    #[test]
    fn the_timeline_and_the_health_of_disks_are_shown() {
        let mut array = healthy();
        let event = |number: u64, severity: &str, message: &str| {
            let value = serde_json::json!({ "number": number, "time": "2026-11-26T17:31:08.5Z",
                "event": "Fail", "severity": severity, "member": "m1", "message": message });
            serde_json::from_value::<Event>(value).unwrap()
        };
        array.events = vec![event(2, "error", "lost"), event(1, "info", "m1 <is> back")];
        let health = serde_json::json!({ "level": "suspect", "temperature_celsius": 41,
            "reasons": ["3 sectors are pending", "old"], "step": "a spare replaces it" });
        array.slots[0].member.as_mut().unwrap().health = serde_json::from_value(health).unwrap();
        array.scrub_record.completed = Some(Timestamp::UNIX_EPOCH);
        array.scrub_record.position_bytes = 64 << 20;
        let page = shown(array);
        let time = "<time class=\"faint\" datetime=\"2026-11-26T17:31:08.5Z\">\
                    2026-11-26 17:31:08Z</time>";
        assert_eq!(page.matches(time).count(), 2, "{page}");
        assert!(page.contains("<p class=\"name\">m1: lost</p>"), "{page}");
        assert!(page.contains("<p class=\"name\">m1 &lt;is&gt; back</p>"), "{page}");
        assert!(page.find("m1: lost") < page.find("&gt; back"), "{page}");
        let health = "<p>health: suspect, 41 °C</p><p>3 sectors are pending</p>\
                      <p>a spare replaces it</p>";
        assert!(page.contains(health), "{page}");
        assert!(page.contains("<dd>just now, complete</dd>"), "{page}");
        assert!(page.contains("<dd>at 64 MiB of 128 MiB</dd>"), "{page}");
    }

    #[test]
    fn nothing_needs_inline_style_or_script_and_ids_are_unique() {
        let mut array = healthy();
        let scrub = serde_json::json!({ "complete": true, "ended": "1970-01-01T00:00:00Z",
            "mismatches": 1 });
        array.last_scrub = serde_json::from_value(scrub).unwrap();
        let finding = Finding { array_offset: 0, repaired: false };
        array.last_scrub.as_mut().unwrap().findings.push(finding);
        let page = shown(array);
        assert!(!page.contains("style=") && !page.contains("onclick"), "{page}");
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "{ids:?}");
        assert!(page.contains("mismatch 1 %"), "{page}");
    }
}
