//! First writes to regions of the write-intent bitmap wait for a durable write of their bits. Those
//! that wait at the same time share it.

use io::Completion;
use layout::Layout;
use metadata::create::{BitmapChunk, NewArray};

use crate::world::{Fault, World, pattern};

const BITMAP: u64 = 8192;
const REGION: u64 = 64 << 10;

#[test]
fn first_writes_that_wait_share_one_write_of_the_bitmap() {
    let world = World::new(2, 6 << 20);
    let bitmap = Some(BitmapChunk::Bytes(REGION as u32));
    let new = NewArray { zeroed: true, bitmap, ..NewArray::new("tank", Layout::Raid1, 0) };
    world.create(&new);
    let array = world.start();
    // The first write of a session records more than bits.
    world.write(&array, 0, &pattern(0, 4096, 1)).expect("the array is healthy");
    let bitmap = &world.disks[0];
    bitmap.break_with(Fault::HungAt(BITMAP));
    let mut writes: Vec<_> =
        (1..9).map(|n| world.begin(&array, n * REGION, &pattern(n * REGION, 4096, 1))).collect();
    assert_eq!(bitmap.is_holding(), 1, "the first mark waits for the disk");
    let ready = |writes: &mut [Completion<_>]| {
        writes.iter_mut().filter_map(|write| write.take_ready()).count()
    };
    for expected in [1, 7] {
        bitmap.release();
        bitmap.break_with(Fault::HungAt(BITMAP));
        world.sleep(&array, std::time::Duration::from_millis(5));
        assert_eq!(ready(&mut writes), expected, "held: {:?}", bitmap.held_at());
    }
    assert_eq!(bitmap.is_holding(), 0, "two writes of the bitmap carried eight bits");
    drop(array);
}
