//! SMART data, from a document of `smartctl --json`.
//!
//! Takes what is there: documents differ between protocols, makers and versions of smartctl, and
//! any part may be absent or have another type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Counter;

/// The self-tests that are kept of a disk; it remembers 20 or 21.
const MOST_SELF_TESTS: usize = 21;

/// What a document says.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The SMART data of the disk.
    Reading(Box<Reading>),
    /// The disk sleeps, and was not woken up.
    Asleep,
    /// No SMART data, and why.
    Nothing(String),
}

/// SMART data of a disk at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// `ATA`, `NVMe` or `SCSI`.
    pub protocol: Option<String>,
    /// True if the disk passed its own check; none if it does not say.
    pub passed: Option<bool>,
    /// Why the disk itself expects to fail; empty if it does not.
    pub failing: Vec<String>,
    /// Other warnings of the disk.
    pub warnings: Vec<String>,
    /// Temperature in degrees Celsius.
    pub temperature_celsius: Option<i64>,
    /// Time in service, in hours.
    pub power_on_hours: Option<u64>,
    /// Counters of errors, those that the disk has.
    pub counters: BTreeMap<Counter, u64>,
    /// Spare blocks of an NVMe disk.
    pub spare_blocks: Option<SpareBlocks>,
    /// Used share of its rated life in percent; may pass 100.
    pub used_percent: Option<u64>,
    /// Result of the last self-test, if it failed.
    pub failed_self_test: Option<String>,
    /// Progress of a running self-test: percent that remain.
    pub self_test_remaining_percent: Option<u64>,
    /// Values, for people and metrics.
    pub attributes: Vec<Attribute>,
    /// The latest self-tests that the disk remembers, the latest first.
    #[serde(default)]
    pub self_tests: Vec<SelfTest>,
}

/// A self-test of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Such as `Short offline`.
    pub kind: String,
    /// Such as `Completed without error`.
    pub result: String,
    /// True if the disk passed; none if it does not say, or the test was aborted.
    pub passed: Option<bool>,
    /// The time in service at which it ended, in hours.
    pub power_on_hours: Option<u64>,
}

/// Spare blocks of an NVMe disk, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareBlocks {
    /// Those that are left.
    pub left_percent: u64,
    /// The disk warns below this.
    pub threshold_percent: u64,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// ATA's number, or the name that NVMe or SCSI has.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Raw value; packed counters are unpacked.
    pub raw: u64,
    /// ATA's normalized value: the higher, the better.
    #[serde(default)]
    pub value: Option<u64>,
    /// The lowest normalized value so far.
    #[serde(default)]
    pub worst: Option<u64>,
    /// The disk counts the attribute as failed at this normalized value.
    #[serde(default)]
    pub threshold: Option<u64>,
}

/// Reads a document of `smartctl --json -a`.
pub fn read(document: &[u8]) -> Answer {
    let Ok(document) = serde_json::from_slice::<Value>(document) else {
        return Answer::Nothing("smartctl printed no JSON".into());
    };
    let messages = || document["smartctl"]["messages"].as_array().into_iter().flatten();
    let texts = messages().filter_map(|message| message["string"].as_str());
    // Since smartctl 7.0: "Device is in STANDBY mode, exit(2)".
    let is_asleep = |text: &str| text.starts_with("Device is in ") && text.contains(" mode, exit(");
    if texts.clone().any(is_asleep) {
        return Answer::Asleep;
    }
    let reading = Reading::of(&document);
    if reading.is_empty() {
        let why = texts.map(str::to_owned).next();
        return Answer::Nothing(why.unwrap_or_else(|| "the disk has no SMART data".into()));
    }
    Answer::Reading(Box::new(reading))
}

impl Reading {
    fn of(document: &Value) -> Reading {
        let text = |key: &str| document[key].as_str().map(|text| text.trim().to_owned());
        let mut reading = Reading {
            model: text("model_name").or_else(|| text("scsi_model_name")),
            serial: text("serial_number"),
            protocol: document["device"]["protocol"].as_str().map(str::to_owned),
            passed: document["smart_status"]["passed"].as_bool(),
            temperature_celsius: document["temperature"]["current"].as_i64(),
            power_on_hours: document["power_on_time"]["hours"].as_u64(),
            ..Reading::default()
        };
        reading.take_ata(document);
        reading.take_nvme(&document["nvme_smart_health_information_log"]);
        reading.take_scsi(document);
        reading.take_self_tests(document);
        reading
    }

    /// True without anything that says how the disk is.
    fn is_empty(&self) -> bool {
        self.passed.is_none() && self.attributes.is_empty() && self.counters.is_empty()
    }

