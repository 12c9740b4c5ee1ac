//! The metrics in Prometheus' text format 0.0.4.
//!
//! Every value comes from the snapshot of this scrape: nothing is counted here. Labels: an array is
//! its name, or its UUID where two arrays share the name; a disk is its serial number, or its path.

use std::fmt::Write;

use crate::document::{Array, HealthLevel, Member, SlotState, State};
use crate::source::Snapshot;

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A sample: labels and value.
type Sample = (Vec<(&'static str, String)>, f64);

/// The metrics of all arrays of a snapshot.
pub(crate) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page { text: String::new(), snapshot };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    page.family("parapet_build_info", "gauge", "Version of this exporter.", [(version, 1.0)]);
    let up = snapshot.servers.iter().map(|(socket, error)| {
        (vec![("control", socket.display().to_string())], f64::from(error.is_none()))
    });
    page.family("parapet_server_up", "gauge", "1 if the server of a control socket answers.", up);
    page.arrays();
    page.redundancy();
    page.jobs();
    page.disks();
    page.durations();
    page.health();
    page.text
}

struct Page<'a> {
    text: String,
    snapshot: &'a Snapshot,
}

impl Page<'_> {
    /// Adds a metric with all its samples; nothing without samples.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        for (index, (labels, value)) in samples.into_iter().enumerate() {
            if index == 0 {
                let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            }
            let labels: Vec<String> = labels
                .iter()
                .map(|(label, text)| format!("{label}=\"{}\"", escaped(text)))
                .collect();
            let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
        }
    }

    /// Adds a gauge with a sample for each array that has the value.
    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&Array) -> Option<f64>) {
        let snapshot = self.snapshot;
        let sample = |array| Some((vec![label(snapshot, array)], value(array)?));
        self.family(name, "gauge", help, snapshot.arrays.iter().filter_map(sample));
    }

    /// Adds a metric with several samples for each array; `samples` adds labels to the array's.
    fn each(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl Fn(&Array) -> Vec<Sample>,
    ) {
        let snapshot = self.snapshot;
        let all = snapshot.arrays.iter().flat_map(|array| {
            let own = label(snapshot, array);
            samples(array).into_iter().map(move |(mut labels, value)| {
                labels.insert(0, own.clone());
                (labels, value)
            })
        });
        self.family(name, kind, help, all);
    }

    fn arrays(&mut self) {
        self.each(("parapet_array_info", "gauge", "Identity and shape of an array."), |array| {
            let labels = vec![
                ("uuid", array.uuid.clone()),
                ("name", array.name.clone()),
                ("level", array.level.clone()),
                ("layout", array.layout.clone()),
            ];
            vec![(labels, 1.0)]
        });
        self.each(("parapet_array_state", "gauge", "1 for the state of an array."), |array| {
            let states = [State::Healthy, State::Degraded, State::Critical, State::Failed];
            let sample = |state: State| {
                let is_so = f64::from(array.state == state);
                (vec![("state", state.text().to_owned())], is_so)
            };
            states.map(sample).into()
        });
        self.gauge("parapet_array_size_bytes", "Capacity of an array.", |array| {
            Some(array.capacity_bytes as f64)
        });
        self.gauge("parapet_array_writable", "1 if an array accepts writes.", |array| {
            Some(f64::from(array.writable))
        });
        self.each(
            ("parapet_array_problem", "gauge", "Number of problems, by the id that status shows."),
            |array| {
                let mut ids: Vec<&str> = array.problems.iter().map(|it| it.id.as_str()).collect();
                ids.sort_unstable();
                let same = ids.chunk_by(|one, next| one == next);
                same.map(|same| (vec![("id", same[0].to_owned())], same.len() as f64)).collect()
            },
        );
        let help = "NBD connections that use the export of an array.";
        self.gauge("parapet_export_connections", help, |array| Some(array.clients as f64));
    }

    fn redundancy(&mut self) {
        let help = "Disks of an array by state. A failed disk counts as failed until it is \
                    removed, and its slot as missing until it is filled.";
        self.each(("parapet_array_disks", "gauge", help), |array| {
            let counts = disk_counts(array);
            counts.map(|(state, count)| (vec![("state", state.to_owned())], count as f64)).into()
        });
        let help = "Slots of an array: active disks of a healthy array.";
        self.gauge("parapet_array_disks_required", help, |array| Some(array.slots.len() as f64));
        let help = "Disks that may fail without data loss while all are present.";
        self.gauge("parapet_array_redundancy", help, |array| Some(array.redundancy as f64));
        let help = "Disks that may still fail without data loss.";
        self.gauge("parapet_array_redundancy_left", help, |array| {
            Some(array.redundancy_left as f64)
        });
        let help = "Bytes of an array whose parity or copies may not match the data.";
        self.gauge("parapet_array_unsynced_bytes", help, |array| Some(array.unsynced_bytes as f64));
        let help = "Bytes of an array that a crash left unrecoverable.";
        self.gauge("parapet_array_bad_bytes", help, |array| Some(array.bad_bytes as f64));
        let help = "Bytes rewritten from redundancy since the start of the server.";
        self.each(("parapet_array_bytes_repaired_total", "counter", help), |array| {
            let repaired: u64 = array.members().map(|member| member.repaired_bytes).sum();
            vec![(Vec::new(), repaired as f64)]
        });
    }

    fn jobs(&mut self) {
        let kind = |array: &Array| {
            ("kind", array.job.as_ref().map_or("", |job| job.kind.text()).to_owned())
        };
        self.each(("parapet_job_progress_ratio", "gauge", "Progress of a job, 0 to 1."), |array| {
            let ratio = |done: u64, total: u64| done as f64 / total.max(1) as f64;
            let job = array.job.iter();
            job.map(|job| (vec![kind(array)], ratio(job.done_bytes, job.total_bytes).min(1.0)))
                .collect()
        });
        let help = "Estimated time to the end of a job; absent without an estimate.";
        self.each(("parapet_job_remaining_seconds", "gauge", help), |array| {
            let left = array.job.as_ref().and_then(|job| job.seconds_left);
            left.map(|seconds| (vec![kind(array)], seconds as f64)).into_iter().collect()
        });
        let help =
            "End of the last scrub that covered the array; absent if no server has seen one.";
        let name = "parapet_array_scrub_last_completed_timestamp_seconds";
        self.gauge(name, help, |array| array.scrubbed().map(|ended| ended.as_second() as f64));
        let help = "Mismatches that the last scrub found.";
        self.gauge("parapet_array_scrub_mismatches", help, |array| {
            Some(array.last_scrub.as_ref()?.mismatches as f64)
        });
        let help = "Mismatches that the last scrub found and did not repair.";
        self.gauge("parapet_array_scrub_mismatches_left", help, |array| {
            Some(array.last_scrub.as_ref()?.mismatches_left() as f64)
        });
    }

    fn disks(&mut self) {
        let help = "Path, slot and state of a disk; an empty slot for none.";
        self.each(("parapet_disk_info", "gauge", help), |array| {
            let sample = |(member, slot, state): (&Member, Option<usize>, &str)| {
                let slot = slot.map(|slot| slot.to_string()).unwrap_or_default();
                let labels = vec![
                    ("disk", array.disk_name(member).to_owned()),
                    ("path", member.name.clone()),
                    ("slot", slot),
                    ("state", state.to_owned()),
                ];
                (labels, 1.0)
            };
            places(array).into_iter().map(sample).collect()
        });
        let help = "Errors of a disk since the start of the server or `parapet clear`; timeouts of \
                    writes count as write errors.";
        self.counters(("parapet_disk_errors_total", help), "kind", |member| {
            let Member { read_errors, write_errors, checksum_errors, .. } = member;
            vec![("read", *read_errors), ("write", *write_errors), ("checksum", *checksum_errors)]
        });
        let help = "Bytes read from and written to a disk since the start of the server.";
        self.counters(("parapet_disk_io_bytes_total", help), "operation", |member| {
            vec![("read", member.read_bytes), ("write", member.written_bytes)]
        });
        let help = "Bytes in the bad-block log of a disk.";
        self.of_disks(("parapet_disk_bad_bytes", "gauge", help), |member| {
            vec![(Vec::new(), member.bad_bytes as f64)]
        });
        let help = "1 if a disk is far slower than the others of its array.";
        self.of_disks(("parapet_disk_slow", "gauge", help), |member| {
            vec![(Vec::new(), f64::from(member.slow))]
        });
        let help = "Latency of a disk; absent without enough samples.";
        self.of_disks(("parapet_disk_latency_seconds", "gauge", help), |member| {
            let of = [("read", member.read_latency), ("write", member.write_latency)];
            let known = of.into_iter().filter_map(|(word, latency)| Some((word, latency?)));
            let samples = known.flat_map(|(word, latency)| {
                [("50", latency.p50_us), ("99", latency.p99_us)].map(|(percentile, micros)| {
                    let labels = [("operation", word), ("percentile", percentile)];
                    (labels.map(|(label, text)| (label, text.to_owned())).into(), seconds(micros))
                })
            });
            samples.collect()
        });
    }

    /// Adds histograms of what disks take for an operation.
    fn durations(&mut self) {
        const NAME: &str = "parapet_io_duration_seconds";
        let all = self.snapshot.arrays.iter().flat_map(|array| {
            array.members().flat_map(move |member| {
                let of = [("read", &member.read_durations), ("write", &member.write_durations)];
                of.map(|(operation, durations)| (array, member, operation, durations))
            })
        });
        let known = all.filter(|(.., durations)| !durations.counts.is_empty());
        for (index, (array, member, operation, durations)) in known.enumerate() {
            if index == 0 {
                let help = "Time that a disk took for an operation of a client's request.";
                let _ = writeln!(self.text, "# HELP {NAME} {help}\n# TYPE {NAME} histogram");
            }
            let (name, of) = label(self.snapshot, array);
            let disk = escaped(array.disk_name(member));
            let labels =
                format!("{name}=\"{}\",disk=\"{disk}\",operation=\"{operation}\"", escaped(&of));
            let mut below = 0;
            let bounds = durations.bounds_us.iter().map(|&bound| seconds(bound).to_string());
            let bounds = bounds.chain(std::iter::once("+Inf".into()));
            for (bound, count) in bounds.zip(&durations.counts) {
                below += count;
                let _ = writeln!(self.text, "{NAME}_bucket{{{labels},le=\"{bound}\"}} {below}");
            }
            let sum = seconds(durations.sum_us);
            let _ = writeln!(
                self.text,
                "{NAME}_sum{{{labels}}} {sum}\n{NAME}_count{{{labels}}} {below}"
            );
        }
    }

    /// Adds the health of disks that a server watches.
    fn health(&mut self) {
        let help = "1 for the level of a disk's health; absent for disks that nobody watches.";
        self.of_disks(("parapet_disk_health", "gauge", help), |member| {
            use HealthLevel::{Fail, Ok, Replace, Suspect, Watch};
            let Some(health) = &member.health else { return Vec::new() };
            let sample = |level: HealthLevel| {
                let is_so = f64::from(health.level == level);
                (vec![("level", level.text().to_owned())], is_so)
            };
            [Ok, Watch, Suspect, Replace, Fail].map(sample).into()
        });
        let help = "Temperature of a disk.";
        self.of_disks(("parapet_disk_temperature_celsius", "gauge", help), |member| {
            let celsius = member.health.as_ref().and_then(|it| it.temperature_celsius);
            celsius.map(|celsius| (Vec::new(), celsius as f64)).into_iter().collect()
        });
        let help = "Raw SMART value of a disk, by ATA's number or the name of NVMe and SCSI.";
        self.of_disks(("parapet_smart_attribute_raw", "gauge", help), |member| {
            let attributes = member.health.iter().flat_map(|health| &health.attributes);
            attributes.map(|it| (vec![("id", it.id.clone())], it.raw as f64)).collect()
        });
    }

    /// Adds a metric of each disk; `samples` adds labels to those of array and disk.
    fn of_disks(&mut self, head: (&str, &str, &str), samples: impl Fn(&Member) -> Vec<Sample>) {
        self.each(head, |array| {
            let of_one = |member: &Member| {
                let disk = ("disk", array.disk_name(member).to_owned());
                let named = |(mut labels, value): Sample| {
                    labels.insert(0, disk.clone());
                    (labels, value)
                };
                samples(member).into_iter().map(named).collect::<Vec<_>>()
            };
            array.members().flat_map(of_one).collect()
        });
    }

    /// Adds counters of each disk, told apart by one label.
    fn counters(
        &mut self,
        (name, help): (&str, &str),
        label: &'static str,
        counts: impl Fn(&Member) -> Vec<(&'static str, u64)>,
    ) {
        self.of_disks((name, "counter", help), |member| {
            let sample = |(word, count): (&str, u64)| (vec![(label, word.into())], count as f64);
            counts(member).into_iter().map(sample).collect()
        });
    }
}

