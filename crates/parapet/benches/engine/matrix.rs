//! Every level under every load on every medium, compared with one raw member file. Each round
//! measures all of them in turn.
//!
//! Each round has its own raw file, created between the members of arrays: the location of a file,
//! above all in the memory of a virtual machine, can change its speed by a factor of two.

use std::rc::Rc;
use std::time::Duration;

use array::Array;
use io::Disk;
use layout::Level;
use layout::private::Consistency;
use metadata::create::NewArray;
use os::Executor;

use crate::ROUNDS;
use crate::client::{Client, Load};
use crate::medium::{Folder, Medium};
use crate::row::Row;
use crate::stage::{RAID0, RAID1, RAID5, RAID6, RAID10, RAID35, Shape};

const SHAPES: [Shape; 6] = [RAID0, RAID1, RAID5, RAID6, RAID10, RAID35];

const KIB: usize = 1 << 10;

const STRIPES: Load = Load::write(256 * KIB, 8);
const WRITE: Load = Load::write(1024 * KIB, 8);
const READ: Load = Load::read(1024 * KIB, 8);
const READ_4K: Load = Load::read(4 * KIB, 32).random();
const WRITE_16K: Load = Load::write(16 * KIB, 32).random();

const LOADS: [Load; 10] = [
    STRIPES,
    WRITE,
    READ,
    READ_4K,
    Load::read(4 * KIB, 1).random(),
    Load::write(4 * KIB, 32).random(),
    Load::write(4 * KIB, 1).random(),
    Load::read(16 * KIB, 16).random(),
    WRITE_16K,
    Load::write(16 * KIB, 1).random(),
];

/// Bytes of each array, and of the raw file: several times the CPU's caches.
const DATA_BYTES: u64 = 128 << 20;
const WARM: Duration = Duration::from_millis(10);
const SLICE: Duration = Duration::from_millis(60);

/// The target for the ratio to a raw member file.
fn target(shape: Shape, load: Load, medium: Medium) -> Option<f64> {
    match (shape.level, load) {
        _ if medium == Medium::Memory => None,
        (Level::Raid5, WRITE) => Some(0.55),
        (Level::Raid6 | Level::Raid10, WRITE) => Some(0.45),
        (Level::Raid5, WRITE_16K) if medium == Medium::Disk => Some(0.10),
        _ => None,
    }
}

/// The rate of SPDK 24.01 over aio on tmpfs with one core, as a share of the rate of `pread` and
/// `pwrite` on one raw file of that machine; and the target for our ratio to it. SPDK is not
/// packaged, so it does not run here.
fn spdk(shape: Shape, load: Load, medium: Medium) -> Option<(f64, f64)> {
    match (shape.level, load) {
        _ if medium != Medium::Tmpfs => None,
        // raid5f 4+1, 256 KiB: 2894 of 6624 MB/s.
        (Level::Raid5, STRIPES) => Some((2894.0 / 6624.0, 1.0)),
        // raid0 and raid5f: 5032 and 5133 of 8280 MB/s.
        (Level::Raid0 | Level::Raid5, READ) => Some((5000.0 / 8280.0, 0.95)),
        // raid0 and raid5f: 404 and 379 of 666 thousand per second.
        (Level::Raid0 | Level::Raid5, READ_4K) => Some((400.0 / 666.0, 0.95)),
        _ => None,
    }
}

/// An array with default options, and an array that is only as safe as md's: without intent log and
/// checksums.
struct Pair {
    shape: Shape,
    usual: Array,
    plain: Option<Array>,
}

async fn pair(shape: Shape, folder: &Folder, medium: Medium, on: &Executor) -> Pair {
    let members = shape.members(DATA_BYTES, folder, on).await;
    let usual = shape.start(&members, on).await;
    let plain = match shape.level {
        Level::Raid0 => None,
        _ if medium == Medium::Memory => None,
        _ => {
            let members = shape.members(DATA_BYTES, folder, on).await;
            let (consistency, checksums) = (Some(Consistency::Bitmap), Some(false));
            let plain = |new| NewArray { consistency, checksums, ..new };
            Some(shape.start_as(&members, on, plain).await)
        }
    };
    Pair { shape, usual, plain }
}

/// Measures all levels on this medium.
pub(crate) async fn measure(medium: Medium, on: &Executor) {
    let folder = Folder::new(medium);
    let (mut raws, mut pairs) = (Vec::new(), Vec::new());
    for shape in SHAPES {
        pairs.push(pair(shape, &folder, medium, on).await);
        raws.push(folder.disk(DATA_BYTES, on).await);
    }
    let loads = LOADS.into_iter().filter(|load| medium != Medium::Memory || load.depth > 1);
    for load in loads {
        compare_with_raw(load, medium, &raws, &pairs).await;
    }
    for Pair { usual, plain, .. } in pairs {
        for array in [Some(usual), plain].into_iter().flatten() {
            array.stop().await.expect("the members work");
        }
    }
}

async fn compare_with_raw(load: Load, medium: Medium, raws: &[Rc<dyn Disk>], pairs: &[Pair]) {
    let mut client = Client::new(load);
    let mut peers = Vec::new();
    let mut figures = vec![(Vec::new(), Vec::new()); pairs.len()];
    for raw in raws.iter().take(ROUNDS) {
        peers.push(rate(&mut client, &**raw, load).await);
        for (pair, (ours, plain)) in pairs.iter().zip(&mut figures) {
            ours.push(rate(&mut client, &pair.usual, load).await);
            if let Some(array) = pair.plain.as_ref().filter(|_| load.write) {
                plain.push(rate(&mut client, array, load).await);
            }
        }
    }
    let unit = if load.in_bytes() { "MB/s" } else { "k/s" };
    for (pair, (ours, plain)) in pairs.iter().zip(&figures) {
        let shape = pair.shape;
        let name = format!("{}: {}, {}", medium.name(), shape.name, load.name());
        let row = Row::new(&*name, unit).ours(ours).peer("raw", &peers);
        let row = if plain.is_empty() { row } else { row.peer("bitmap only", plain) };
        row.target(target(shape, load, medium)).print();
        if let Some((share, least)) = spdk(shape, load, medium) {
            let scaled: Vec<f64> = peers.iter().map(|raw| raw * share).collect();
            let row = Row::new(format!("{name}, beside SPDK"), unit).ours(ours);
            row.peer("spdk (quoted, scaled)", &scaled).target(Some(least)).print();
        }
    }
}

/// The rate of one slice, after a short warm-up.
pub(crate) async fn rate(client: &mut Client, disk: &dyn Disk, load: Load) -> f64 {
    client.run_for(disk, WARM).await;
    client.run_for(disk, SLICE).await.rate(load)
}