    fn take_ata(&mut self, document: &Value) {
        for attribute in document["ata_smart_attributes"]["table"].as_array().into_iter().flatten()
        {
            let (Some(id), Some(raw)) = (attribute["id"].as_u64(), raw_of(attribute)) else {
                continue;
            };
            if self.attributes.iter().any(|known| known.id == id.to_string()) {
                continue;
            }
            let name = attribute["name"].as_str().unwrap_or("unknown").replace('_', " ");
            let fails = attribute["when_failed"].as_str() == Some("now");
            // Attributes of old age pass their threshold without harm.
            if fails && attribute["flags"]["prefailure"].as_bool() == Some(true) {
                self.failing.push(format!("attribute {id} ({name}) is below its threshold"));
            }
            let counter = match id {
                5 => Some(Counter::Reallocated),
                187 => Some(Counter::Uncorrectable),
                188 => Some(Counter::Timeouts),
                197 => Some(Counter::Pending),
                198 => Some(Counter::OfflineUncorrectable),
                199 => Some(Counter::CrcErrors),
                _ => None,
            };
            self.counters.extend(counter.map(|counter| (counter, raw)));
            let [value, worst, threshold] =
                ["value", "worst", "thresh"].map(|key| attribute[key].as_u64());
            let id = id.to_string();
            self.attributes.push(Attribute { id, name, raw, value, worst, threshold });
        }
        let is_nvme = document["nvme_smart_health_information_log"].is_object();
        // NVMe also counts heat as not passed; its warnings say more.
        if self.passed == Some(false) && !is_nvme {
            let why = document["smart_status"]["scsi"]["ie_string"].as_str();
            let why = why.map_or(String::new(), |why| format!(": {}", why.to_lowercase()));
            self.failing.insert(0, format!("the disk reports that it is failing{why}"));
        }
    }

    fn take_nvme(&mut self, log: &Value) {
        let warning = log["critical_warning"].as_u64().unwrap_or(0);
        // NVM Express, SMART / Health Information, byte 0.
        for (bit, text) in [
            (0x04, "the disk reports degraded reliability after media or internal errors"),
            (0x08, "the disk has become read-only"),
        ] {
            self.failing.extend((warning & bit != 0).then(|| text.to_owned()));
        }
        let backup = "the backup of its volatile memory has failed";
        self.warnings.extend((warning & 0x10 != 0).then(|| backup.to_owned()));
        if let (Some(left_percent), Some(threshold_percent)) =
            (log["available_spare"].as_u64(), log["available_spare_threshold"].as_u64())
        {
            self.spare_blocks = Some(SpareBlocks { left_percent, threshold_percent });
        }
        self.used_percent = log["percentage_used"].as_u64();
        self.power_on_hours = self.power_on_hours.or(log["power_on_hours"].as_u64());
        self.temperature_celsius = self.temperature_celsius.or(log["temperature"].as_i64());
        let errors = log["media_errors"].as_u64();
        self.counters.extend(errors.map(|errors| (Counter::Uncorrectable, errors)));
        for key in [
            "critical_warning",
            "available_spare",
            "percentage_used",
            "media_errors",
            "num_err_log_entries",
            "unsafe_shutdowns",
        ] {
            self.add_named(key, log[key].as_u64());
        }
    }

    fn take_scsi(&mut self, document: &Value) {
        let defects = document["scsi_grown_defect_list"].as_u64();
        self.counters.extend(defects.map(|count| (Counter::Reallocated, count)));
        self.add_named("scsi_grown_defect_list", defects);
        let pending = document["scsi_pending_defects"]["count"].as_u64();
        self.counters.extend(pending.map(|count| (Counter::Pending, count)));
        self.add_named("scsi_pending_defects", pending);
        let log = &document["scsi_error_counter_log"];
        for (operation, counter) in
            [("read", Counter::Uncorrectable), ("verify", Counter::OfflineUncorrectable)]
        {
            let errors = log[operation]["total_uncorrected_errors"].as_u64();
            self.counters.extend(errors.map(|errors| (counter, errors)));
            self.add_named(&format!("{operation}_uncorrected_errors"), errors);
        }
    }

    fn add_named(&mut self, id: &str, raw: Option<u64>) {
        let name = id.replace('_', " ");
        let attribute = |raw| Attribute { id: id.into(), name, raw, ..Attribute::default() };
        self.attributes.extend(raw.map(attribute));
    }