/// The label of an array.
fn label(snapshot: &Snapshot, array: &Array) -> (&'static str, String) {
    let same = snapshot.arrays.iter().filter(|other| other.name == array.name).count();
    ("array", if same > 1 { &array.uuid } else { &array.name }.clone())
}

/// Every disk of an array with its slot and state.
pub(crate) fn places(array: &Array) -> Vec<(&Member, Option<usize>, &'static str)> {
    let mut places = Vec::new();
    for slot in &array.slots {
        let state = match slot.state {
            SlotState::InSync => "active",
            SlotState::Rebuilding => "rebuilding",
            SlotState::Missing => "missing",
            SlotState::Unknown => "unknown",
        };
        places.extend(slot.member.iter().map(|member| (member, Some(slot.slot), state)));
        let copies = slot.replacement.iter();
        places.extend(copies.map(|member| (member, Some(slot.slot), "rebuilding")));
    }
    places.extend(array.spares.iter().map(|member| (member, None, "spare")));
    let state = |member: &Member| if member.replaced { "replaced" } else { "failed" };
    places.extend(array.faulty.iter().map(|member| (member, None, state(member))));
    places
}

fn disk_counts(array: &Array) -> [(&'static str, usize); 6] {
    let places = places(array);
    let disks = |state: &str| places.iter().filter(|(_, _, its)| *its == state).count();
    let missing = array.slots.iter().filter(|slot| slot.state == SlotState::Missing).count();
    [
        ("active", disks("active")),
        ("rebuilding", disks("rebuilding")),
        ("spare", disks("spare")),
        ("failed", disks("failed")),
        ("replaced", disks("replaced")),
        ("missing", missing),
    ]
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Escapes a label value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{DiskHealth, SmartAttribute};
    use crate::verdict::tests::healthy;

    fn of(arrays: Vec<Array>) -> String {
        let servers =
            vec![("/run/a\"b.sock".into(), None), ("/run/c.sock".into(), Some("gone".into()))];
        text(&Snapshot { arrays, servers })
    }

    #[test]
    fn a_lost_disk_is_failed_and_its_slot_is_missing() {
        let mut array = healthy();
        array.slots[1].state = SlotState::Missing;
        let lost = array.slots[1].member.take().unwrap();
        array.faulty.push(lost);
        (array.state, array.redundancy_left) = (State::Degraded, 1);
        let text = of(vec![array]);
        for line in [
            "parapet_server_up{control=\"/run/a\\\"b.sock\"} 1",
            "parapet_server_up{control=\"/run/c.sock\"} 0",
            "parapet_array_state{array=\"tank\",state=\"degraded\"} 1",
            "parapet_array_state{array=\"tank\",state=\"healthy\"} 0",
            "parapet_array_disks{array=\"tank\",state=\"active\"} 3",
            "parapet_array_disks{array=\"tank\",state=\"failed\"} 1",
            "parapet_array_disks{array=\"tank\",state=\"missing\"} 1",
            "parapet_array_disks_required{array=\"tank\"} 4",
            "parapet_array_redundancy_left{array=\"tank\"} 1",
            "parapet_disk_errors_total{array=\"tank\",disk=\"S1\",kind=\"read\"} 0",
            "parapet_disk_info{array=\"tank\",disk=\"S1\",path=\"/dev/sd1\",slot=\"\",\
             state=\"failed\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn no_series_appears_twice() {
        let mut other = healthy();
        other.uuid = "03:04".into();
        // Two partitions of one disk have its serial number.
        let serial = other.slots[1].member.as_ref().unwrap().serial.clone();
        other.slots[0].member.as_mut().unwrap().serial = serial;
        let text = of(vec![healthy(), other]);
        let mut series: Vec<&str> =
            text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "{text}");
        assert!(text.contains("array=\"01:02\",disk=\"S0\""), "{text}");
        assert!(text.contains("array=\"03:04\",disk=\"/dev/sd0\""), "{text}");
    }

    #[test]
    fn the_health_of_a_disk_has_its_level_and_its_smart_values() {
        let mut array = healthy();
        array.slots[0].member.as_mut().unwrap().health = Some(DiskHealth {
            level: HealthLevel::Suspect,
            reasons: Vec::new(),
            step: None,
            temperature_celsius: Some(34),
            attributes: vec![SmartAttribute { id: "197".into(), raw: 3 }],
        });
        let text = of(vec![array]);
        for line in [
            "parapet_disk_health{array=\"tank\",disk=\"S0\",level=\"suspect\"} 1",
            "parapet_disk_health{array=\"tank\",disk=\"S0\",level=\"ok\"} 0",
            "parapet_disk_temperature_celsius{array=\"tank\",disk=\"S0\"} 34",
            "parapet_smart_attribute_raw{array=\"tank\",disk=\"S0\",id=\"197\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains("parapet_disk_health{array=\"tank\",disk=\"S1\""), "{text}");
    }

    #[test]
    fn the_last_complete_scrub_may_be_of_an_earlier_server() {
        let at = |second: i64| jiff::Timestamp::from_second(second).unwrap();
        let found = |array: Array| {
            let text = of(vec![array]);
            let name = "parapet_array_scrub_last_completed_timestamp_seconds{array=\"tank\"} ";
            text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
        };
        let mut array = healthy();
        array.scrub_record.completed = Some(at(1000));
        let scrub = serde_json::json!({ "complete": false, "ended": at(2000), "mismatches": 0 });
        array.last_scrub = serde_json::from_value(scrub).unwrap();
        assert_eq!(found(array).as_deref(), Some("1000"));
        assert_eq!(found(healthy()), None);
    }

    #[test]
    fn what_is_unknown_is_absent() {
        let text = of(vec![healthy()]);
        assert!(!text.contains("scrub") && !text.contains("remaining"), "{text}");
        assert!(!text.contains("latency"), "{text}");
    }
}
