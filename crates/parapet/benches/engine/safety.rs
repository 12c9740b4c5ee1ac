//! The cost of safety: the same array with each consistency policy, with and without checksums.
//! Each round measures all of them in turn. The ratio refers to the default policy without
//! checksums.

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

/// A consistency policy, with or without checksums.
#[derive(Clone, Copy)]
struct Policy {
    name: &'static str,
    consistency: Consistency,
    checksums: bool,
}

const fn policy(name: &'static str, consistency: Consistency, checksums: bool) -> Policy {
    Policy { name, consistency, checksums }
}

/// The policies of a level; the others are compared with the first.
fn policies(shape: Shape) -> Vec<Policy> {
    use Consistency::{Bitmap, Intent, Journal, Ppl};
    match shape.level {
        Level::Raid1 => vec![policy("bitmap", Bitmap, false), policy("checksums", Bitmap, true)],
        _ => {
            let mut policies = vec![
                policy("intent", Intent, false),
                policy("checksums", Intent, true),
                policy("bitmap", Bitmap, false),
                policy("bitmap and checksums", Bitmap, true),
                policy("journal", Journal, false),
                policy("journal and checksums", Journal, true),
            ];
            let ppl = policy("ppl", Ppl, false);
            policies.extend((shape.level == Level::Raid5).then_some(ppl));
            policies
        }
    }
}

async fn start(shape: Shape, policy: Policy, folder: &Folder, on: &Executor) -> Array {
    let bitmap = (policy.consistency != Consistency::Ppl).then_some(BitmapChunk::Fitting);
    let (consistency, checksums) = (Some(policy.consistency), Some(policy.checksums));
    let members = shape.members(DATA_BYTES, folder, on).await;
    shape.start_as(&members, on, |new| NewArray { bitmap, consistency, checksums, ..new }).await
}

/// Measures each policy of each level on this medium.
pub(crate) async fn measure(medium: Medium, on: &Executor) {
    for shape in [RAID1, RAID5, RAID6] {
        let folder = Folder::new(medium);
        let policies = policies(shape);
        let mut arrays = Vec::new();
        for &policy in &policies {
            arrays.push(start(shape, policy, &folder, on).await);
        }
        for load in LOADS {
            let mut client = Client::new(load);
            let mut figures = vec![Vec::new(); policies.len()];
            for _ in 0..ROUNDS {
                for (array, figures) in arrays.iter().zip(&mut figures) {
                    figures.push(rate(&mut client, array, load).await);
                }
            }
            let unit = if load.in_bytes() { "MB/s" } else { "k/s" };
            for (policy, own) in policies.iter().zip(&figures).skip(1) {
                let (medium, shape) = (medium.name(), shape.name);
                let name = format!("{medium}: {shape}, {}, {}", policy.name, load.name());
                Row::new(name, unit).ours(own).peer(policies[0].name, &figures[0]).print();
            }
        }
        for array in arrays {
            array.stop().await.expect("the members work");
        }
    }
}
