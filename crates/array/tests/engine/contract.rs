//! An array keeps the contract of a disk: it passes the same suite as every other disk.

use std::rc::Rc;

use array::CacheMode;
use io::Disk;
use layout::{Layout, Level};
use metadata::create::NewArray;

use crate::world::World;

#[test]
fn every_level_keeps_the_contract_healthy_and_degraded() {
    for (level, members) in [
        (Level::Linear, 3),
        (Level::Raid0, 3),
        (Level::Raid1, 3),
        (Level::Raid4, 4),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
        (Level::Raid10, 5),
        (Level::Raid35, 5),
    ] {
        let modes = [CacheMode::None, CacheMode::Writeback];
        for (lost, cache) in (0..2).flat_map(|lost| modes.map(|cache| (lost, cache))) {
            let mut world = World::new(members, 24 << 20);
            world.host.cache = cache;
            // So little that writers wait for room.
            world.host.bounds.cache_bytes = 256 << 10;
            let chunk = match level {
                Level::Raid1 | Level::Linear => 0,
                Level::Raid35 => 1024,
                _ => 16 << 10,
            };
            let layout = Layout::default_for(level, members);
            world.create(&NewArray { zeroed: true, ..NewArray::new("tank", layout, chunk) });
            let array = world.start();
            if lost > array.geometry().redundancy() {
                continue;
            }
            for id in 0..lost as u32 {
                world.run(&array, array.fail(layout::MemberId(id))).expect("within redundancy");
            }
            let disk: Rc<dyn Disk> = Rc::new(array.clone());
            world.run(&array, io::contract::check(disk, &world.pool));
        }
    }
}
