//! What safety costs: the same array with each policy against the write hole, and with checksums,
//! all in turn in each round. The ratio is to the usual policy without checksums.

use array::Array;
use layout::Level;
use layout::private::Consistency;
use metadata::create::{BitmapChunk, NewArray};
use os::Executor;

use crate::ROUNDS;
use crate::client::{Client, Load};
use crate::matrix::rate;
use crate::medium::{Folder, Medium};
use crate::row::Row;
use crate::stage::{RAID1, RAID5, RAID6, Shape};

const KIB: usize = 1 << 10;

const LOADS: [Load; 6] = [
    Load::write(4 * KIB, 32).random(),
    Load::write(4 * KIB, 1).random(),
    Load::read(4 * KIB, 32).random(),
    Load::read(4 * KIB, 1).random(),
    Load::write(1024 * KIB, 8),
    Load::read(1024 * KIB, 8),
];

const DATA_BYTES: u64 = 128 << 20;

/// How an array is kept safe.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    consistency: Consistency,
    checksums: bool,
}

const fn way(name: &'static str, consistency: Consistency, checksums: bool) -> Way {
    Way { name, consistency, checksums }
}

/// The first one is what the others are beside.
fn ways(shape: Shape) -> Vec<Way> {
    use Consistency::{Bitmap, Intent, Journal, Ppl};
    match shape.level {
        Level::Raid1 => vec![way("bitmap", Bitmap, false), way("checksums", Bitmap, true)],
        _ => {
            let mut ways = vec![
                way("intent", Intent, false),
                way("checksums", Intent, true),
                way("bitmap", Bitmap, false),
                way("bitmap and checksums", Bitmap, true),
                way("journal", Journal, false),
                way("journal and checksums", Journal, true),
            ];
            let ppl = way("ppl", Ppl, false);
            ways.extend((shape.level == Level::Raid5).then_some(ppl));
            ways
        }
    }
}

async fn start(shape: Shape, way: Way, folder: &Folder, on: &Executor) -> Array {
    let bitmap = (way.consistency != Consistency::Ppl).then_some(BitmapChunk::Fitting);
    let (consistency, checksums) = (Some(way.consistency), Some(way.checksums));
    let members = shape.members(DATA_BYTES, folder, on).await;
    shape.start_as(&members, on, |new| NewArray { bitmap, consistency, checksums, ..new }).await
}

/// Measures each way of each level on this medium.
pub(crate) async fn measure(medium: Medium, on: &Executor) {
    for shape in [RAID1, RAID5, RAID6] {
        let folder = Folder::new(medium);
        let ways = ways(shape);
        let mut arrays = Vec::new();
        for &way in &ways {
            arrays.push(start(shape, way, &folder, on).await);
        }
        for load in LOADS {
            let mut client = Client::new(load);
            let mut figures = vec![Vec::new(); ways.len()];
            for _ in 0..ROUNDS {
                for (array, figures) in arrays.iter().zip(&mut figures) {
                    figures.push(rate(&mut client, array, load).await);
                }
            }
            let unit = if load.in_bytes() { "MB/s" } else { "k/s" };
            for (way, own) in ways.iter().zip(&figures).skip(1) {
                let (medium, shape) = (medium.name(), shape.name);
                let name = format!("{medium}: {shape}, {}, {}", way.name, load.name());
                Row::new(name, unit).ours(own).peer(ways[0].name, &figures[0]).print();
            }
        }
        for array in arrays {
            array.stop().await.expect("sound members");
        }
    }
}
