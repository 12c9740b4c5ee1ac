//! What is known of the disks of a member, for the control API.

use policy::health::{Attribute, Day, Reading, SelfTest};

use super::whole::WholeDisk;
use super::{memory, smart, whole};
use crate::api::{AttributeRecord, DayValue, DiskRecord, SelfTestRecord, SmartAttribute, SmartDay};

/// Returns the disks that a member's path is on. Reads files, and may block.
pub(crate) fn of(path: &std::path::Path) -> Vec<DiskRecord> {
    whole::of(path).iter().map(record).collect()
}

fn record(disk: &WholeDisk) -> DiskRecord {
    let key = disk.key();
    let known = memory::load(&key);
    let record = DiskRecord {
        path: disk.path().display().to_string(),
        model: disk.model(),
        serial: disk.serial(),
        bytes: disk.bytes(),
        rotational: disk.rotational(),
        read_at: known.read_at(),
        days: memory::days(&key).into_vec().into_iter().map(day).collect(),
        ..DiskRecord::default()
    };
    match known.reading() {
        Some(reading) => with_reading(record, reading),
        None => record,
    }
}

fn with_reading(record: DiskRecord, reading: &Reading) -> DiskRecord {
    DiskRecord {
        // The kernel cuts long names.
        model: reading.model.clone().or(record.model),
        serial: reading.serial.clone().or(record.serial),
        protocol: reading.protocol.clone(),
        passed: reading.passed,
        power_on_hours: reading.power_on_hours,
        temperature_celsius: reading.temperature_celsius,
        attributes: reading.attributes.iter().map(attribute).collect(),
        self_tests: reading.self_tests.iter().map(self_test).collect(),
        ..record
    }
}

fn attribute(it: &Attribute) -> AttributeRecord {
    let attribute = SmartAttribute { id: it.id.clone(), name: it.name.clone(), raw: it.raw };
    AttributeRecord { attribute, value: it.value, worst: it.worst, threshold: it.threshold }
}

fn self_test(test: &SelfTest) -> SelfTestRecord {
    SelfTestRecord {
        kind: test.kind.clone(),
        result: test.result.clone(),
        passed: test.passed,
        power_on_hours: test.power_on_hours,
    }
}

fn day(day: Day) -> SmartDay {
    SmartDay {
        day: day.day,
        level: smart::level_of(day.level),
        temperature_celsius: day.temperature_celsius,
        power_on_hours: day.power_on_hours,
        values: day.raw.into_iter().map(|(id, raw)| DayValue { id, raw }).collect(),
    }
}
