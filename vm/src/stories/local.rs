//! Local disks (`parapet attach`) by ublk and by the kernel's NBD client: a file system is used
//! while a member fails, the server is killed, ended and started again, and a spare is rebuilt.
//! Size, flush, FUA, trim and read-only reach the device. A client of a cluster has a local disk,
//! too. All of it happens in the guest, with members in its memory.

use crate::failure::Result;
use crate::stories::{Stage, Story};

pub(super) const STORIES: &[Story] = &[
    Story { name: "local disk by ublk, ext4", run: |stage| used(stage, "ublk", "ext4") },
    Story { name: "local disk by ublk, xfs", run: |stage| used(stage, "ublk", "xfs") },
    Story { name: "local disk by ublk, btrfs", run: |stage| used(stage, "ublk", "btrfs") },
    Story { name: "local disk by nbd, ext4", run: |stage| used(stage, "nbd", "ext4") },
    Story { name: "local disk by nbd, xfs", run: |stage| used(stage, "nbd", "xfs") },
    Story { name: "local disk by nbd, btrfs", run: |stage| used(stage, "nbd", "btrfs") },
    Story { name: "local disk of a cluster, ublk", run: |stage| clustered(stage, "ublk") },
    Story { name: "local disk of a cluster, nbd", run: |stage| clustered(stage, "nbd") },
    Story { name: "device by ublk", run: |stage| boot(stage, "local/device", "ublk", "none") },
    Story { name: "device by nbd", run: |stage| boot(stage, "local/device", "nbd", "none") },
];

/// Prints figures, and asserts none.
pub(super) const FIGURES: &[Story] =
    &[Story { name: "figures: local disks by ublk and nbd", run: figures }];

fn used(stage: &Stage<'_>, how: &str, fs: &str) -> Result {
    stage.tree()?;
    boot(stage, "local/meanwhile", how, fs)
}

fn clustered(stage: &Stage<'_>, how: &str) -> Result {
    boot(stage, "local/cluster", how, "ext4")
}

fn figures(stage: &Stage<'_>) -> Result {
    boot(stage, "local/figures", "both", "none")?;
    let text = stage.text("figures")?;
    let rows: Vec<[&str; 3]> = text
        .lines()
        .filter_map(|line| line.split(' ').collect::<Vec<_>>().try_into().ok())
        .collect();
    let mut names: Vec<&str> = rows.iter().map(|[name, ..]| *name).collect();
    names.dedup();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let median = |way: &str| {
            let of_way = rows.iter().filter(|row| row[0] == name && row[1] == way);
            let mut values: Vec<f64> = of_way.filter_map(|row| row[2].parse().ok()).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let (ublk, nbd) = (median("ublk"), median("nbd"));
        println!("{name:14} ublk {ublk:8.0}/s  nbd {nbd:8.0}/s  ratio {:.2}", ublk / nbd);
    }
    Ok(())
}

fn boot(stage: &Stage<'_>, script: &str, how: &str, fs: &str) -> Result {
    let vm = std::env::current_exe()?;
    stage.set(&[
        ("fs", fs),
        ("how", how),
        ("vm", &vm.display().to_string()),
        ("parapet", &stage.parapet.program.display().to_string()),
    ])?;
    stage.newer.get()?.run(script, &stage.parapet.folder)
}