    fn take_self_tests(&mut self, document: &Value) {
        let running = &document["ata_smart_data"]["self_test"]["status"];
        self.self_test_remaining_percent = running["remaining_percent"]
            .as_u64()
            .filter(|_| running["passed"].is_null())
            .or_else(|| {
                let done =
                    document["nvme_self_test_log"]["current_self_test_completion_percent"].as_u64();
                Some(100 - done.filter(|&done| done > 0)?.min(100))
            });
        // The first entry is the latest. Tests that were aborted say nothing.
        let ata = &document["ata_smart_self_test_log"];
        let ata = [&ata["extended"]["table"][0], &ata["standard"]["table"][0]];
        let ata = ata
            .into_iter()
            .find(|entry| entry.is_object())
            .filter(|entry| entry["status"]["passed"].as_bool() == Some(false));
        let of_ata = ata.map(|entry| &entry["status"]);
        let nvme = &document["nvme_self_test_log"]["table"][0]["self_test_result"];
        // Results 5, 6 and 7: a fatal error, and segments that failed.
        let of_nvme = Some(nvme).filter(|it| matches!(it["value"].as_u64(), Some(5..=7)));
        let scsi = &document["scsi_self_test_0"]["result"];
        // Results 3 to 7: segments that failed.
        let of_scsi = Some(scsi).filter(|it| matches!(it["value"].as_u64(), Some(3..=7)));
        let failed = of_ata.or(of_nvme).or(of_scsi);
        self.failed_self_test =
            failed.map(|status| status["string"].as_str().unwrap_or("it failed").to_lowercase());
        self.self_tests = self_tests(document);
    }
}

/// The log of self-tests, the latest first.
fn self_tests(document: &Value) -> Vec<SelfTest> {
    let rows = |log: &'static str| document.pointer(log).and_then(Value::as_array);
    let ata =
        ["/ata_smart_self_test_log/extended/table", "/ata_smart_self_test_log/standard/table"]
            .into_iter()
            .find_map(rows);
    let of_ata = ata.into_iter().flatten().map(|row| {
        let passed = row["status"]["passed"].as_bool();
        self_test(&row["type"], &row["status"], passed, &row["lifetime_hours"])
    });
    // Result 0: no error. Results 1 to 4, 8 and 9: aborted.
    let nvme = rows("/nvme_self_test_log/table").into_iter().flatten();
    let of_nvme = nvme.map(|row| {
        let result = &row["self_test_result"];
        let passed = outcome(result["value"].as_u64(), 5..=7);
        self_test(&row["self_test_code"], result, passed, &row["power_on_hours"])
    });
    // Result 0: no error. Results 1 and 2: aborted.
    let scsi = (0..MOST_SELF_TESTS).map(|number| &document[format!("scsi_self_test_{number}")]);
    let of_scsi = scsi.filter(|row| row.is_object()).map(|row| {
        let passed = outcome(row["result"]["value"].as_u64(), 3..=7);
        self_test(&row["code"], &row["result"], passed, &row["power_on_time"]["hours"])
    });
    of_ata.chain(of_nvme).chain(of_scsi).take(MOST_SELF_TESTS).collect()
}

/// True if the test passed, by the number of its result.
fn outcome(result: Option<u64>, failed: std::ops::RangeInclusive<u64>) -> Option<bool> {
    match result? {
        0 => Some(true),
        result => failed.contains(&result).then_some(false),
    }
}

fn self_test(kind: &Value, result: &Value, passed: Option<bool>, hours: &Value) -> SelfTest {
    let text = |value: &Value| value["string"].as_str().unwrap_or("unknown").trim().to_owned();
    let (kind, result) = (text(kind), text(result));
    SelfTest { kind, result, passed, power_on_hours: hours.as_u64() }
}

/// The raw value of an ATA attribute, unpacked.
///
/// The 48 bits of some attributes hold several counters. Seagate's 188 holds three of 16 bits, the
/// total last: one timeout reads as 4295032833. smartctl prints such values in parts, if it knows
/// the disk.
fn raw_of(attribute: &Value) -> Option<u64> {
    let raw = &attribute["raw"];
    let value = raw["value"].as_u64();
    let words: Vec<&str> =
        raw["string"].as_str().map(|text| text.split_whitespace().collect()).unwrap_or_default();
    let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
    match (attribute["id"].as_u64(), numbers.as_deref()) {
        (Some(188), Some([_, _, total])) => Some(*total),
        (Some(188), _) => value.map(|value| value & 0xffff),
        // `16 0 2`: further counters follow.
        (Some(5 | 187 | 197 | 198 | 199), _) if words.len() > 1 => words[0].parse().ok().or(value),
        // `34 (Min/Max 32/34)`: the value, then others packed beside it.
        _ if words.get(1).is_some_and(|word| word.starts_with('(')) => {
            words[0].parse().ok().or(value)
        }
        // A count of sectors has 32 bits; the other 16 are a counter of another kind.
        (Some(5 | 187 | 197 | 198), _) => value.map(|value| value & 0xffff_ffff),
        _ => value,
    }
}
