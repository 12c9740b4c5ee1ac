//! Frames that nobody would send.

use super::super::super::wire::SECTOR;
use super::*;

/// Numbers that look random and are the same each time (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A good frame of some command, which is then spoilt.
fn spoilt(numbers: &mut Numbers) -> Vec<u8> {
    let command = numbers.below(6) as u8;
    let mut bytes = vec![0; HEADER_BYTES];
    request(command, numbers.next() as u32).put(&mut bytes);
    let argument = match command {
        command::ATA => {
            let ata = Ata::transfer(numbers.below(2) == 1, numbers.below(2048), 2);
            argument(ata, &vec![numbers.next() as u8; 2 * SECTOR])
        }
        _ => (0..numbers.below(200)).map(|_| numbers.below(8) as u8).collect(),
    };
    bytes.extend(argument);
    for _ in 0..numbers.below(4) {
        // Not the addresses: the frame would not reach the target.
        let at = 14 + numbers.below(bytes.len() as u64 - 14) as usize;
        bytes[at] = numbers.next() as u8;
    }
    let cut =
        bytes.len() - numbers.below(4) as usize * numbers.below(bytes.len() as u64) as usize / 4;
    bytes.truncate(cut.max(14));
    bytes
}

#[test]
fn spoilt_frames_are_answered_at_most_once_and_harm_nothing_else() {
    let (bench, disk) = Bench::on_memory();
    Bench::inbox(&bench.client);
    let lun = bench.target.lun(SHELF).expect("it is online");
    let (mut numbers, mut answers) = (Numbers(0x5eed), 0);
    for round in 0..20_000 {
        // Spoilt frames reserve the LUN, or mask everyone.
        lun.set_state(LunState::default());
        bench.ports[0].deliver(&spoilt(&mut numbers));
        bench.settle();
        let came: Vec<Frame> = Bench::inbox(&bench.client);
        // Of a changed config string each port makes an announcement, with tag 0.
        let tags = came.iter().filter_map(|frame| Header::parse(frame.head())).map(|it| it.tag);
        answers += tags.filter(|tag| *tag != 0).count();
        assert!(came.len() <= 3, "round {round}: {} frames", came.len());
        assert!(came.iter().all(|frame| frame.bytes() <= 9014), "round {round}");
    }
    assert!(answers > 5_000, "{answers} frames were good enough for an answer");
    // The target still serves.
    lun.set_state(LunState::default());
    let data = vec![7; 2 * SECTOR];
    let header = request(command::ATA, 1 << 31);
    bench.ata(header, Ata::transfer(true, 100, 2), &data);
    let mut there = vec![0; data.len()];
    disk.peek(100 * SECTOR as u64, &mut there);
    assert_eq!(there, data);
}
