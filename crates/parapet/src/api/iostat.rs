//! What the members of an array do: `parapet iostat`.

use serde::{Deserialize, Serialize};

use super::text::millis;
use super::{Array, Latency, Member, Report};
use crate::page::{Page, Style};

/// The rates of an array's members in an interval.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Iostat {
    /// Name of the array.
    pub(crate) name: String,
    /// UUID of the array.
    pub(crate) uuid: String,
    /// The interval; since the start of the array, if it is null.
    pub(crate) seconds: Option<f64>,
    /// The members: those that hold slots, replacements and spares.
    pub(crate) members: Vec<MemberRates>,
}

/// The rates of a member.
#[derive(Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MemberRates {
    /// The path that it was opened at.
    pub(crate) name: String,
    /// Bytes read a second; in total, without an interval.
    pub(crate) read_bytes: u64,
    /// Bytes written a second; in total, without an interval.
    pub(crate) written_bytes: u64,
    /// Latency of recent reads; null without enough samples.
    pub(crate) read_latency: Option<Latency>,
    /// Latency of recent writes; null without enough samples.
    pub(crate) write_latency: Option<Latency>,
}

impl Iostat {
    /// The rates between two states of an array, so many seconds apart; the totals of one.
    pub(crate) fn of(array: &Array, before: Option<(&Array, f64)>) -> Iostat {
        let rates = |member: &Member| {
            let earlier = before.map(|(array, seconds)| {
                let is_it = |it: &&Member| it.name == member.name && it.uuid == member.uuid;
                // One that was not there before had done nothing.
                (array.members().find(is_it).cloned().unwrap_or_default(), seconds)
            });
            let rate = |now: u64, count: fn(&Member) -> u64| match &earlier {
                None => now,
                Some((earlier, seconds)) => {
                    (now.saturating_sub(count(earlier)) as f64 / seconds) as u64
                }
            };
            MemberRates {
                name: member.name.clone(),
                read_bytes: rate(member.read_bytes, |it| it.read_bytes),
                written_bytes: rate(member.written_bytes, |it| it.written_bytes),
                read_latency: member.read_latency.clone(),
                write_latency: member.write_latency.clone(),
            }
        };
        Iostat {
            name: array.name.clone(),
            uuid: array.uuid.clone(),
            seconds: before.map(|(_, seconds)| seconds),
            members: array.members().map(rates).collect(),
        }
    }
}

impl Report for Iostat {
    const SCHEMA: &'static str = "parapet/iostat/1";

    fn text(&self, page: &mut Page) {
        let unit = if self.seconds.is_some() { "/s" } else { "" };
        let heading = [
            self.name.clone(),
            format!("READ{unit}"),
            format!("WRITTEN{unit}"),
            "READ P50/P99".into(),
            "WRITE P50/P99".into(),
        ];
        let total =
            |count: fn(&MemberRates) -> u64| page.size(self.members.iter().map(count).sum::<u64>());
        let none = || String::from("-");
        let latency = |latency: &Option<Latency>| match latency {
            Some(Latency { p50_us, p99_us }) => format!("{}/{}", millis(*p50_us), millis(*p99_us)),
            None => none(),
        };
        let mut rows = vec![(Style::Plain, heading.to_vec())];
        let (read, written) = (total(|it| it.read_bytes), total(|it| it.written_bytes));
        rows.push((Style::Plain, vec!["all members".into(), read, written, none(), none()]));
        rows.extend(self.members.iter().map(|member| {
            let sizes = [member.read_bytes, member.written_bytes].map(|bytes| page.size(bytes));
            let times = [&member.read_latency, &member.write_latency].map(latency);
            let [read, written] = sizes;
            let [reads, writes] = times;
            (Style::Plain, vec![member.name.clone(), read, written, reads, writes])
        }));
        page.table(&rows);
    }
}
