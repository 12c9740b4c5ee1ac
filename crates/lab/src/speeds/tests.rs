//! Speeds of small arrays: states, loads, threads, and zones that do not fit.

use super::*;
use crate::disk::catalogue::Catalogue;
use crate::reliability::DiskKind;

fn inputs(disks: usize, candidates: &[Candidate]) -> (&'static Entry, Inputs) {
    let disk = Catalogue::get().entry("hd501lj").expect("a catalogued disk");
    let (outer_rate, inner_share) = disk.rates();
    let kind = DiskKind { name: "hd501lj".into(), bytes: disk.bytes(), outer_rate, inner_share };
    (disk, Inputs { candidates: candidates.to_vec(), ..Inputs::new(disks, kind) })
}

fn measured(disks: usize, candidates: &[Candidate], loads: &[PlannedLoad]) -> Vec<LayoutSpeeds> {
    let (disk, inputs) = inputs(disks, candidates);
    let (modelled, inputs) = (Modelled { disk, loads }, Inputs { threads: 2, ..inputs });
    modelled.measure(&inputs, &|_, _| {}).expect("no stall")
}

#[test]
fn a_rebuild_slows_clients_and_parity_slows_small_writes() {
    let levels = [Candidate::new(Level::Raid10, 4), Candidate::new(Level::Raid5, 4)];
    let loads = PlannedLoad::usual();
    let [raid10, raid5] = &measured(4, &levels, &loads)[..] else { panic!("two layouts") };
    let of = |load: usize| [raid10, raid5].map(|it| it.healthy[load].per_second);
    let ([mirrored, stream], [mirrored_small, small]) = (of(1), of(3));
    assert!(mirrored_small > 1.05 * small, "{mirrored_small} and {small}");
    // A written stream has whole stripes: three data disks against two, less the rounds of the log.
    assert!(stream > 0.9 * mirrored, "{stream} and {mirrored}");
    for load in [0, 2] {
        let [healthy, degraded, rebuilding] =
            [&raid5.healthy, &raid5.degraded, &raid5.rebuilding].map(|it| it[load].per_second);
        if load == 2 {
            assert!(rebuilding < 0.9 * healthy && degraded < healthy, "{raid5:?}");
        } else {
            // A stream reads all of the three other disks instead of three quarters of four, and
            // read-ahead leaves a rebuild less of them than random reads do.
            assert!(rebuilding < 0.95 * degraded && degraded < 1.1 * healthy, "{raid5:?}");
        }
    }
    let rate = raid5.rebuild_rate.expect("it was rebuilt");
    assert!((5e6..90e6).contains(&rate), "{rate}");
}

#[test]
fn nested_arrays_are_measured_too() {
    let nested = Candidate { arrays: 2, ..Candidate::new(Level::Raid5, 3) };
    let found = measured(6, &[nested], &[PlannedLoad::built_in("stream").expect("built in")]);
    let LayoutSpeeds { healthy, degraded, rebuilding, rebuild_rate } = &found[0];
    assert!(healthy[0].bytes_per_second > 100e6, "{found:?}");
    assert!((degraded.len(), rebuilding.len()) == (1, 1) && rebuild_rate.is_some(), "{found:?}");
}

#[test]
fn threads_change_no_figure_and_a_layout_without_redundancy_has_one_state() {
    let (disk, inputs) =
        inputs(2, &[Candidate::new(Level::Raid0, 2), Candidate::new(Level::Raid1, 2)]);
    let loads = [PlannedLoad::built_in("mail").expect("built in")];
    let with = |threads| {
        let cells = Cell::new(0);
        let modelled = Modelled { disk, loads: &loads };
        let inputs = Inputs { threads, ..inputs.clone() };
        let found = modelled.measure(&inputs, &|done, all| cells.set(done * 100 / all));
        assert_eq!(cells.get(), 100);
        found.expect("no stall")
    };
    let found = with(1);
    assert_eq!(found, with(3));
    assert!(found[0].degraded.is_empty() && found[0].rebuild_rate.is_none(), "{found:?}");
    assert_eq!((found[1].degraded.len(), found[1].rebuilding.len()), (1, 1));
}

#[test]
fn durable_writes_cost_more() {
    let mail = PlannedLoad::built_in("mail").expect("built in");
    let lazy = PlannedLoad { durable: false, ..mail.clone() };
    let found = measured(2, &[Candidate::new(Level::Raid0, 2)], &[mail, lazy]);
    let [durable, lazy] = &found[0].healthy[..] else { panic!("two loads") };
    assert!(lazy.per_second > 1.1 * durable.per_second, "{durable:?} {lazy:?}");
}

#[test]
fn a_zone_that_does_not_fit_names_the_layout() {
    let (disk, inputs) = inputs(2, &[Candidate::new(Level::Raid1, 2)]);
    let text = "[[load.worker]]\npattern = \"random\"\nsize = \"4KiB\"\nzone = \"1TB\"";
    let load = PlannedLoad::read("a.toml", text).expect("valid");
    let modelled = Modelled { disk, loads: &[load] };
    let fault = modelled.measure(&inputs, &|_, _| {}).expect_err("too large").to_string();
    assert!(fault.starts_with("raid1: load.worker[0]: its zone ends"), "{fault}");
}
