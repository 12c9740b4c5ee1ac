//! The comparison as a report.

use ::lab::disk::catalogue::Entry;
use ::lab::reliability::{
    CAVEAT, Change, Comparison as Compared, Estimate, Inputs, LEAST_PRINTED, LatentRate,
    LayoutSpeeds, Row, Speed, WhatIf,
};
use ::lab::speeds::PlannedLoad;

use super::{Args, class};
use crate::api::{
    ChangeKind, ComparedChange, ComparedLayout, Comparison, LoadSpeed, in_words as time,
};
use crate::size::Size;

pub(super) fn comparison(
    args: &Args,
    inputs: &Inputs,
    loads: &[PlannedLoad],
    compared: Compared,
) -> Comparison {
    let rows = &compared.rows;
    Comparison {
        mission_hours: inputs.mission_hours,
        assumptions: assumptions(args, inputs, loads, &compared),
        layouts: rows.iter().map(|row| layout(row, loads)).collect(),
        advice: compared.advice,
        caveat: CAVEAT.into(),
    }
}

fn assumptions(
    args: &Args,
    inputs: &Inputs,
    loads: &[PlannedLoad],
    compared: &Compared,
) -> Vec<String> {
    let disk = format!("{} of {}", inputs.kind.name, Size(inputs.kind.bytes).in_thousands());
    let scrub =
        inputs.scrub_hours.map_or("no scrub".into(), |h| format!("a scrub every {}", time(h)));
    let rates = match args.afr {
        Some(percent) => format!("{percent} % fail in a year"),
        None => format!("failure rates: {}", class(args)),
    };
    let aged = || format!("{} old", time(inputs.age_hours));
    let age = if inputs.age_hours > 0.0 { aged() } else { "new".into() };
    let mut lines = vec![format!(
        "Simulated: {} disks {disk}, {age}, {rates}; a failed disk is replaced after {}; {scrub}; \
         random seed {}.",
        inputs.disks,
        time(inputs.delivery_hours),
        inputs.runs.seed
    )];
    let measured = compared.rows.iter().any(|row| row.speeds.is_some());
    if let ([load], true) = (loads, measured) {
        let durable =
            if load.durable { "; writes are durable before they are answered" } else { "" };
        lines.push(format!(
            "Load: {}, at full speed, the same data on each layout{durable}.",
            load.name
        ));
    }
    lines.push(match inputs.load.is_measured {
        true => {
            "Rebuilds: the rate that the engine reaches beside this load, day and night.".into()
        }
        false => {
            format!("Rebuilds get {:.0} % of the disks' rate: assumed.", inputs.load.share * 100.0)
        }
    });
    let errors = |rate: LatentRate| match rate {
        LatentRate::Elerath => "once a year (Elerath 2007)",
        _ => "once in 30 years (nearline disks, Bairavasundaram 2007)",
    };
    lines.push(format!(
        "LOSS is that of a sector or more; a disk gets an unreadable sector {}. MORE ERRORS: \
         {}, the other published rate.",
        errors(compared.latent),
        errors(compared.other_latent)
    ));
    if matches!(args.disks.entry, Entry::Flash(_)) {
        lines.push("These rates of unreadable sectors are those of hard disks.".into());
    }
    if inputs.unreadable_bits > 0.0 {
        let rate = inputs.unreadable_bits;
        lines.push(format!(
            "Of the bits read, {rate:e} are unreadable besides: an upper bound of data sheets, \
             taken literally."
        ));
    }
    lines
}

fn layout(row: &Row, loads: &[PlannedLoad]) -> ComparedLayout {
    let state = |of: fn(&LayoutSpeeds) -> &Vec<Speed>| match &row.speeds {
        Some(speeds) => loads.iter().zip(of(speeds)).map(|(load, it)| speed(load, it)).collect(),
        None => Vec::new(),
    };
    let (loss, loss_low, loss_high) = printed(&row.loss);
    ComparedLayout {
        name: row.name.clone(),
        usable_bytes: row.usable_bytes,
        tolerated: row.tolerated,
        healthy: state(|speeds| &speeds.healthy),
        degraded: state(|speeds| &speeds.degraded),
        rebuilding: state(|speeds| &speeds.rebuilding),
        rebuild_bytes_per_second: row.speeds.as_ref().and_then(|speeds| speeds.rebuild_rate),
        rebuild_hours_at_start_rate: row.rebuild.map(|rebuild| rebuild.at_start_rate),
        rebuild_hours: row.rebuild.map(|rebuild| rebuild.zone_corrected),
        window_hours: row.window_hours,
        loss,
        loss_low,
        loss_high,
        loss_text: row.loss.to_string(),
        loss_at_other_rate: printed(&row.loss_at_other_rate).0,
        loss_at_other_rate_text: row.loss_at_other_rate.to_string(),
        cause: row.cause.map(|cause| cause.name().into()),
        bytes_lost: row.bytes_lost,
        lost_share: row.lost_share(),
        degraded_hours_per_year: row.degraded_hours_per_year,
        what_if: row.what_if.iter().map(change).collect(),
    }
}

/// Mean and interval, if the mean is to be printed.
fn printed(chance: &Estimate) -> (Option<f64>, Option<f64>, Option<f64>) {
    let some = |value| (chance.mean >= LEAST_PRINTED).then_some(value);
    (some(chance.mean), some(chance.low.max(LEAST_PRINTED)), some(chance.high))
}

fn change(what: &WhatIf) -> ComparedChange {
    ComparedChange {
        kind: match what.change {
            Change::Scrub(_) => ChangeKind::Scrub,
            Change::SecondParity => ChangeKind::SecondParity,
            Change::Spare => ChangeKind::Spare,
            Change::FasterRebuild => ChangeKind::FasterRebuild,
        },
        change: what.change.to_string(),
        loss: printed(&what.loss).0,
        loss_text: what.loss.to_string(),
        loss_at_other_rate: printed(&what.loss_at_other_rate).0,
        loss_at_other_rate_text: what.loss_at_other_rate.to_string(),
    }
}

fn speed(load: &PlannedLoad, speed: &Speed) -> LoadSpeed {
    LoadSpeed {
        load: load.name.clone(),
        requests_per_second: speed.per_second,
        bytes_per_second: speed.bytes_per_second,
        p50_ms: speed.p50_us / 1000.0,
        p99_ms: speed.p99_us / 1000.0,
    }
}
