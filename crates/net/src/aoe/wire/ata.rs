//! The argument of an ATA command.

/// Bytes of the argument.
pub const BYTES: usize = 12;

/// Flag: data goes to the target.
const WRITE: u8 = 0x01;
/// Flag: the LBA has 48 bits.
const EXTENDED: u8 = 0x40;

/// ATA opcodes (ATA8-ACS) that a target serves.
pub mod opcode {
    /// READ SECTOR(S): 28-bit LBA.
    pub const READ: u8 = 0x20;
    /// READ SECTOR(S) EXT: 48-bit LBA.
    pub const READ_EXT: u8 = 0x24;
    /// WRITE SECTOR(S).
    pub const WRITE: u8 = 0x30;
    /// WRITE SECTOR(S) EXT.
    pub const WRITE_EXT: u8 = 0x34;
    /// SMART, with a subcommand in the feature register.
    pub const SMART: u8 = 0xb0;
    /// CHECK POWER MODE.
    pub const CHECK_POWER: u8 = 0xe5;
    /// FLUSH CACHE.
    pub const FLUSH: u8 = 0xe7;
    /// FLUSH CACHE EXT.
    pub const FLUSH_EXT: u8 = 0xea;
    /// IDENTIFY DEVICE.
    pub const IDENTIFY: u8 = 0xec;
}

/// Bits of the status register.
pub mod status {
    /// The command failed; the error register says why.
    pub const ERROR: u8 = 0x01;
    /// The device failed.
    pub const FAULT: u8 = 0x20;
    /// Ready for the next command.
    pub const READY: u8 = 0x40;
    /// A client takes an answer with any of these for a failure (busy, fault, data request, error).
    pub const BAD: u8 = 0xa9;
}

/// Bits of the error register.
pub mod error {
    /// The command is not supported, or was refused.
    pub const ABORTED: u8 = 0x04;
    /// The address is past the end.
    pub const NOT_FOUND: u8 = 0x10;
    /// The medium has lost the data.
    pub const UNCORRECTABLE: u8 = 0x40;
}

/// The argument, of requests and of answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ata {
    /// Flags; answers repeat those of the request.
    pub flags: u8,
    /// Feature register of a request, error register of an answer.
    pub feature: u8,
    /// Sectors of a request; sectors not transferred in an answer.
    pub sectors: u8,
    /// Opcode of a request, status register of an answer.
    pub command: u8,
    /// The LBA registers, low byte first.
    pub lba: [u8; 6],
}

impl Ata {
    /// A read of `sectors` from `lba`, or a write.
    pub fn transfer(write: bool, lba: u64, sectors: u8) -> Ata {
        let [a, b, c, d, e, f, ..] = lba.to_le_bytes();
        let (flags, command) = match write {
            false => (EXTENDED, opcode::READ_EXT),
            true => (EXTENDED | WRITE, opcode::WRITE_EXT),
        };
        Ata { flags, feature: 0, sectors, command, lba: [a, b, c, d, e, f] }
    }

    /// A command without an address.
    pub fn plain(command: u8) -> Ata {
        let sectors = u8::from(command == opcode::IDENTIFY);
        Ata { sectors, command, lba: [0, 0, 0, 0xa0, 0, 0], ..Ata::default() }
    }

    /// The argument at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Option<Ata> {
        let &[flags, feature, sectors, command, a, b, c, d, e, f, _, _] =
            bytes.first_chunk::<BYTES>()?;
        Some(Ata { flags, feature, sectors, command, lba: [a, b, c, d, e, f] })
    }

    /// Writes the argument to the start of `into`.
    pub fn put(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&[self.flags, self.feature, self.sectors, self.command]);
        into[4..10].copy_from_slice(&self.lba);
        into[10..BYTES].fill(0);
    }

    /// The first sector. The opcode decides its width, not the flag: the fourth byte of a 28-bit
    /// address has device bits in its upper half.
    pub fn first_sector(&self) -> u64 {
        let [a, b, c, d, e, f] = self.lba;
        match self.command {
            opcode::READ_EXT | opcode::WRITE_EXT => u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            _ => u64::from(u32::from_le_bytes([a, b, c, d & 0x0f])),
        }
    }

    /// True if data comes with the request: by the opcode, whatever the flag says.
    pub fn is_write(&self) -> bool {
        matches!(self.command, opcode::WRITE | opcode::WRITE_EXT)
    }

    /// True if data comes with the answer, from the medium.
    pub fn is_read(&self) -> bool {
        matches!(self.command, opcode::READ | opcode::READ_EXT)
    }

    /// The answer to this request: done.
    #[must_use]
    pub fn done(self) -> Ata {
        Ata { feature: 0, sectors: 0, command: status::READY, ..self }
    }

    /// The answer to this request: failed, with this bit of [`error`].
    #[must_use]
    pub fn failed(self, error: u8) -> Ata {
        Ata { feature: error, command: status::READY | status::ERROR, ..self }
    }

    /// The answer to this request: the device failed.
    #[must_use]
    pub fn faulted(self) -> Ata {
        let command = status::READY | status::FAULT | status::ERROR;
        Ata { feature: error::ABORTED, command, ..self }
    }
}
